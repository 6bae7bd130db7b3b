# frozen_string_literal: true

require "securerandom"
require_relative "../rails/cable_client"
require_relative "stock_app"

module Fairlead
  # The stock app in production, with what it comes with: the Solid gems on SQLite, Active Storage, Action Mailer.
  class StockProductionTest < StockAppTest
    include CableClient
    needs :database

    # Speaks as much SMTP as it takes, and thinks before each answer to a letter.
    module Letterbox
      # @return [Integer] its port.
      def self.open(letters)
        listener = TCPServer.new("127.0.0.1", 0)
        Thread.new { loop { Thread.new(listener.accept) { |socket| take(socket, letters) } } }
        listener.addr[1]
      end

      def self.take(socket, letters)
        socket.write("220 here\r\n")
        while (line = socket.gets)
          case line
          when /\ADATA/
            socket.write("354 go on\r\n")
            letters << socket.gets("\r\n.\r\n")
            sleep 1
            socket.write("250 taken\r\n")
          when /\AQUIT/ then break socket.write("221 bye\r\n")
          else socket.write("250 fine\r\n")
          end
        end
      ensure
        socket.close
      end
    end

    LETTERS = Thread::Queue.new
    private_constant :LETTERS

    # For all tests that leave it as it is.
    def server
      shared do
        StockServer.new(:fairlead, "--workers", "2", files: { "config/initializers/mail.rb" => <<~RUBY })
          Rails.application.config.action_mailer.smtp_settings = { address: "127.0.0.1", port: #{Letterbox.open(LETTERS)} }
        RUBY
      end
    end

    def test_a_file_is_uploaded_and_downloaded
      file = SecureRandom.bytes(12_000_000)
      photo = JSON.parse(upload(server, file).body)

      assert_equal file, server.get(photo["proxy"]).body, "streamed by the app"
      part = server.get(photo["proxy"], "range" => "bytes=5000000-5999999")

      assert_equal ["206", file[5_000_000, 1_000_000]], [part.code, part.body]
      direct = server.get(URI(server.get(photo["direct"])["location"]).request_uri, "range" => "bytes=10-19")

      assert_equal ["206", file[10, 10]], [direct.code, direct.body]
      downloads = Array.new(5) { Thread.new { server.get(photo["proxy"]).body == file } }

      assert_equal [true] * 5, downloads.map(&:value)
    end

    # Rails reads it in pieces of 5 MB, of which some 130 MB come together before Ruby collects them.
    def test_a_large_file_that_is_downloaded_is_never_in_memory_as_a_whole
      file = SecureRandom.bytes(1 << 20) * 256
      photo = JSON.parse(upload(server, file).body)
      digest = Digest::SHA256.new
      grown = growth(server) do
        Net::HTTP.start("127.0.0.1", server.port) do |http|
          http.request_get(photo["proxy"]) { |answer| answer.read_body { |part| digest << part } }
        end
      end

      assert_equal Digest::SHA256.hexdigest(file), digest.hexdigest
      assert_operator grown, :<, 200
    end

    # All processes of the server poll the same table.
    def test_solid_cable_takes_a_message_to_the_clients_of_all_workers
      @server = server

      3.times { |n| assert_all_hear("/broadcast/ahoy#{n}", "ahoy#{n}") }
    end

    def test_redis_does_too
      @server = stock_app(:fairlead, "--workers", "2", files: { "config/cable.yml" => <<~YAML })
        production:
          adapter: redis
          url: #{ENV["TEST_REDIS_URL"]}
      YAML

      3.times { |n| assert_all_hear("/broadcast/ahoy#{n}", "ahoy#{n}") }
    end

    def test_solid_queue_runs_beside_the_workers_and_ends_with_them
      server = stock_app(:fairlead, files: { "config/fairlead.rb" => <<~RUBY })
        bind "http://127.0.0.1:0"
        workers 2
        solid_queue "async"
      RUBY
      assert_christened(server)
      jobs = jobs_of(server)
      Process.kill(:KILL, jobs)
      eventually("it is started again") { jobs_of(server).then { |pid| pid && pid != jobs } }

      assert_match(/Solid Queue \(process #{jobs}\) was ended by SIGKILL. It is started again in 1 s/, server.log)
      assert_christened(server)
      jobs = jobs_of(server)

      assert_predicate server.stop, :success?
      refute server.alive?(jobs)
    end

    def test_solid_queue_runs_beside_the_foreground_process
      server = stock_app(:rails, "-e", "production", env: { "WEB_CONCURRENCY" => "0", "SOLID_QUEUE_IN_PUMA" => "true" })
      assert_christened(server)
      jobs = jobs_of(server) or flunk(server.log)
      server.signal(:KILL)

      eventually("it ends, though nobody tells it to") { !server.alive?(jobs) }
    end

    def test_a_mail_is_sent_while_others_are_served
      boat = JSON.parse(upload(server, "x").body)["id"]
      # The letterbox takes 1 s for each. One after the other it would be 30 s.
      took = duration { assert_equal ["200"] * 30, Array.new(30) { Thread.new { server.post("/arrive/#{boat}", "").code } }.map(&:value) }
      assert_operator took, :<, 20
      assert_includes LETTERS.pop, "Subject: Arrived: photographed"
    end

    private

    def upload(server, file)
      body = "--edge\r\ncontent-disposition: form-data; name=\"photo\"; filename=\"a.bin\"\r\n" \
             "content-type: application/octet-stream\r\n\r\n".b + file + "\r\n--edge--\r\n".b
      server.post("/photos", body, "content-type" => "multipart/form-data; boundary=edge")
    end

    # @return [Float] megabytes that a worker had more meanwhile, at most.
    def growth(server)
      before = server.worker_pids.to_h do |pid|
        File.write("/proc/#{pid}/clear_refs", "5") # forgets the most that it had: proc_pid_clear_refs(5)
        [pid, most(pid)]
      end
      yield
      (before.keys & server.worker_pids).map { |pid| most(pid) - before[pid] }.max
    end

    def most(pid) = File.read("/proc/#{pid}/status")[/^VmHWM:\s+(\d+)/, 1].to_i / 1024.0

    def assert_christened(server)
      boat = JSON.parse(upload(server, "x").body)["id"]

      assert_equal "202", server.post("/christen/#{boat}", "").code
      eventually("the job has run") { server.get("/name/#{boat}").body == "photographed II" }
    end

    # @return [Integer, nil]
    def jobs_of(server)
      server.descendant_pids.find { |pid| server.title(pid).match?(/\Asolid-queue-\w+-supervisor/) }
    end
  end
end
