# frozen_string_literal: true

require_relative "../parts"

module Fairlead
  # A time in which a reactor did not come back: what it was at work on, why it stayed away, and what was done about it.
  # Made of plain values, so that a worker can send it to the supervisor.
  #
  # @!attribute id [String] the same for what is told of it while it lasts and when it is over.
  # @!attribute pid [Integer] of the worker.
  # @!attribute time [Float] when it began, in seconds since 1970.
  # @!attribute seconds [Float] for how long.
  # @!attribute lasting [Boolean] whether it still went on when this was told.
  # @!attribute kind [String] "blocked": in C, without Ruby's lock (the GVL); "stuck": asleep with it; "computing".
  # @!attribute method [String, nil] of the request; nil: it is not known, or there was none.
  # @!attribute path [String, nil]
  # @!attribute request_id [String, nil]
  # @!attribute route [String, nil] method and path, with a pattern in place of what differs: "GET /orders/:id".
  # @!attribute action [String, nil] "orders#show"
  # @!attribute thread [String, nil] the name of the thread, if it was none that serves.
  # @!attribute backtrace [Array<String>] of the fiber that stalled, taken meanwhile; empty if it ended before.
  # @!attribute at [String, nil] the frame to blame: "app/models/report.rb:12 in `render'".
  # @!attribute gem [String, nil] the gem that it belongs to: "mysql2 0.5.6"; nil: the app itself.
  # @!attribute standby [Boolean] whether a standby reactor took over.
  # @!attribute handed [Integer] how many requests were given to other workers,
  # @!attribute receiver [Integer, nil] the last of them to this process.
  # @!attribute lane [String, nil] where requests of its route run from now on: "threads" of the worker that do nothing
  #   else, or a "process".
  # @!attribute relief [Boolean] whether a relief worker was asked for.
  class Stall < Data.define(
    :id, :pid, :time, :seconds, :lasting, :kind, :method, :path, :request_id, :route, :action, :thread, :backtrace,
    :at, :gem, :standby, :handed, :receiver, :relief, :lane
  )
    autoload :Advice, "fairlead/stalls/advice"
    autoload :Blame, "fairlead/stalls/culprit"
    autoload :Board, "fairlead/stalls/aggregator"
    autoload :Snapshot, "fairlead/stalls/snapshot"
    autoload :Command, "fairlead/cli/stalls"
    autoload :Desk, "fairlead/control/control_server"
    autoload :Notice, "fairlead/stalls/notification"
    autoload :Prompt, "fairlead/stalls/prompt"
    autoload :Table, "fairlead/cli/stalls_table"
    autoload :Teller, "fairlead/stalls/reporter"

    # @return [Boolean] whether Ruby's lock was held.
    def gvl_held? = kind != "blocked"

    # @return [String] all of it but the backtrace, in one line.
    def to_s
      "#{subject} #{lasting ? "has stalled for #{duration} and goes on" : "stalled for #{duration}"}: #{cause}" \
        "#{" at #{at}" if at}#{" (gem #{gem})" if gem}. #{reaction} #{advice}"
    end

    # @return [String] "0.512 s"
    def duration = format("%.3f s", seconds)

    # @return [String] why it stayed away.
    def cause
      case kind
      when "blocked" then "blocked in C, without Ruby's lock,"
      when "stuck" then "asleep with Ruby's lock held,"
      else "computing"
      end.then { |words| at ? words : words.chomp(",") }
    end

    # @return [String] what was done for the others.
    def reaction
      done = []
      done << "a standby took over" if standby
      done << "#{handed} #{handed == 1 ? "request" : "requests"} went to process #{receiver}" if handed.positive?
      done << "a relief worker was asked for" if relief
      done << "its route has got a lane" if lane
      done.empty? ? "Nothing else waited." : "#{done.join(", ").then { |text| text[0].upcase + text[1..] }}."
    end

    # @return [String] what to do about it.
    def advice = Advice.for(self)

    # @return [Stall] as a message can carry it: an enormous backtrace, or path, is cut.
    def brief
      with(path: path && path[0, 500], route: route && route[0, 500],
           backtrace: backtrace.first(30).map { |line| line[0, 200] })
    end

    # @return [Hash] for instrumentation.
    def payload = to_h.merge(gvl_held: gvl_held?, reaction:, advice:)

    private

    def subject
      return "The thread #{thread}" if thread
      return backtrace.empty? ? "What could not be looked at in time" : "Something outside of a request" unless method

      pattern = route unless route == "#{method} #{path}"
      names = [action || pattern, ("request #{request_id}" if request_id)].compact
      "#{method} #{path}#{" (#{names.join(", ")})" if names.any?}"
    end
  end
end
