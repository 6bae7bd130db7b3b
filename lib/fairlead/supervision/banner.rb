# frozen_string_literal: true

require "rbconfig"

module Fairlead
  # The server's lines at its start: one at once, four once it serves, and one for each limit, with what lifts it.
  class Banner
    INSTALL = "Install libnghttp2 with its headers (Debian: apt-get install libnghttp2-dev; Alpine: apk add nghttp2-dev; Fedora: dnf " \
              "install libnghttp2-devel; macOS: brew install libnghttp2), then run `gem pristine fairlead`."
    private_constant :INSTALL

    # @param pid [Integer] by which the server is known.
    # @param http2 [Boolean] whether the core speaks HTTP/2.
    def initialize(configuration, io: $stdout, pid: Process.pid, http2: TLS::HTTP2)
      @configuration = configuration
      @io = io
      @pid = pid
      @http2 = http2
    end

    def opening = "Fairlead #{VERSION} on #{RUBY_ENGINE} #{RUBY_VERSION}"

    # @param metrics [Array<String>] the addresses of the observer.
    def lines(addresses, metrics = [])
      [
        "  addresses  #{addresses.join("  ")}",
        "  workers    #{processes}#{compiled}, up to #{@configuration.in_flight} requests at once in each",
        *database,
        *("  metrics    #{metrics.map { |address| "#{address}/metrics" }.join("  ")}" if metrics.any?),
        "  app        #{@configuration.rackup} in #{Dir.pwd}, #{@configuration.environment}#{file}",
        "  process    #{@pid}: #{control}",
        *stacks, *relief, *missing(addresses), *puma
      ]
    end

    def open = print(opening)

    def serving(...) = print(*lines(...))

    private

    # What bounds the requests in the database. Known if the app was loaded here.
    def database = ActiveRecord::Limits.summary(@configuration).map { |line| "  database   #{line}" }

    # Known once the app is loaded (see AppLoader.enable_yjit).
    def compiled = (" with YJIT" if defined?(RubyVM::YJIT) && RubyVM::YJIT.enabled?)

    def processes
      case @configuration.workers
      when 0 then "none: this process serves"
      when 1 then "1 process"
      else "#{@configuration.workers} processes"
      end
    end

    def stacks
      return unless FiberStacks.small?

      "  depth      less than a thread's: deep recursion raises SystemStackError earlier. Set RUBY_FIBER_VM_STACK_SIZE to " \
        "#{RubyVM::DEFAULT_PARAMS[:thread_vm_stack_size]}."
    end

    # Why there is no relief beside requests that hold Ruby's lock.
    def relief
      case @configuration.workers
      when 0 then nil
      when 1
        "  relief     none: while a call holds Ruby's lock, the only worker serves nothing else. Set workers to 2 or more."
      else
        "  relief     none: without preload, no worker can start in time when all are stuck. Set preload to true." unless
          @configuration.preload
      end
    end

    # Browsers use HTTP/2 over TLS only.
    def missing(addresses)
      return if @http2 || addresses.none? { |address| address.start_with?("https:") }

      "  HTTP/2     none: Fairlead was built without libnghttp2. #{INSTALL}"
    end

    # What an app's configuration of Puma does beyond this server's own.
    def puma
      Configuration::PumaFile.all(@configuration).flat_map do |file|
        file.losses.map { |loss| "  puma       #{file.path}:#{loss.lines.join(", ")}: #{loss.what} has no effect. #{loss.remedy}" }
      end
    end

    def file = @configuration.file ? ", set by #{@configuration.file}" : ""

    def control
      stop = "Ctrl-C or TERM finishes running requests and stops"
      @configuration.workers.zero? ? stop : "#{stop}, HUP restarts the workers, USR2 starts new code"
    end

    def print(*lines)
      # Ruby flushes its buffers before each fork, and could not fork if the disk is full.
      @io.sync = true
      @io.write(lines.join("\n") << "\n")
      @io.flush
    rescue IOError, SystemCallError
      nil
    end
  end
end
