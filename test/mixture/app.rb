# frozen_string_literal: true

module Fairlead
  class Mixture
    # An app that waits, asks a database, blocks and computes, at its start or after a first wait; that answers large
    # bodies, and bodies in parts. Each request has a number: it is written down when its run begins and when it ends, and
    # the answer repeats it.
    APP = <<~'RUBY'
      $LOAD_PATH.unshift ENV.fetch("CWORK")
      require "cwork"
      require "digest"
      require "fairlead/pool"
      require "json"
      require "pg"

      DATABASE = Fairlead::Pool.new(size: 4, timeout: 60) { PG.connect(ENV.fetch("MIXTURE_DATABASE")) }
      # One write each, so that lines of several processes do not mix; what was written outlives the process.
      RUNS = IO.for_fd(IO.sysopen("runs", File::WRONLY | File::APPEND | File::CREAT))
      PARTS = Struct.new(:number) { def each = 5.times { |part| sleep(0.005); yield "#{number}:#{part};" * 200 } }

      def compute(seconds)
        ends = Process.clock_gettime(Process::CLOCK_MONOTONIC) + seconds
        nil while Process.clock_gettime(Process::CLOCK_MONOTONIC) < ends
      end

      def ask(number, seconds)
        DATABASE.with { |connection| connection.exec_params("SELECT $1::int, pg_sleep($2)", [number, seconds]).getvalue(0, 0) }
      end

      def act(env, number, seconds)
        path = env["PATH_INFO"].sub(%r{/~.*}, "") # what follows makes it a route of its own
        sleep(0.01) if path.delete_prefix!("/later")
        case path
        when "/sleep" then sleep(seconds)
        when "/database" then return [ask(number, seconds)]
        when "/free" then Cwork.without_gvl(seconds)
        when "/held" then Cwork.with_gvl(seconds)
        when "/cpu" then compute(seconds)
        when "/digest" then return [Digest::SHA256.hexdigest(env["rack.input"].read.to_s)]
        when "/large" then return [number.to_s.rjust(10, "0") * 50_000]
        when "/parts" then return PARTS.new(number)
        end
        [number.to_s]
      end

      def figures
        page = Fairlead.page
        slots = Array.new(page.slots) { |slot| page.read(slot) }
        JSON.generate(slots:, routes: page.routes, pid: Process.pid)
      end

      run lambda { |env|
        next [200, {}, [figures]] if env["PATH_INFO"] == "/figures"

        number = Integer(env.fetch("HTTP_X_NUMBER"), 10)
        RUNS.syswrite("begins #{number} #{Process.pid}\n")
        body = act(env, number, env["QUERY_STRING"].to_f)
        RUNS.syswrite("ends #{number} #{Process.pid}\n")
        [200, { "x-number" => number.to_s, "x-process" => Process.pid.to_s }, body]
      }
    RUBY
  end
end
