# frozen_string_literal: true

module Fairlead
  # The end of a worker by a signal, and what was in flight: methods and paths, without queries, headers or anything else of a client's.
  #
  # @!attribute time [Float] in seconds since 1970.
  # @!attribute worker [String] "Worker 0 (process 4711)"
  # @!attribute signal [String] "SIGSEGV"
  # @!attribute requests [Array<Hash>] `{ method:, path:, age: }`; first the one whose fiber ran last.
  class Crash < Data.define(:time, :worker, :signal, :requests)
    # Signals that a program brings upon itself.
    FAULTS = %w[SIGSEGV SIGBUS SIGILL SIGABRT SIGFPE SIGTRAP SIGSYS].freeze
    # Requests that are listed.
    MOST = 20
    private_constant :MOST

    # @param requests [Array<Hash>] see SharedPage#requests.
    def self.of(worker, status, requests)
      listed = requests.sort_by { |request| request[:switched] }.map { |request| request.slice(:method, :path, :age) }
      new(time: Time.now.to_f, worker: "Worker #{worker.index} (process #{worker.pid})", signal: "SIG#{Signal.signame(status.termsig)}",
          requests: listed)
    end

    # @return [Boolean] whether the worker itself was at fault.
    def fault? = FAULTS.include?(signal)

    # @return [String] what may have sent the signal, and what was in flight, a line for each request.
    def details
      [*hint, *summary, *lines].join("\n")
    end

    # @return [String] for `fairlead report`
    def to_s = "#{Time.at(time).utc.strftime("%F %T UTC")}: #{worker} was ended by #{signal}.\n#{details}\n"

    private

    def hint
      return "Fairlead did not send it: the kernel does when memory runs out (see `dmesg`)." if signal == "SIGKILL"

      "Above is what Ruby or the C library says of it." if fault?
    end

    def summary
      return "No request was in flight." if requests.empty?

      "#{Humanize.plural(requests.size, "request")} #{requests.size == 1 ? "was" : "were"} in flight, first the one that ran last:"
    end

    def lines
      shown = requests.first(MOST).map do |request|
        "  #{request[:method]} #{request[:path]}, in flight for #{format("%.3f", request[:age])} s"
      end
      shown << "  and #{requests.size - MOST} more, in flight" if requests.size > MOST
      shown
    end
  end
end
