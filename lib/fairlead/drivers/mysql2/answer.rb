# frozen_string_literal: true

module Fairlead
  module Drivers
    module Mysql2
      # What a server has answered, as far as it lies in the socket: looked at without taking it.
      # https://mariadb.com/kb/en/result-set-packets/
      module Answer
        # The client library reads so much at once: what is longer it may have to wait for.
        PEEK = 16_384
        # Most answers are not longer than this.
        SHORT = 512
        HEAD = 4
        OK = 0x00
        EOF = 0xfe
        ERR = 0xff
        INFILE = 0xfb
        # A packet that begins like an EOF and is not shorter is a row.
        LONGEST_EOF = 8
        private_constant :SHORT, :HEAD, :OK, :EOF, :ERR, :INFILE, :LONGEST_EOF

        class << self
          # @param socket [BasicSocket] readable
          # @return [Integer, nil] how many results have come, if all that has come are whole results; nil also where
          #   that cannot be known, as with TLS.
          def results(socket)
            bytes = socket.recv_nonblock(SHORT, Socket::MSG_PEEK, exception: false)
            bytes = socket.recv_nonblock(PEEK, Socket::MSG_PEEK, exception: false) if bytes.is_a?(String) && bytes.bytesize == SHORT
            count(bytes) if bytes.is_a?(String) && bytes.bytesize.between?(HEAD + 1, PEEK - 1)
          rescue SystemCallError
            nil # the driver says what is wrong
          end

          # @return [Integer, nil]
          def count(bytes)
            results = position = 0
            ends = nil # how many EOF packets the present result still has: after its columns, and after its rows
            while position < bytes.bytesize
              length, first = head(bytes, position)
              return unless first

              if first == ERR then ends = nil
              elsif ends then ends -= 1 if first == EOF && length <= LONGEST_EOF
              elsif first == INFILE then return
              else ends = first == OK ? 0 : 2
              end
              ends = nil if ends&.zero?
              results += 1 unless ends
              position += HEAD + length
            end
            results if ends.nil? && position == bytes.bytesize
          end

          private

          def head(bytes, position)
            length = bytes.getbyte(position)
            middle, high = bytes.getbyte(position + 1), bytes.getbyte(position + 2)
            [length | (middle << 8) | (high << 16), bytes.getbyte(position + HEAD)] if high
          end
        end
      end
    end
  end
end
