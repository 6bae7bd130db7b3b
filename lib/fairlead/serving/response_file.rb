# frozen_string_literal: true

module Fairlead
  # The file behind a response's body: the core sends it without a fiber, where Rack would read it in pieces.
  module ResponseFile
    class << self
      # Opens the file that `to_path` names. By the Rack specification its contents are identical to what `each` yields.
      #
      # @param body [Object] of the app's response
      # @return [File, nil] to be closed by the caller; nil: the parts have to be written.
      def open(body)
        return unless body.respond_to?(:to_path) && unread?(body)
        return body.dup if body.is_a?(File) # the path may have another file by now

        path = body.to_path
        File.open(path, File::RDONLY | File::NONBLOCK | File::BINARY) if path.is_a?(String) && File.file?(path)
      rescue SystemCallError, IOError, ArgumentError
        nil # `each` says so to the app
      end

      private

      # `each` of a File or a Tempfile yields only the bytes behind its position, and converts them to its encoding.
      def unread?(body)
        return true unless body.respond_to?(:pos)

        body.pos.zero? && body.internal_encoding.nil?
      end
    end
  end
end
