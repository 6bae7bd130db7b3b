# frozen_string_literal: true

require_relative "../helper"

module Fairlead
  class MessageTest < Test
    def setup
      super
      @one, @other = Message::Channel.pair
    end

    def teardown
      [@one, @other].each(&:close)
      super
    end

    def test_each_kind_arrives_as_it_was_sent
      messages = [Message::Ready.new, Message::Failed.new("config.ru:3: \"no\"\nline two ✓"),
                  Message::Relief.new, Message::Lane.new, Message::Drain.new(true), Message::Drain.new(false), Message::Stop.new, Message::Reopen.new,
                  Message::Serves.new([["http://127.0.0.1:0", nil], ["unix:/a", 7]]), Message::Notify.new("READY=1\nSTATUS=a"),
                  Message::Renew.new, Message::Leave.new, Message::Dismiss.new, Message::Show.new, Message::Shown.new([])]

      messages.each { |message| assert @one.tell(message) }
      assert_equal [messages, false], @other.receive
    end

    def test_copies_of_descriptors_come_along
      reader, writer = IO.pipe
      @one.tell(Message::Serves.new([]), [reader, writer])
      assert_equal [[Message::Serves.new([])], false], @other.receive
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
      @one.tell(Message::Ready.new)
      @one.close

      assert_equal [[Message::Ready.new], true], @other.receive
      refute @other.tell(Message::Stop.new), "nobody is there"
    end

    def test_a_message_in_pieces_is_put_together
      line = Message.dump(Message::Failed.new("text"))
      @one.io.write(line[0, 5])
      assert_equal [[], false], @other.receive
      @one.io.write(line[5..])
      assert_equal [[Message::Failed.new("text")], false], @other.receive
    end

    def test_what_is_no_message_is_an_error
      ["nonsense\n", "[\"unknown\",{}]\n", "[\"drain\",{\"what\":1}]\n"].each do |line|
        assert_raises(Error) { Message.parse(line) }
      end
    end
  end
end
