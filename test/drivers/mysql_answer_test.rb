# frozen_string_literal: true

require "socket"
require_relative "../helper"

module Fairlead
  # How many whole results of MySQL lie in a socket.
  class MysqlAnswerTest < Test
    OK = "\x00\x00\x00\x02\x00\x00\x00".b
    ENDS = "\xfe\x00\x00\x02\x00".b
    ERROR = "\xff\x25\x04#42000You have an error".b
    COLUMN = "\x03def\x00\x00\x00\x011\x00\x0c\x3f\x00\x01\x00\x00\x00\x03\x81\x00\x00\x00\x00".b
    ROWS = ["\x01".b, COLUMN, ENDS, "\x011".b, "\x012".b, ENDS].freeze

    def test_what_has_no_rows_is_one_result
      assert_equal 1, results(OK)
      assert_equal 1, results(ERROR)
    end

    def test_rows_are_one_result_once_all_have_come
      assert_equal 1, results(*ROWS)
      (1...ROWS.size).each { |packets| assert_nil results(*ROWS.first(packets)), packets }
    end

    def test_results_one_after_the_other_are_counted
      assert_equal 4, results(*ROWS, OK, *ROWS, ERROR)
    end

    def test_an_error_ends_rows
      assert_equal 1, results(*ROWS.first(4), ERROR)
    end

    def test_a_long_row_that_begins_as_an_end_does_is_a_row
      assert_equal 1, results(*ROWS.first(3), "\xfe#{"x" * 40}".b, *ROWS.last(2))
    end

    def test_of_a_part_of_a_packet_nothing_is_known
      bytes = packets(ROWS)
      (0...bytes.bytesize).each { |size| assert_nil count(bytes.byteslice(0, size)), size }
    end

    def test_what_is_longer_than_the_driver_reads_at_once_may_have_to_be_waited_for
      long = ->(size) { [*ROWS.first(3), "x".b * size, ENDS] }
      most = 16_384 - packets(long.call(0)).bytesize

      assert_equal 1, results(*long.call(most - 1))
      assert_nil results(*long.call(most))
    end

    def test_a_file_that_is_asked_for_has_to_be_sent
      assert_nil results("\xfb/tmp/file".b)
    end

    def test_nothing_is_taken
      ours, theirs = UNIXSocket.pair
      theirs.write(packets(ROWS))
      2.times { assert_equal 1, MysqlAnswer.results(ours.fileno) }
      theirs.close
      ours.read

      assert_nil MysqlAnswer.results(ours.fileno)
    ensure
      [ours, theirs].each(&:close)
    end

    def test_a_socket_that_is_none_is_the_drivers_business
      assert_nil MysqlAnswer.results(-1)
    end

    private

    def results(*payloads) = count(packets(payloads))

    def packets(payloads)
      payloads.each_with_index.map { |payload, number| [payload.bytesize | (number << 24)].pack("V") + payload }.join
    end

    def count(bytes)
      ours, theirs = UNIXSocket.pair
      theirs.write(bytes)
      MysqlAnswer.results(ours.fileno)
    ensure
      [ours, theirs].each(&:close)
    end
  end
end
