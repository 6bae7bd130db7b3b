# frozen_string_literal: true

module Fairlead
  class Configuration
    # Headings of --help and of the reference page.
    GROUPS = {
      serving: "What is served, and where",
      processes: "Processes",
      fairness: "How much at once",
      database: "The database",
      deadlines: "Deadlines",
      limits: "Limits of a request",
      logs: "Logs"
    }.freeze

    # The shared page has a slot for each worker, for its successor while it drains, and some to spare.
    MAXIMUM_SLOTS = 64
    MAXIMUM_WORKERS = 60

    # A deadline may be fractions of a second, but never 0: that would drop everybody.
    DEADLINE = (0.001..86_400)
    private_constant :DEADLINE

    # Every option there is. A row makes the word of the configuration file, the flag, the environment variable,
    # the default, the check, the line in --help and the entry of guides/configuration.md.
    TABLE = [
      Option.new(:bind, :uris, ["http://127.0.0.1:9292"],
                 "An address to serve: http://host:port or unix:/path. May be given more than once. Port 0 " \
                 "takes a free one; unix:/path?mode=0660 sets the permissions of the socket; unix:@name has no file.",
                 group: :serving, short: "b"),
      Option.new(:rackup, :path, "config.ru", "The file that says what to run.", group: :serving),
      Option.new(:environment, :text, "development",
                 "The app's environment; RACK_ENV and RAILS_ENV are set to it.",
                 group: :serving, short: "e", variables: %w[RAILS_ENV RACK_ENV]),
      Option.new(:early_hints, :boolean, false,
                 "Let the app send 103 Early Hints, as Rails does for what a page preloads: `rack.early_hints` is in " \
                 "the Rack environment.",
                 group: :serving),
      Option.new(:backlog, :integer, 4096,
                 "How many connections the kernel keeps until they are accepted. The kernel's own bound, " \
                 "net.core.somaxconn, holds too.",
                 group: :serving, within: (1..65_535)),
      Option.new(:health_path, :url_path, nil,
                 "A path at which each worker says by itself, without the app and also while a request holds it " \
                 "up, that it is there: 200, or 503 once it is told to end.",
                 group: :serving),

      Option.new(:workers, :integer, ->(_) { [Etc.nprocessors, MAXIMUM_WORKERS].min },
                 "How many processes serve; auto: one per core. 0 serves in the foreground process itself, so that a " \
                 "debugger's prompt works; without a supervisor nothing restarts it.",
                 group: :processes, within: (0..MAXIMUM_WORKERS), short: "w", variables: %w[WEB_CONCURRENCY],
                 shown: "one per core", auto: true),
      Option.new(:preload, :boolean, true,
                 "Load the app once, before the workers are forked, so that they share its memory. HUP then " \
                 "forks new workers with the same code; with false each worker loads the app, and HUP brings " \
                 "new code in.",
                 group: :processes),
      Option.new(:solid_queue, :choice, "off",
                 "Run Solid Queue beside the workers, in a process that is started and stopped with them: fork gives each " \
                 "of its workers a process of its own, async a thread in that one.",
                 group: :processes, choices: %w[off fork async], variables: %w[SOLID_QUEUE_IN_PUMA]),
      Option.new(:yjit, :boolean, true,
                 "Turn Ruby's compiler, YJIT, on once the app is loaded, where Ruby has it. A Rails app decides by " \
                 "itself (config.yjit).",
                 group: :processes),
      Option.new(:pidfile, :path, nil, "A file that holds the process id of the supervisor while it runs.",
                 group: :processes, variables: %w[PIDFILE]),
      Option.new(:tag, :text, ->(_) { ::File.basename(Dir.pwd) }, "What is shown of the app in the titles of " \
                                                                 "the processes.",
                 group: :processes, shown: "the name of the current folder"),
      Option.new(:boot_timeout, :seconds, 60.0, "How long a worker may take until it serves; then it is " \
                                                "killed and forked again.",
                 group: :processes, within: DEADLINE),
      Option.new(:drain_timeout, :seconds, 30.0,
                 "How long what has come may still take once the server, or one worker, is told to stop. Past it, a " \
                 "request that runs is answered 504, one that waits for its turn or has not come whole 503 with " \
                 "Retry-After.",
                 group: :processes, within: DEADLINE),

      Option.new(:recycle_requests, :integer, nil,
                 "After how many requests a worker is replaced: by one that serves before it leaves, one worker at a " \
                 "time, and up to a tenth earlier, so that they do not come together.",
                 group: :processes, within: (1..), shown: "never"),
      Option.new(:recycle_memory, :bytes, nil,
                 "How much memory a worker may take (its share of what it shares with others is counted, not all of " \
                 "it); then it is replaced like that.",
                 group: :processes, within: (1 << 16..), shown: "any"),

      Option.new(:in_flight, :integer, 16_384,
                 "How many requests a worker runs at once. What is over waits its turn, first come, first " \
                 "served.",
                 group: :fairness, within: (1..1_000_000)),
      Option.new(:streams, :integer, 16_384,
                 "How many long-lived responses (event streams, upgraded connections) a worker serves at " \
                 "once, beside in_flight.",
                 group: :fairness, within: (0..1_000_000)),
      Option.new(:offload_threads, :integer, 16,
                 "How many blocks of Fairlead.offload a worker runs at once, each in a thread. What is over waits its " \
                 "turn.",
                 group: :fairness, within: (1..1024)),
      Option.new(:queue_timeout, :seconds, 30.0,
                 "How long a request may wait for its turn. Past it, it is answered 503 with Retry-After.",
                 group: :fairness, within: DEADLINE),
      Option.new(:queue_target, :seconds, 0.3,
                 "How long requests wait for their turn, about, while more come than can be served: those that come " \
                 "last are then answered 503 with Retry-After at once. 0: all wait, up to queue_timeout.",
                 group: :fairness, within: (0..86_400)),

      Option.new(:database_connections, :integer, nil,
                 "How many connections to each database server all workers together may have open. The sizes of the pools in " \
                 "config/database.yml do not count then: each worker opens what its requests need, and gives up to " \
                 "the others what it does not. SQLite is left out.",
                 group: :database, within: (1..100_000), shown: "each worker may open as many as its pools allow"),
      Option.new(:permanent_connection_checkout, :choice, "deprecated",
                 "What becomes of `ActiveRecord::Base.connection`, which keeps a connection until the end of the " \
                 "request: allowed, deprecated (it is done, and said where), or disallowed (it raises; write " \
                 "`with_connection { … }`). What the app itself has set counts unless this is set.",
                 group: :database, choices: %w[allowed deprecated disallowed]),

      Option.new(:request_timeout, :seconds, nil,
                 "How long a request may run, from the moment the app is called, without a piece of a body read or " \
                 "written. Past it the client gets 504, and the request is cancelled where it waits, or at its next wait; " \
                 "see stalls.md.",
                 group: :deadlines, within: DEADLINE),
      Option.new(:cancel_abandoned, :boolean, false,
                 "Cancel a request where it waits once its client has gone, its query in the database too. Without it " \
                 "the request is served to its end, and the answer dropped. A client of HTTP/1.0 has gone only once its " \
                 "connection is reset: a proxy in front must speak HTTP/1.1.",
                 group: :deadlines),
      Option.new(:stuck_timeout, :seconds, nil,
                 "How long a request may block or compute without a pause. Past it, its worker is replaced: a " \
                 "successor serves, and the worker is killed if it has not ended within drain_timeout.",
                 group: :deadlines, within: (0.1..86_400)),
      Option.new(:idle_timeout, :seconds, 65.0, "How long a connection may stay open without a request.",
                 group: :deadlines, within: DEADLINE),
      Option.new(:head_timeout, :seconds, 15.0, "How long a client may take to send the head of a request.",
                 group: :deadlines, within: DEADLINE),
      Option.new(:body_timeout, :seconds, 30.0, "How long a client may pause while it sends a body.",
                 group: :deadlines, within: DEADLINE),
      Option.new(:write_timeout, :seconds, 30.0, "How long a client may pause while it takes a response.",
                 group: :deadlines, within: DEADLINE),

      Option.new(:request_line, :bytes, 16 << 10, "The longest request line; over it: 414.",
                 group: :limits, within: (64..1_048_576)),
      Option.new(:head_size, :bytes, 128 << 10,
                 "The largest head of a request, all its fields together; over it: 431. 32 KiB while more than 64 MiB are " \
                 "kept for the clients of a worker.",
                 group: :limits, within: (256..1_048_576)),
      Option.new(:headers, :integer, 256, "The most fields in a head; over it: 431.",
                 group: :limits, within: (1..256)),
      Option.new(:body_size, :bytes, 10 << 30, "The largest body of a request; over it: 413.",
                 group: :limits, within: (0..)),
      Option.new(:body_buffer, :bytes, 256 << 10,
                 "How much of a request body is kept in memory. A larger one is received into a temporary file " \
                 "before the app is called.",
                 group: :limits, within: (0..1 << 30)),
      Option.new(:stream_request_bodies, :boolean, false,
                 "Call the app while a body over body_buffer still arrives. The app reads it as it comes, once: nothing is " \
                 "stored, and rack.input cannot be rewound.",
                 group: :limits),
      Option.new(:response_buffer, :bytes, 1 << 20,
                 "How much of a response is kept for a slow client before the app that writes it has to wait.",
                 group: :limits, within: (4096..1 << 30)),

      Option.new(:access_log, :choice, "off",
                 "A line for each request: in the common log format, or as JSON with its duration and queue " \
                 "time.",
                 group: :logs, choices: %w[off common json]),
      Option.new(:log, :path, nil,
                 "A file for the access log, for what Fairlead has to say, and for what the workers write to " \
                 "stdout and stderr. USR1 reopens it.",
                 group: :logs, shown: "the access log goes to stdout, the rest to stderr"),
      Option.new(:stall_report, :seconds, 0.05,
                 "How long a request may keep its reactor from coming back before it is told of as a stall: in the log, " \
                 "to ActiveSupport::Notifications, by `fairlead stalls`. Four times as long for one that computes. " \
                 "0: never.",
                 group: :logs, within: (0..86_400)),
      Option.new(:debug, :boolean, false,
                 "Show the whole backtrace of an app that cannot be loaded.", group: :logs)
    ].to_h { |option| [option.name, option] }.freeze

    # The hooks a configuration file can set, with the names by which Puma knows them.
    HOOKS = {
      before_fork: "Runs in the supervisor, once, after the app is loaded and before the first worker is " \
                   "forked.",
      after_fork: "Runs in each worker before it serves; is given the worker's index, from 0.",
      before_worker_exit: "Runs in each worker after its last request; is given the worker's index.",
      on_restart: "Runs in the supervisor when a restart of the workers (HUP) begins."
    }.freeze
    ALIASES = {
      on_worker_boot: :after_fork, before_worker_boot: :after_fork,
      on_worker_shutdown: :before_worker_exit, before_worker_shutdown: :before_worker_exit,
      before_restart: :on_restart
    }.freeze
  end
end
