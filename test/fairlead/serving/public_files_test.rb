# frozen_string_literal: true

require "time"
require "zlib"
require_relative "../../helper"
require_relative "../../http_client"

module Fairlead
  # Files that Fairlead serves before the app, beside ActionDispatch::Static, which serves the same in Ruby.
  class PublicFilesTest < Test
    include SpeaksHTTP

    APP = <<~RUBY
      require "action_dispatch"
      require "action_controller"
      use ActionDispatch::Static, File.expand_path("public"), headers: { "x-frame-options" => "DENY" } if ENV["STATIC"]
      run ->(env) { [200, { "content-type" => "text/plain" }, ["app: \#{env["PATH_INFO"]}"]] }
    RUBY
    CSS = "body { color: green }\n" * 100
    BIG = Random.new(1).bytes(3_000_000)
    FILES = {
      "public/index.html" => "<h1>home</h1>", "public/404.html" => "<h1>404</h1>", "public/a.txt" => "0123456789",
      "public/folder/index.html" => "<h1>folder</h1>", "public/a b.txt" => "space", "public/app.js" => "alert(1)",
      "public/assets/app-0123abcd.css" => CSS, "public/assets/app-0123abcd.css.gz" => Zlib.gzip(CSS), "public/empty.txt" => "",
      "public/big.bin" => BIG, "public/.env" => "SECRET=1", "public/image.svg" => "<svg/>", "outside.txt" => "outside"
    }.freeze

    def ours = shared_server(APP, "--public-files", "public", name: :ours, files: FILES)
    def theirs = shared_server(APP, env: { "STATIC" => "1" }, name: :theirs, files: FILES)
    alias server ours

    REQUESTS = [
      ["GET", "/"], ["GET", "/404"], ["GET", "/404.html"], ["GET", "/folder"], ["GET", "/folder/"], ["GET", "/folder/index.html"],
      ["GET", "/a.txt"], ["GET", "/a.txt/"], ["GET", "/a%20b.txt"], ["GET", "/%61.txt"], ["GET", "/a.txt?query"], ["GET", "/app.js"],
      ["GET", "/empty.txt"], ["GET", "/big.bin"], ["GET", "/image.svg"], ["HEAD", "/a.txt"], ["HEAD", "/big.bin"],
      ["GET", "/assets/app-0123abcd.css"], ["GET", "/assets/app-0123abcd.css", "Accept-Encoding: gzip"],
      ["GET", "/assets/app-0123abcd.css", "Accept-Encoding: br"], ["GET", "/assets/app-0123abcd.css", "Accept-Encoding: gzip, br"],
      ["GET", "/assets/app-0123abcd.css.gz"], ["GET", "/nothing"], ["GET", "/nothing.css"], ["GET", "/folder/nothing"],
      ["GET", "/../outside.txt"], ["GET", "/%2e%2e/outside.txt"], ["GET", "/..%2foutside.txt"], ["GET", "/a.txt%00"], ["GET", "/assets"],
      ["POST", "/a.txt"], ["PUT", "/a.txt"], ["DELETE", "/a.txt"], ["OPTIONS", "/a.txt"],
      ["GET", "/a.txt", "Range: bytes=2-4"], ["GET", "/a.txt", "Range: bytes=-3"], ["GET", "/a.txt", "Range: bytes=7-"],
      ["GET", "/a.txt", "Range: bytes=10-"], ["GET", "/a.txt", "Range: bytes=x"], ["GET", "/big.bin", "Range: bytes=1000000-2999999"],
      ["GET", "/a.txt", "If-Modified-Since: :modified"]
    ].freeze
    COMPARED = %w[content-type content-encoding content-length content-range last-modified location].freeze
    private_constant :APP, :FILES, :REQUESTS, :COMPARED

    def test_files_are_those_that_rails_would_serve
      stamp(ours, theirs)
      REQUESTS.each do |method, path, *fields|
        fields = fields.map { |field| field.sub(":modified", MODIFIED.httpdate) }
        first, second = [ours, theirs].map { |server| ask(server, method, path, *fields) }

        assert_equal second, first, [method, path, *fields].inspect
      end
    end

    def test_what_rails_does_not_say_of_a_file
      stamp(ours)
      answer = client.get("/assets/app-0123abcd.css", "Accept-Encoding: gzip")

      assert_equal "public, max-age=31536000, immutable", answer["cache-control"]
      assert_equal "accept-encoding", answer["vary"]
      assert_equal "bytes", answer["accept-ranges"]
      assert_match(/\A"\h+-\h+"\z/, answer["etag"])
      assert_nil client.get("/app.js")["cache-control"]
      assert_equal 304, client.get("/assets/app-0123abcd.css", "Accept-Encoding: gzip", "If-None-Match: #{answer["etag"]}").status
      assert_equal 200, client.get("/assets/app-0123abcd.css", "If-None-Match: #{answer["etag"]}").status
      assert_equal BIG[5..9], client.get("/big.bin", "Range: bytes=5-9", "If-Range: #{client.get("/big.bin", head: true)["etag"]}").body
    end

    def test_hidden_files_are_the_apps
      assert_equal "app: /.env", client.get("/.env").body
    end

    def test_a_file_is_sent_while_the_app_computes
      with_server(<<~RUBY, "--public-files", "public", files: FILES) do |server|
        run ->(env) { $stderr.puts("begun"); nil until File.exist?("go"); [200, {}, ["done"]] }
      RUBY
        busy = client(to: server, timeout: 60).request("GET", "/busy")
        eventually("it computes") { server.log.include?("begun") }
        assert_equal BIG, client(to: server).get("/big.bin").body
        server.write("go", "")

        assert_equal "done", busy.response.body
      end
    end

    def test_slow_and_fast_clients_at_once
      clients = Array.new(20) { client.request("GET", "/big.bin") }
      fast = Array.new(4) { Thread.new { client.get("/big.bin").body == BIG } }

      assert_equal [true] * 4, fast.map(&:value)
      assert(clients.all? { |slow| slow.response.body == BIG })
      clients.each { |slow| slow.request("GET", "/big.bin") }
      clients.each(&:reset)
      worker = ours.worker_pids.first
      eventually("no file stays open") { opened(worker).none? { |name| name.end_with?("big.bin") } }
    end

    def test_a_folder_that_is_not_there_is_reported
      server = with_server(APP, "--public-files", "missing", ready: false)
      eventually("it ends") { server.ended? }

      assert_match(/--public-files: `public_files` names .*missing, which cannot be opened: No such file or directory/, server.log)
    end

    MODIFIED = Time.at(1_700_000_000)

    private

    def stamp(*servers)
      servers.each { |server| Dir[server.path("public/**/*")].each { |path| File.utime(MODIFIED, MODIFIED, path) } }
    end

    def ask(server, method, path, *fields)
      answer = client(to: server).request(method, path, *fields).response(head: method == "HEAD")
      return [416, answer["content-range"]] if answer.status == 416 # Rack adds a text
      return [304, answer.body] if answer.status == 304 # and says nothing of a file that has not changed

      [answer.status, COMPARED.to_h { |name| [name, answer[name]] }, answer.body]
    end
  end
end
