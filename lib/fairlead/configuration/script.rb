# frozen_string_literal: true

module Fairlead
  class Configuration
    # Runs a configuration file: Ruby in which every option is a method. Errors name the file and the line.
    class Script
      # Puma's options that Fairlead lacks, and what to write instead.
      ELSEWHERE = {
        threads: "There is nothing to tune: each request runs in its own fiber. Remove the line; `in_flight` limits how " \
                 "many run at once.",
        preload_app!: "Write `preload true`, which is the default.",
        worker_timeout: "Write `stuck_timeout` instead: it replaces a worker that a request blocks.",
        worker_boot_timeout: "Write `boot_timeout` instead.",
        worker_shutdown_timeout: "Write `drain_timeout` instead.",
        force_shutdown_after: "Write `drain_timeout` instead.",
        stdout_redirect: "Write `log \"log/fairlead.log\"` instead.",
        log_requests: "Write `access_log \"common\"` or `access_log \"json\"` instead.",
        state_path: "Remove the line: there is no state file.",
        plugin: "There are no plugins. For `plugin :solid_queue` write `solid_queue \"fork\"`. Remove `plugin :tmp_restart`, which " \
                "is built in, and any other plugin.",
        ssl_bind: "Write `bind \"https://…\"`, `certificate` and `certificate_key` instead; for verify_mode and ca, `client_ca`.",
        activate_control_app: "Remove the line: `fairlead status` and `fairlead restart` need none.",
        directory: "Remove the line, and start fairlead in that folder.",
        **%i[wait_for_less_busy_worker fork_worker nakayoshi_fork prune_bundler silence_single_worker_warning quiet queue_requests
             max_fast_inline max_keep_alive enable_keep_alives out_of_band worker_check_interval]
          .to_h { |word| [word, "Remove the line: Fairlead has no such option."] },
        first_data_timeout: "Write `head_timeout` instead.",
        persistent_timeout: "Write `idle_timeout` instead.",
        http_content_length_limit: "Write `body_size` instead.",
        lowlevel_error_handler: "Remove the line: Fairlead logs what the app raises and answers 500. Rescue it in a middleware " \
                                "that config.ru uses first.",
        set_remote_address: "For proxy_protocol write `bind \"http://…?proxy_protocol=1\"`, for a header `trusted_proxies`: see " \
                            "guides/edge.md. Without either, Rack::Request#ip reads the client's address from the proxy's headers.",
        **%i[on_booted after_booted].to_h { |word| [word, "Write `before_fork { … }`, which runs once, or `after_fork { |index| … }`."] }
      }.freeze

      def initialize(configuration, path)
        @configuration = configuration
        @path = path
        @absolute = ::File.expand_path(path)
      end

      # @raise [ConfigurationError]
      def read
        text = ::File.read(@absolute)
        Context.new(self).instance_eval(text, @absolute, 1)
      rescue Errno::ENOENT, Errno::EACCES, Errno::EISDIR, Errno::ENOTDIR => error
        raise ConfigurationError,
              "The configuration file #{@path} cannot be read: #{error.message[/\A[^@]+/].strip}. " \
              "Name another with --config, or create it."
      rescue ConfigurationError
        raise
      rescue StandardError, ScriptError => error
        diagnosis = ErrorReport.new(error, file: @absolute, debug: @configuration.debug)
        raise ConfigurationError, ["The configuration file has an error.", diagnosis, diagnosis.remedy].join("\n")
      end

      def set(name, value) = @configuration.set(name, value, from: :file, at: place)

      def set_port(port) = @configuration.set_port(port, from: :file, at: place)

      def hook(name, &block)
        raise ConfigurationError, "#{place}: `#{name}` needs a block: #{name} { … }" unless block

        @configuration.hook(name, &block)
      end

      def get(name) = @configuration.public_send(name)

      def unknown(word)
        remedy = ELSEWHERE.fetch(word) do
          "#{Configuration.suggestion(word).strip} `fairlead --help` lists all options.".strip
        end
        raise ConfigurationError, "#{place}: there is no option `#{word}`. #{remedy}"
      end

      private

      # @return [String] the running line of the file: "config/fairlead.rb:3"
      def place
        location = caller_locations.find { |frame| frame.absolute_path == @absolute || frame.path == @absolute }
        location ? "#{@path}:#{location.lineno}" : @path
      end

      # `self` in the file.
      class Context
        def initialize(script)
          @script = script
        end

        TABLE.each_key do |name|
          define_method(name) do |*values|
            # Without a value a name reads the option: `port 3001 if environment == "test"`.
            return @script.get(name) if values.empty?

            @script.set(name, values.size == 1 ? values.first : values)
          end
        end

        HOOKS.each_key { |name| define_method(name) { |&block| @script.hook(name, &block) } }
        ALIASES.each_key { |name| define_method(name) { |&block| @script.hook(name, &block) } }

        def port(number) = @script.set_port(number)

        def respond_to_missing?(*) = false

        private

        def method_missing(word, *) = @script.unknown(word)
      end
      private_constant :Context
    end
  end
end
