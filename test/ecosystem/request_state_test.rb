# frozen_string_literal: true

require_relative "ecosystem"
require_relative "../http_client"

module Fairlead
  # What gems keep for a request, in the many places where that can be kept, belongs to that request alone: while others
  # run beside it in fibers of the same thread, and after it. `rake request_state` sends 100,000.
  class RequestStateTest < EcosystemTest
    COUNT = Integer(ENV.fetch("COUNT", "4000"), 10)
    CLIENTS = 40

    APP = <<~'RUBY'
      require "active_support/all"
      require "active_record"
      require "acts_as_tenant"
      require "async/barrier"
      require "concurrent"
      require "honeybadger/ruby"
      require "i18n"
      require "opentelemetry"
      require "paper_trail"
      require "request_store"
      require "rollbar"
      require "sentry-ruby"

      Sentry.init do |config|
        config.dsn = "http://nobody@127.0.0.1:9/1"
        config.transport.transport_class = Sentry::DummyTransport
        config.background_worker_threads = 0
        config.sdk_logger = Logger.new(nil)
        config.before_send = lambda { |event, hint|
          $astray = "the event of #{hint[:exception].message}: #{event.user} #{event.tags}" unless
            [event.user[:id], event.tags[:number]] == [hint[:exception].message.to_i] * 2
          $events = $events.to_i + 1
          event
        }
      end
      I18n.available_locales = %i[en de fr]
      I18n.default_locale = :en
      Time.zone_default = ActiveSupport::TimeZone["UTC"]

      class Current < ActiveSupport::CurrentAttributes
        attribute :number
      end

      FIBER_LOCAL = Concurrent::FiberLocalVar.new
      THREAD_LOCAL = Concurrent::ThreadLocalVar.new
      LOGGER = ActiveSupport::TaggedLogging.new(Logger.new(nil))
      LOCALES = %i[de fr]
      ZONES = %w[Berlin Tokyo]

      # What a request finds in each place, by name: to begin with, and again after it has waited.
      def found
        {
          current: Current.number, fiber_local: Thread.current[:number], storage: Fiber[:number],
          thread_variable: Thread.current.thread_variable_get(:number), thread_variables: Thread.current.thread_variables.grep(/number/),
          store: RequestStore.store[:number], concurrent: FIBER_LOCAL.value, concurrent_thread: THREAD_LOCAL.value,
          locale: I18n.locale, zone: Time.zone.name, tags: LOGGER.formatter.current_tags.dup,
          sentry: Sentry.get_current_scope.tags[:number], sentry_user: Sentry.get_current_scope.user[:id],
          context: ActiveSupport::ExecutionContext.to_h[:number], honeybadger: Honeybadger.get_context.to_h[:number],
          telemetry: OpenTelemetry::Context.current.value("number"), author: PaperTrail.request.whodunnit,
          rollbar: Rollbar.scope_object.raw.to_h[:number], tenant: ActsAsTenant.current_tenant
        }
      end

      def leave(number)
        Current.number = Thread.current[:number] = Fiber[:number] = RequestStore.store[:number] = number
        Thread.current.thread_variable_set(:number, number)
        FIBER_LOCAL.value = THREAD_LOCAL.value = number
        I18n.locale = LOCALES[number % 2]
        Time.zone = ZONES[number % 2]
        LOGGER.push_tags(number)
        Sentry.set_tags(number:)
        Sentry.set_user(id: number)
        ActiveSupport::ExecutionContext[:number] = number
        Honeybadger.context(number:)
        OpenTelemetry::Context.attach(OpenTelemetry::Context.current.set_value("number", number))
        PaperTrail.request.whodunnit = ActsAsTenant.current_tenant = number
        Rollbar.scope!(number:)
      end

      def kept(number)
        {
          current: number, fiber_local: number, storage: number, thread_variable: number, thread_variables: [:number],
          store: number, concurrent: number, concurrent_thread: number, locale: LOCALES[number % 2], zone: ZONES[number % 2],
          tags: [number], sentry: number, sentry_user: number, context: number,
          honeybadger: number, telemetry: number, author: number, rollbar: number, tenant: number
        }
      end

      NOTHING = {
        current: nil, fiber_local: nil, storage: nil, thread_variable: nil, thread_variables: [], store: nil,
        concurrent: nil, concurrent_thread: nil, locale: :en, zone: "UTC", tags: [], sentry: nil, sentry_user: nil, context: nil,
        honeybadger: nil, telemetry: nil, author: nil, rollbar: nil, tenant: nil
      }
      # Of fiber-locals and the like a task has its own, of all else its request's.
      INHERITED = %i[storage thread_variable sentry sentry_user locale]

      def wait_somehow(number)
        case number % 6
        when 0 then sleep(0.001)
        when 1 then Thread.new { Thread.pass }.join
        when 2 then Async { sleep(0.0005) }.wait
        when 3 then Fiber.scheduler.yield
        end
      end

      # It goes on with what it has inherited.
      def leave_task_behind(number)
        Async do
          sleep(0.002)
          $astray = "#{number}: #{Thread.current.thread_variable_get(:number)}" if Thread.current.thread_variable_get(:number) != number
        end
      end

      def differences(what, expected, found)
        expected.filter_map { |place, value| "#{what}, #{place}: #{found[place].inspect}, not #{value.inspect}" if found[place] != value }
      end

      use Sentry::Rack::CaptureExceptions
      # Without RequestStore's middleware, which would clean up itself.
      run lambda { |env|
        number = env["QUERY_STRING"].to_i
        next [200, { "content-type" => "text/plain" }, [$events.to_s]] if number.zero?

        wrong = []
        # A task may be the first to look.
        wrong = Async { differences("in a task at the beginning", NOTHING, found) }.wait if number % 7 == 0
        wrong += differences("at the beginning", NOTHING, found)
        leave(number)
        wait_somehow(number)
        wrong += differences("after waiting", kept(number), found)
        if number % 11 == 0
          inside = Async { wait_somehow(number + 1); found }.wait
          wrong += differences("in a task", kept(number).slice(*INHERITED), inside)
          wrong += differences("in a task", { locale: LOCALES[number % 2] }, inside)
          wrong += differences("in an enumerator", kept(number).slice(*INHERITED), Enumerator.new { |out| out << found }.next)
          theirs = Thread.new { Thread.current.thread_variable_get(:number) }.value
          wrong << "a thread has the variables of its request: #{theirs}" if theirs
        end
        leave_task_behind(number) if number % 13 == 0
        wrong << "gone astray: #{$astray}" if $astray
        raise number.to_s if number % 97 == 0 && wrong.empty?

        [wrong.empty? ? 200 : 409, { "content-type" => "text/plain" }, [wrong.join("\n")]]
      }
    RUBY

    def test_no_request_finds_what_another_has_left
      with_server(APP, "--queue-target", "0") { |server| assert_nothing_leaks(server) }
    end

    private

    def assert_nothing_leaks(server)
      raised = Array.new(CLIENTS) { |client| Thread.new { ask(server, client) } }.sum(&:value)

      assert_equal (1..COUNT).count { |number| (number % 97).zero? }, raised
      assert_equal raised.to_s, server.get("/?0").body, "what Sentry was told of"
    end

    # Sends its share of the requests, ten at a time, and returns how many were raised in on purpose.
    def ask(server, client)
      http = HTTPClient.new(server.connect, timeout: 60)
      numbers = (1..COUNT).select { |number| number % CLIENTS == client }
      numbers.each_slice(10).sum do |some|
        http.write(some.map { |number| "GET /?#{number} HTTP/1.1\r\nHost: a\r\n\r\n" }.join)
        some.count do |number|
          answer = http.response
          flunk "request #{number}: #{answer.status} #{answer.body}\n#{server.end_of_log}" unless
            answer.status == (number % 97 == 0 ? 500 : 200)

          answer.status == 500
        end
      end
    ensure
      http&.close
    end
  end
end
