# frozen_string_literal: true

require_relative "../parts"

module Fairlead
  # A time in which a request kept its reactor from coming back: which request, why, and what Fairlead did about it. It consists of plain
  # values, so that a worker can send it to the supervisor.
  #
  # @!attribute id [String] the same in the reports while it lasts and after its end.
  # @!attribute pid [Integer] of the worker.
  # @!attribute time [Float] when it began, in seconds since 1970.
  # @!attribute seconds [Float] for how long.
  # @!attribute lasting [Boolean] whether it still went on at the time of the report.
  # @!attribute kind [String] "blocked": in C, without Ruby's lock (the GVL); "stuck": asleep with it; "computing".
  # @!attribute method [String, nil] of the request; nil: unknown, or no request.
  # @!attribute path [String, nil]
  # @!attribute request_id [String, nil]
  # @!attribute route [String, nil] method and path, with a pattern in place of what differs: "GET /orders/:id".
  # @!attribute action [String, nil] "orders#show"
  # @!attribute thread [String, nil] the name of the thread, unless it serves requests.
  # @!attribute backtrace [Array<String>] of the stalled fiber; empty if the stall ended too soon.
  # @!attribute at [String, nil] the frame that caused it: "app/models/report.rb:12 in `render'".
  # @!attribute gem [String, nil] the gem of that frame: "mysql2 0.5.6"; nil: the app itself.
  # @!attribute standby [Boolean] whether a standby reactor took over.
  # @!attribute handed [Integer] how many requests went to other workers.
  # @!attribute receiver [Integer, nil] the process that got the last of them.
  # @!attribute lane [String, nil] where requests of its route run from now on: in "threads" of their own, or in a "process".
  # @!attribute relief [Boolean] whether a relief worker was asked for.
  class Stall < Data.define(
    :id, :pid, :time, :seconds, :lasting, :kind, :method, :path, :request_id, :route, :action, :thread, :backtrace,
    :at, :gem, :standby, :handed, :receiver, :relief, :lane
  )
    autoload :Advice, "fairlead/stalls/advice"
    autoload :Aggregator, "fairlead/stalls/aggregator"
    autoload :Culprit, "fairlead/stalls/culprit"
    autoload :Notification, "fairlead/stalls/notification"
    autoload :Prompt, "fairlead/stalls/prompt"
    autoload :Reporter, "fairlead/stalls/reporter"
    autoload :Snapshot, "fairlead/stalls/snapshot"

    # @return [Boolean] whether Ruby's lock was held.
    def gvl_held? = kind != "blocked"

    # @return [String] one line, without the backtrace.
    def to_s
      "#{subject} #{lasting ? "has stalled for #{duration} so far" : "stalled for #{duration}"}: #{cause}" \
        "#{" at #{at}" if at}#{" (gem #{gem})" if gem}. #{reaction} #{advice}"
    end

    # @return [String] "0.512 s"
    def duration = format("%.3f s", seconds)

    # @return [String] why the reactor stayed away.
    def cause
      case kind
      when "blocked" then "blocked in C, without Ruby's lock,"
      when "stuck" then "asleep with Ruby's lock held,"
      else "computing"
      end.then { |words| at ? words : words.chomp(",") }
    end

    # @return [Boolean] whether Fairlead had to do something for other requests.
    def delayed_others? = standby || handed.positive? || relief || !lane.nil?

    # @return [String] what Fairlead did for other requests.
    def reaction
      done = []
      done << "a standby took over" if standby
      done << "#{handed} #{handed == 1 ? "request" : "requests"} went to process #{receiver}" if handed.positive?
      done << "the worker asked for a relief worker" if relief
      done << "its route got a lane" if lane
      done.empty? ? "Nothing else waited." : "#{done.join(", ").then { |text| text[0].upcase + text[1..] }}."
    end

    # @return [String] what to do about it.
    def advice = Advice.for(self)

    # @return [Stall] with a path and a backtrace that fit into a message.
    def brief
      with(path: path && path[0, 500], route: route && route[0, 500],
           backtrace: backtrace.first(30).map { |line| line[0, 200] })
    end

    # @return [Hash] for instrumentation.
    def payload = to_h.merge(gvl_held: gvl_held?, reaction:, advice:)

    private

    def subject
      return "The thread #{thread}" if thread
      return backtrace.empty? ? "Something that ended too soon to be seen" : "Something outside of a request" unless method

      pattern = route unless route == "#{method} #{path}"
      names = [action || pattern, ("request #{request_id}" if request_id)].compact
      "#{method} #{path}#{" (#{names.join(", ")})" if names.any?}"
    end
  end
end
