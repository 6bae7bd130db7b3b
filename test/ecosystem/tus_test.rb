# frozen_string_literal: true

require_relative "ecosystem"
require_relative "../http_client"

module Fairlead
  # Resumable uploads by tus-server, whose clients break off.
  # Covers integrations/tus_uploads.rb
  class TusTest < EcosystemTest
    include SpeaksHTTP

    APP = <<~'RUBY'
      require "tus-server"
      require "tus/storage/filesystem"
      Tus::Server.opts[:storage] = Tus::Storage::Filesystem.new("data")
      map("/files") { run Tus::Server }
    RUBY
    TUS = "Tus-Resumable: 1.0.0"
    DATA = Random.new(3).bytes(2_000_000).freeze

    %i[close reset].each do |way|
      define_method(:"test_an_upload_whose_client_#{way}s_the_connection_goes_on_where_it_ended") do
        with_server(APP, "--stream-request-bodies", lint: false) do |server|
          path = create(server)
          offset = 0
          3.times { |number| offset = break_off(server, path, offset, (number + 1) * 500_000, way) }
          client(to: server).write(head(path, offset) + DATA.byteslice(offset..)).response

          assert_equal DATA.bytesize, offset_of(server, path)
          assert_equal DATA, File.binread(server.path("data/#{File.basename(path)}"))
          refute_match(/ClientGone|Error/, server.log)
        end
      end
    end

    # The core gives up, and the app may still answer.
    def test_an_upload_whose_client_pauses_for_too_long_goes_on_where_it_ended
      with_server(APP, "--stream-request-bodies", "--body-timeout", "1", lint: false) do |server|
        path = create(server)
        offset = break_off(server, path, 0, 500_000, :response)

        assert_equal offset, File.size(server.path("data/#{File.basename(path)}"))
      end
    end

    private

    def create(server)
      created = client(to: server).write("POST /files HTTP/1.1\r\nHost: a\r\n#{TUS}\r\nUpload-Length: #{DATA.bytesize}\r\n" \
                                         "Content-Length: 0\r\n\r\n").response
      URI(created["location"]).path
    end

    def head(path, offset)
      "PATCH #{path} HTTP/1.1\r\nHost: a\r\n#{TUS}\r\nUpload-Offset: #{offset}\r\nContent-Type: application/offset+octet-stream\r\n" \
        "Content-Length: #{DATA.bytesize - offset}\r\n\r\n"
    end

    # @param way [Symbol] what the client does then
    # @return [Integer] the offset that the server then has
    def break_off(server, path, offset, upto, way)
      uploader = client(to: server).write(head(path, offset) + DATA.byteslice(offset...upto))
      file = server.path("data/#{File.basename(path)}")
      eventually("the data") { File.size(file) > upto - 20_000 }
      uploader.public_send(way)
      eventually("the offset") { offset_of(server, path).then { |now| now if now > offset } }
    end

    def offset_of(server, path)
      client(to: server).write("HEAD #{path} HTTP/1.1\r\nHost: a\r\n#{TUS}\r\n\r\n").response(head: true)["upload-offset"].to_i
    end
  end
end
