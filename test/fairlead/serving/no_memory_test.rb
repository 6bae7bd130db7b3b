# frozen_string_literal: true

require_relative "../../helper"
require_relative "../../http_client"

module Fairlead
  # The system has no memory for what the app needs of a request, just as that has been taken: its client is answered, or disconnected,
  # and others are served.
  class NoMemoryTest < Test
    include SpeaksHTTP

    LARGE = 20_001
    AHEAD = 3333

    # While the file is there, there is no memory for a String of these sizes.
    MALLOC = <<~C.freeze
      #include <errno.h>
      #include <unistd.h>
      void *__libc_malloc(size_t size);
      void *malloc(size_t size) {
        if ((size != #{LARGE + 1} && size != #{AHEAD + 1}) || access("no-memory", F_OK) != 0)
          return __libc_malloc(size);
        errno = ENOMEM;
        return NULL;
      }
    C

    APP = <<~RUBY
      run lambda { |env|
        env["rack.hijack"].call.then { |socket| socket.write("taken over"); socket.close } if env["PATH_INFO"] == "/hijack"
        [200, {}, [env["HTTP_X_LARGE"].to_s.size.to_s]]
      }
    RUBY

    def setup
      super
      library = File.join(folder = Dir.mktmpdir("fairlead-memory-"), "malloc.so")
      File.write("#{folder}/malloc.c", MALLOC)
      assert system("cc", "-shared", "-fPIC", "-o", library, "#{folder}/malloc.c")
      @server = of_this_test(ServerProcess.new(APP, "--workers", "1", "--in-flight", "1", lint: false, env: { "LD_PRELOAD" => library })).start.wait_until_ready
    ensure
      FileUtils.rm_rf(folder)
    end

    def test_a_request_whose_environment_cannot_be_made_gets_503
      @server.write("no-memory", "")
      3.times { assert_equal [503, "out of memory\n"], ask_much.then { |answer| [answer.status, answer.body] } }
      eventually("the log says so") { @server.log.include?("NoMemoryError") }
      assert_equal "0", client(to: @server).get("/").body
      File.unlink(@server.path("no-memory"))
      assert_equal LARGE.to_s, ask_much.body
    end

    # What the client has sent already must come before what the app reads.
    def test_a_socket_that_cannot_be_taken_over_is_closed
      request = "GET /hijack HTTP/1.1\r\nHost: a\r\n\r\n#{"x" * AHEAD}"
      assert_equal "taken over", client(to: @server).write(request).rest
      @server.write("no-memory", "")
      assert_empty client(to: @server).write(request).rest
      eventually("the log says so") { @server.log.include?("NoMemoryError") }
    end

    private

    def ask_much = client(to: @server).get("/", "X-Large: #{"x" * LARGE}")
  end
end
