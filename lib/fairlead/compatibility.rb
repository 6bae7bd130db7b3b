# frozen_string_literal: true

module Fairlead
  # Every place where Fairlead relies on internals of another library: methods that it replaces or calls, and instance variables
  # that it reads. A row is checked when its part is installed. A part that does not fit is left out, and the log says what is lost.
  # Where requests could get each other's state, the server refuses to start instead.
  module Compatibility
    # @!attribute gem [String] the library's gem
    # @!attribute tested [Gem::Requirement] the versions with which it has been tested
    # @!attribute methods [Hash{String => Array<Symbol>}] class or module => its methods; "Name." stands for its singleton
    # @!attribute variables [Hash{String => Array<Symbol>}] class => instance variables that its methods use
    # @!attribute lost [String] what is missing without it, as a sentence
    # @!attribute untested [Symbol] what happens with a later version whose methods fit: :install or :leave_out
    # @!attribute vital [Boolean] whether the server refuses to start without it
    Row = Struct.new(:gem, :tested, :methods, :variables, :lost, :untested, :vital, keyword_init: true) do
      # @return [Gem::Version, nil]
      def version
        case gem
        when "net-http" then return ::Gem::Version.new(::Net::HTTP::VERSION) if defined?(::Net::HTTP)
        when "activerecord" then return ::ActiveRecord.gem_version if defined?(::ActiveRecord.gem_version)
        end
        ::Gem.loaded_specs[gem]&.version
      end

      # @return [String] the tested versions.
      def known = tested.as_list.sort.reverse.join(", ").delete_suffix(".a")

      # @return [Boolean, nil] nil: the library is not there.
      def tested? = (tested.satisfied_by?(version) if version)

      # @return [Boolean] whether the library is of a later version than those.
      def newer? = tested? == false && version > tested.requirements.map(&:last).min

      # @return [String, nil] why it does not fit.
      def misfit
        return "#{gem} #{version} is #{newer? ? "newer" : "older"} than what was tested" if untested == :leave_out && tested? == false

        absent = absent_methods + absent_variables
        "#{gem} #{version} has no #{absent.join(", ")}" if absent.any?
      end

      private

      def absent_methods
        methods.flat_map do |name, wanted|
          type = Compatibility.resolve(name) or next [name]
          wanted.reject { |method| type.method_defined?(method) || type.private_method_defined?(method) }
                .map { |method| name.end_with?(".") ? "#{name}#{method}" : "#{name}##{method}" }
        end
      end

      # Variables that the source of the class does not mention.
      def absent_variables
        variables.flat_map do |name, wanted|
          type = Compatibility.resolve(name) or next [name]
          source = Compatibility.source(type)
          wanted.reject { |variable| source.match?(/#{variable}\b/) }.map { |variable| "#{variable} in #{name}" }
        end
      end
    end

    def self.row(gem, *tested, methods:, lost:, variables: {}, untested: :install, vital: false)
      Row.new(gem:, tested: ::Gem::Requirement.new(tested), methods:, variables:, lost:, untested:, vital:)
    end
    private_class_method :row

    POOL = "ActiveRecord::ConnectionAdapters::ConnectionPool"
    ADAPTER = "ActiveRecord::ConnectionAdapters::AbstractAdapter"
    private_constant :POOL, :ADAPTER

    # {Isolation} tries isolated state instead of looking at methods.
    TABLE = {
      async: row(
        "async", "~> 2.46",
        methods: {
          "Async::Scheduler" => %i[
            run_once! interrupted? load cancel block unblock kernel_sleep process_fork scheduler_close address_resolve with_timeout
            timeout_after fiber_interrupt push raise
          ],
          "Async::Task" => %i[schedule failed! cancelled! run running? cancel consume tail= parent children children? fiber],
          "IO::Event::Timers" => %i[wait_interval fire after]
        },
        variables: { "Async::Scheduler" => %i[@timers @blocked @selector] },
        lost: "Requests cannot run in fibers.", vital: true
      ),
      selector: row(
        "io-event", "~> 1.22",
        methods: { "IO::Event::Selector::Fairlead" => %i[io_wait process_wait select transfer push ready? wakeup] },
        lost: "Requests cannot run in fibers.", vital: true
      ),
      pool: row(
        "activerecord", ">= 8.1", "< 8.2.a",
        methods: {
          POOL => %i[
            acquire_connection bulk_make_new_connections remove_connection_from_thread_cache connections num_waiting_in_queue stat
            prepopulate retire_old_connections preconnect keep_alive try_to_queue_for_background_connection
          ],
          "#{POOL}::ConnectionLeasingQueue" => %i[add add_back wait_poll remove any? num_waiting with_a_bias_for poll delete],
          ADAPTER => %i[disconnect! reconnect clean! lease in_use? steal! expire connected? clear_cache! begin_db_transaction],
          "Monitor" => %i[wait_for_cond]
        },
        variables: {
          POOL => %i[
            @available @now_connecting @max_connections @maintaining @threads_blocking_new_connections @pinned_connection
          ],
          "#{POOL}::Queue" => %i[@lock @queue @num_waiting],
          ADAPTER => %i[@raw_connection @lock @config]
        },
        lost: "ActiveRecord keeps its own pools: no database_connections, no waiting in order, and no figures of how " \
              "long requests wait for a connection.",
        untested: :leave_out
      ),
      own_queue: row(
        "activerecord", ">= 7.1", "< 8.1.a",
        methods: { "#{POOL}::Queue" => %i[wait_poll any?] }, variables: { "#{POOL}::Queue" => %i[@cond] },
        lost: "An interrupted request that waits for a database connection may leave the next one waiting."
      ),
      connections: row(
        "activerecord", ">= 7.1", "< 8.2.a",
        methods: {
          POOL => %i[
            checkout checkin release_connection active_connection? remove reap disconnect clear_reloadable_connections discard! discarded?
            flush synchronize mon_synchronize checkout_and_verify try_to_checkout_new_connection
          ],
          ADAPTER => %i[
            lock_thread= current_transaction disconnect! owner pool throw_away! reconnect! reset_transaction transaction with_raw_connection
            materialize_transactions
          ],
          "Monitor" => %i[enter try_enter exit],
          "ActiveRecord::ConnectionAdapters::RealTransaction" => %i[materialized? incomplete!]
        },
        variables: {
          POOL => %i[@connections @checkout_timeout],
          ADAPTER => %i[@raw_connection @lock],
          "ActiveRecord::ConnectionAdapters::DatabaseStatements" => %i[@transaction_manager],
          "ActiveRecord::ConnectionAdapters::TransactionManager" => %i[@stack @has_unmaterialized_transactions],
          "ActiveRecord::ConnectionAdapters::RealTransaction" => %i[@materialized]
        },
        lost: "An interrupted request could leave its transaction to the next one.", vital: true
      ),
      live: row(
        "actionpack", ">= 7.1",
        methods: {
          "ActionController::Live" => %i[process new_controller_thread log_error],
          "ActiveSupport::IsolatedExecutionState." => %i[share_with]
        },
        lost: "Each stream of ActionController::Live takes a thread."
      ),
      share_lock: row(
        "activesupport", ">= 7.1",
        methods: { "ActiveSupport::Concurrency::ShareLock" => %i[start_exclusive stop_exclusive start_sharing] },
        lost: "Code may be reloaded while a request runs in it.", vital: true
      ),
      pg: row(
        "pg", "~> 1.5",
        methods: {
          "PG::Connection" => %i[
            exec exec_params exec_prepared get_result get_last_result discard_results block transaction copy_data put_copy_data
            get_copy_data connect_poll reset_poll cancel transaction_status socket_io async_connect_or_reset
          ],
          "PG::Result" => %i[values each each_row stream_each stream_each_row stream_each_tuple]
        },
        lost: "An interrupted query could leave its transaction to the next request.", vital: true
      ),
      mysql2: row(
        "mysql2", "~> 0.5",
        methods: {
          "Mysql2::Client" => %i[
            query async_result store_result prepare ping close connect socket thread_id select_db set_server_option
          ],
          "Mysql2::Statement" => %i[execute close], "Mysql2::Result" => %i[each]
        },
        variables: { "Mysql2::Client" => %i[@query_options @read_timeout] },
        lost: "An interrupted query could leave its answer to the next request.", vital: true
      ),
      trilogy: row(
        "trilogy", "~> 2.9",
        methods: { "Trilogy" => %i[query next_result close discard! connection_options _connect server_status] },
        lost: "Abandoned queries continue on the server."
      ),
      sqlite3: row(
        "sqlite3", ">= 1.7", "< 3",
        methods: { "SQLite3::Database" => %i[busy_handler close exec_batch], "SQLite3::Statement" => %i[initialize step] },
        lost: "A request that is interrupted while it waits for SQLite's lock may leave it locked (before sqlite3 2.10.2)."
      ),
      sequel: row(
        "sequel", "~> 5.80",
        methods: {
          "Sequel." => %i[current synchronize extension], "Sequel::Database." => %i[after_initialize],
          "Sequel::Database" => %i[pool disconnect_connection]
        },
        variables: { "Sequel::Database" => %i[@transactions] },
        lost: "Requests could use each other's connections and transactions.", vital: true
      ),
      graphql: row(
        "graphql", "~> 2.0", methods: { "GraphQL::Dataloader" => %i[run append_job cleanup_fiber] },
        lost: "Fibers of GraphQL::Dataloader block their thread while they wait."
      ),
      excon: row(
        "excon", ">= 0.60",
        methods: { "Excon::Connection" => %i[request sockets] }, variables: { "Excon::Connection" => %i[@_excon_sockets] },
        lost: "Requests that share a persistent connection of Excon read each other's answers."
      ),
      net_http: row(
        "net-http", ">= 0.4", methods: { "Net::HTTP" => %i[transport_request] }, variables: { "Net::HTTP" => %i[@socket] },
        lost: "Requests that use Stripe open connections of their own."
      ),
      stripe: row("stripe", ">= 5", methods: {}, lost: "Requests that use it open connections of their own."),
      debug: row(
        "debug", ">= 1.7", methods: { "DEBUGGER__::Session" => %i[leave_subsession in_subsession?] },
        lost: "Requests that wait for a debugger's prompt may be reported as stalls."
      ),
      rackup: row(
        "rackup", ">= 1.0", "< 3", methods: { "Rackup::Handler." => %i[default get], "Rackup::Server" => %i[app options at_exit] },
        lost: "`rackup` and `bin/rails server` start Fairlead with `-s fairlead` or `-u fairlead` only."
      ),
      fast_mcp: row(
        "fast-mcp", ">= 1.5", "< 2",
        methods: { "FastMcp::Transports::RackTransport" => %i[call path_prefix messages_route setup_sse_connection] },
        lost: "Set workers to 1: a client's messages may reach a worker that does not have its event stream."
      ),
      tus_server: row(
        "tus-server", ">= 2.0", "< 3",
        methods: { "Tus::Input" => %i[read] },
        lost: "Set stream_request_bodies to false: an upload that breaks off is corrupt once it is resumed."
      ),
      nokogiri: row(
        "nokogiri", "~> 1.19",
        methods: {
          "Nokogiri::XML::Document." => %i[read_io], "Nokogiri::HTML4::Document." => %i[read_io], "Nokogiri::XML::Reader." => %i[from_io],
          "Nokogiri::XML::XPathContext" => %i[evaluate]
        },
        lost: "A request that waits while Nokogiri parses its input breaks other requests' parsing, or the worker."
      ),
      mini_racer: row(
        "mini_racer", "~> 0.22",
        methods: { "MiniRacer::Context" => %i[eval call eval_await call_await dispose], "MiniRacer::Snapshot" => %i[warmup!] },
        lost: "With V8's flag single_threaded a request that uses JavaScript ends its worker with all other requests."
      ),
      opentelemetry_context: row(
        "opentelemetry-api", ">= 1.5", "< 2",
        methods: { "OpenTelemetry::Context." => %i[attach detach clear stack],
                   "Fiber" => %i[opentelemetry_context opentelemetry_context=] },
        lost: "Spans of tasks, fibers and offloaded blocks do not have their request's span as parent."
      ),
      opentelemetry_spans: row(
        "opentelemetry-sdk", ">= 1.5", "< 2",
        methods: { "OpenTelemetry::SDK::Trace::Tracer" => %i[start_span],
                   "OpenTelemetry::SDK::Trace::Span" => %i[finish kind recording? add_event] },
        lost: "The span of a request begins when the app is called, and has neither queue time nor stalls."
      ),
      rack_timeout: row(
        "rack-timeout", ">= 0.6",
        methods: { "Rack::Timeout::Scheduler" => %i[run_in], "Rack::Timeout::Scheduler::Timeout" => %i[timeout] },
        variables: { "Rack::Timeout::Scheduler::Timeout" => %i[@scheduler @on_timeout] },
        lost: "rack-timeout would raise in whatever request runs in its thread.", vital: true
      )
    }.freeze

    class << self
      # Call it where the part is installed, once its library is loaded.
      #
      # @param name [Symbol] of a row
      # @return [Boolean] whether to install it. If not, the log says so.
      # @raise [ConfigurationError] if the server cannot do without it.
      def fits?(name) = holds?(name) { TABLE.fetch(name).misfit }

      # Call it where the part has been installed, if names do not prove that it works.
      #
      # @param name [Symbol] of a row
      # @yieldreturn [Boolean] whether it does what it is for
      # @return [Boolean] likewise. If not, the log says so.
      # @raise [ConfigurationError] if the server cannot do without it.
      def works?(name)
        holds?([name]) do
          row = TABLE.fetch(name)
          "#{row.gem} #{row.version} does not work like the versions that were tested" unless yield
        rescue ::StandardError => error
          "#{row.gem} #{row.version} does not work like the versions that were tested (#{error.class}: #{error.message})"
        end
      end

      # @param name [Symbol] of a row
      # @return [Boolean, nil] whether Fairlead has been tested with this version of the library; nil without the library.
      def tested?(name) = TABLE.fetch(name).tested?

      # @return [Class] the selector of io-event that Fairlead extends.
      def selector = ::IO::Event::Selector.const_defined?(:EPoll) ? ::IO::Event::Selector::EPoll : ::IO::Event::Selector.default

      def resolve(name)
        return selector if name == "IO::Event::Selector::Fairlead"

        type = name.delete_suffix(".").split("::").reduce(::Object) do |outer, part|
          return unless outer.const_defined?(part)

          outer.const_get(part)
        end
        name.end_with?(".") ? type.singleton_class : type
      end

      # @return [String] the source files of the library that define the methods of a class.
      def source(type)
        names = type.instance_methods(false) + type.private_instance_methods(false)
        files = names.filter_map { |name| type.instance_method(name).source_location&.first }.uniq
        files.reject { |file| file.start_with?(__dir__) || !::File.file?(file) }.map { |file| ::File.read(file) }.join
      end

      private

      # @yieldreturn [String, nil] why not. Called once for each name.
      def holds?(name)
        row = TABLE.fetch([*name].first)
        @misfits ||= {}
        misfit = @misfits.fetch(name) { @misfits[name] = yield.tap { |found| complain(row, found) if found && !row.vital } }
        return true unless misfit
        return false unless row.vital

        raise ConfigurationError, "#{misfit}, on which Fairlead #{VERSION} relies. #{row.lost} Use a tested version of #{row.gem} " \
          "(#{row.known}), or update Fairlead."
      end

      def complain(row, misfit) = Log.say("#{misfit}, on which Fairlead relies. #{row.lost} (Tested: #{row.gem} #{row.known}.)")
    end
  end
end
