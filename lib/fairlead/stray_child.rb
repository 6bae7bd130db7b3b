# frozen_string_literal: true

module Fairlead
  # The child of a fork that was made within a request, or within an offloaded block, and came back from there: it was
  # never meant to serve.
  module StrayChild
    # Ends the process, as if the app had ended it.
    #
    # @param error [Exception, nil] what was raised in it.
    def self.leave(error)
      [$stdout, $stderr].each(&:flush)
      $stderr.puts(error.full_message(highlight: false)) if error && !error.is_a?(SystemExit)
      Process.exit!(error.is_a?(SystemExit) ? error.status : error.nil?)
    end
  end
end
