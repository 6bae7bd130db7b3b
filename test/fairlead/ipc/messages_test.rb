# frozen_string_literal: true

require_relative "../../helper"

module Fairlead
  # Covers ipc/channel.rb, ipc/packet_socket.rb
  class MessageTest < Test
    def setup
      super
      @one, @other = Channel.pair
    end

    def teardown
      [@one, @other].each(&:close)
      super
    end

    def test_each_kind_arrives_as_it_was_sent
      messages = [Messages::Ready.new, Messages::Failed.new("config.ru:3: \"no\"\nline two ✓"),
                  Messages::Relief.new, Messages::Lane.new, Messages::Drain.new(true), Messages::Drain.new(false), Messages::Stop.new, Messages::Reopen.new,
                  Messages::Serving.new([["http://127.0.0.1:0", nil], ["unix:/a", 7]]), Messages::Notify.new("READY=1\nSTATUS=a"),
                  Messages::Restart.new, Messages::Retire.new, Messages::Stopping.new, Messages::Signaled.new("TERM"), Messages::Starting.new(3), Messages::Show.new, Messages::Shown.new([], {})]

      messages.each { |message| assert @one.post(message) }
      assert_equal [messages, false], @other.receive
    end

    def test_copies_of_descriptors_come_along
      reader, writer = IO.pipe
      @one.post(Messages::Serving.new([]), [reader, writer])
      assert_equal [[Messages::Serving.new([])], false], @other.receive
      copied_reader, copied_writer = @other.take_ios
      [reader, writer].each(&:close)
      copied_writer.write("through")
      copied_writer.close

      assert_equal "through", copied_reader.read
      assert_empty @other.take_ios
    ensure
      copied_reader&.close
    end

    def test_nothing_is_waited_for
      assert_equal [[], false], @one.receive
    end

    def test_the_end_comes_after_what_was_said_before
      @one.post(Messages::Ready.new)
      @one.close

      assert_equal [[Messages::Ready.new], true], @other.receive
      refute @other.post(Messages::Stop.new), "nobody is there"
    end

    def test_a_message_in_pieces_is_put_together
      line = Messages.dump(Messages::Failed.new("text"))
      @one.io.write(line[0, 5])
      assert_equal [[], false], @other.receive
      @one.io.write(line[5..])
      assert_equal [[Messages::Failed.new("text")], false], @other.receive
    end

    def test_what_is_no_message_is_an_error
      ["nonsense\n", "[\"unknown\",{}]\n", "[\"drain\",{\"what\":1}]\n", "[\"ready\"]\n", "1\n", "{\"ready\":{}}\n"].each do |line|
        assert_raises(Error, line) { Messages.parse(line) }
      end
    end

    def test_what_comes_behind_it_arrives
      @one.io.write("[\"ready\"]\n")
      @one.post(Messages::Ready.new)
      log = capture_io { assert_equal [[Messages::Ready.new], false], @other.receive }.join

      assert_includes log, "Not a message: \"[\\\"ready\\\"]\\n\" (no fields)"
    end

    # The socket takes a part of each.
    def test_messages_of_several_threads_stay_whole
      posted = Array.new(4) { |number| Messages::Shown.new([{ "number" => number, "text" => number.to_s * 150_000 }], {}) }
      threads = posted.map { |message| Thread.new { 20.times { Thread.pass until @one.post(message) } } }
      came = []
      came.concat(@other.receive.first) while threads.any?(&:alive?)
      @one.post(Messages::Ready.new) until came.concat(@other.receive.first).last == Messages::Ready.new

      assert_empty came.uniq - posted - [Messages::Ready.new]
    end
  end
end
