# frozen_string_literal: true

require_relative "../helper"

module Fairlead
  # Servers are found and asked without a file or a port.
  class InquiryTest < Test
    def test_who_answers_is_found
      answering({ pid: Process.pid, text: "ä" * 75_000 }) do
        assert_includes Inquiry.servers, { pid: Process.pid, text: "ä" * 75_000 }
      end
    end

    def test_who_has_gone_is_not
      answering({ pid: -1 }) { nil }

      refute_includes Inquiry.servers, { pid: -1 }
    end

    def test_a_client_that_says_and_reads_nothing_holds_up_nobody
      answering({ pid: -2 }) do |inquiry|
        clients = Array.new(3) { Socket.new(:UNIX, :STREAM).tap { |socket| socket.connect(inquiry.io.local_address) } }

        assert_includes Inquiry.servers, { pid: -2 }
        clients.each(&:close)
      end
    end

    def test_what_is_no_answer_is_none
      server = Socket.new(:UNIX, :STREAM)
      server.bind(Socket.sockaddr_un("\0fairlead-#{SecureRandom.hex(8)}"))
      server.listen(1)
      thread = Thread.new { server.accept.first.tap { |client| client.write("{not JSON") }.close }

      assert_kind_of Array, Inquiry.servers
      thread.join
    ensure
      server&.close
    end

    private

    def answering(answer)
      inquiry = Inquiry.open { answer }
      thread = Thread.new { inquiry.attend while inquiry.io.wait_readable }
      yield inquiry
    ensure
      thread&.kill&.join
      inquiry&.close
    end
  end
end
