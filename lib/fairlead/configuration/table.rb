# frozen_string_literal: true

module Fairlead
  class Configuration
    # Headings of --help and of the reference page.
    GROUPS = {
      serving: "App and addresses",
      tls: "HTTPS",
      processes: "Processes",
      fairness: "Concurrency and queueing",
      database: "Database",
      deadlines: "Timeouts",
      limits: "Size limits",
      logs: "Logs and metrics"
    }.freeze

    # The shared page has a slot for each worker and for its successor.
    MAXIMUM_SLOTS = 64
    MAXIMUM_WORKERS = 60

    # 0 would reject every request.
    DEADLINE = (0.001..86_400)
    private_constant :DEADLINE

    # Every option. A row defines the word of the configuration file, the flag, the environment variable, the default, the
    # check, the text of --help and the entry in guides/reference/configuration.md.
    TABLE = [
      Option.new(:bind, :uris, ["http://127.0.0.1:9292"],
                 "An address to serve: http://host:port, https://host:port or unix:/path. Repeatable. Port 0 takes a free port; " \
                 "unix:/path?mode=0660 sets the socket's permissions; unix:@name has no file. With ?proxy_protocol=1, connections " \
                 "begin with a header of the PROXY protocol, which names the client.",
                 group: :serving, short: "b"),
      Option.new(:trusted_proxies, :networks, [],
                 "Proxies whose X-Forwarded-For, X-Forwarded-Proto and Forwarded headers say a request's client address and scheme: " \
                 "networks, addresses, private (all private networks) or unix (Unix sockets). Repeatable. Others are then not " \
                 "believed. Without this option REMOTE_ADDR is the peer, and the scheme is what anybody says.",
                 group: :serving),
      Option.new(:rackup, :path, "config.ru",
                 "The file that names the app to run.",
                 group: :serving),
      Option.new(:environment, :text, "development",
                 "The app's environment. Fairlead sets RACK_ENV and RAILS_ENV to it.",
                 group: :serving, short: "e", variables: %w[RAILS_ENV RACK_ENV]),
      Option.new(:early_hints, :boolean, false,
                 "Let the app send 103 Early Hints through rack.early_hints, as Rails does for preloaded assets.",
                 group: :serving),
      Option.new(:server_timing, :boolean, ->(configuration) { configuration.environment == "development" },
                 "Add a Server-Timing header to responses, which browsers show: where the time went until then.",
                 group: :serving, shown: "true in development, else false"),
      Option.new(:backlog, :integer, 4096,
                 "How many connections the kernel queues until a worker accepts them, limited by " \
                 "net.core.somaxconn.",
                 group: :serving, within: (1..65_535)),
      Option.new(:health_path, :url_path, nil,
                 "A path that each worker answers itself, without the app and even while a request blocks it: " \
                 "200, or 503 while it stops.",
                 group: :serving),
      Option.new(:public_files, :path, nil,
                 "The folder whose files Fairlead serves itself, before the app: public. off: the app serves them. A Rails app's " \
                 "folder is known, and served if nothing but Rails' own middleware comes before ActionDispatch::Static.",
                 group: :serving, shown: "public of a Rails app that serves it; else off"),
      Option.new(:compress, :boolean, false,
                 "Compress the app's responses for clients that accept it: text, JSON, XML, JavaScript, SVG, of 1 KB and more. With " \
                 "gzip, and with zstd and brotli if the bundle has the gems zstd-ruby and brotli.",
                 group: :serving),
      Option.new(:compress_private, :boolean, false,
                 "With `compress`, compress also what may hold a secret: responses to requests with cookies or other credentials, and " \
                 "those that set a cookie or are private. Always with gzip, whose length is padded.",
                 group: :serving),

      Option.new(:redirect_to_https, :boolean, false,
                 "Redirect requests that came without TLS to https://, before the app. Not the health path. Behind a proxy with TLS, " \
                 "X-Forwarded-Proto says how they came.",
                 group: :tls),
      Option.new(:hsts, :hsts, nil,
                 "Send Strict-Transport-Security with responses over TLS, unless the app does: the seconds for which browsers use https " \
                 "alone, or the header's value.",
                 group: :tls),
      Option.new(:certificate, :paths, [],
                 "The certificate for https:// addresses, with those of its issuers: a file in PEM. Fairlead uses a new file " \
                 "within seconds. Repeatable: a client gets the one for the host that it names, otherwise the first.",
                 group: :tls),
      Option.new(:certificate_key, :paths, [],
                 "The private key of the certificate: a file in PEM, without a passphrase. Repeatable, in the order of the " \
                 "certificates.",
                 group: :tls),
      Option.new(:certificates, :hosts, [],
                 "Get a certificate for these host names by ACME, and renew it; with that you accept the authority's terms. Their port " \
                 "80 must lead to an http:// address of this server, where it answers the authority. Needs the gem acme-client.",
                 group: :tls),
      Option.new(:certificates_folder, :path, "storage/certificates",
                 "Where the certificate of `certificates`, its key and the account's key are kept. It must outlast deployments.",
                 group: :tls),
      Option.new(:certificates_email, :text, nil,
                 "An address for the authority's messages.",
                 group: :tls),
      Option.new(:acme_directory, :text, "https://acme-v02.api.letsencrypt.org/directory",
                 "The URL of the authority's directory. The default is Let's Encrypt.",
                 group: :tls),
      Option.new(:client_ca, :path, nil,
                 "Ask clients for certificates that these authorities have issued, at every https:// address: a file in PEM. The app " \
                 "finds them in SSL_CLIENT_CERT, SSL_CLIENT_S_DN and so on.",
                 group: :tls),
      Option.new(:client_certificate, :choice, "required",
                 "With client_ca, whether a client without a certificate is refused (required) or served, with SSL_CLIENT_VERIFY NONE " \
                 "(optional). One with a certificate of others is refused.",
                 group: :tls, choices: %w[required optional]),

      Option.new(:workers, :integer, ->(_) { [Etc.nprocessors, MAXIMUM_WORKERS].min },
                 "Number of worker processes; auto: one per core. 0 serves in the foreground process, so that a " \
                 "debugger's prompt works; no supervisor restarts it.",
                 group: :processes, within: (0..MAXIMUM_WORKERS), short: "w", variables: %w[WEB_CONCURRENCY],
                 shown: "one per core", auto: true),
      Option.new(:preload, :boolean, true,
                 "Load the app once, before forking, so that workers share its memory. HUP then forks workers " \
                 "with the same code. With false each worker loads the app, and HUP loads new code.",
                 group: :processes),
      Option.new(:solid_queue, :choice, "off",
                 "Run Solid Queue beside the workers, in a process that starts and stops with them. fork gives " \
                 "each of its workers a process, async a thread.",
                 group: :processes, choices: %w[off fork async], variables: %w[SOLID_QUEUE_IN_PUMA]),
      Option.new(:yjit, :boolean, true,
                 "Enable YJIT once the app is loaded, where Ruby has it. A Rails app decides for itself " \
                 "(config.yjit).",
                 group: :processes),
      Option.new(:pidfile, :path, nil,
                 "A file that holds the process id of the first process while the server runs.",
                 group: :processes, variables: %w[PIDFILE]),
      Option.new(:tag, :text, ->(_) { ::File.basename(Dir.pwd) },
                 "The app's name in process titles.",
                 group: :processes, shown: "the name of the current folder"),
      Option.new(:boot_timeout, :seconds, 60.0,
                 "How long a worker may take to boot. Then the supervisor kills it and forks another.",
                 group: :processes, within: DEADLINE),
      Option.new(:drain_timeout, :seconds, 30.0,
                 "How long requests may take once the server, or their worker, stops. Past it, a waiting, running " \
                 "or incomplete request gets 503 with Retry-After, and a response that has begun is cut off so that its client notices.",
                 group: :processes, within: DEADLINE),
      Option.new(:stream_drain_timeout, :seconds, nil,
                 "The same for long-lived responses: answers of language models, callable bodies, hijacked connections. Event streams " \
                 "of browsers (GET) end sooner in any case: their clients connect again.",
                 group: :processes, within: DEADLINE, shown: "drain_timeout, which is its lower bound"),

      Option.new(:recycle_requests, :integer, nil,
                 "Replace a worker after this many requests, or up to a tenth earlier. Its successor serves " \
                 "first; workers are replaced one at a time.",
                 group: :processes, within: (1..), shown: "never"),
      Option.new(:recycle_memory, :bytes, nil,
                 "Replace a worker that uses more memory, or up to a tenth less, counting its share of shared pages. " \
                 "Workers that reach the limit within a minute of their start are replaced ever more seldom.",
                 group: :processes, within: (1 << 16..), shown: "any"),

      Option.new(:in_flight, :integer, 16_384,
                 "How many requests a worker runs at once. Others queue, first come, first served.",
                 group: :fairness, within: (1..1_000_000)),
      Option.new(:streams, :integer, 16_384,
                 "How many long-lived responses (event streams, upgraded connections) a worker serves at once, in " \
                 "addition to in_flight.",
                 group: :fairness, within: (0..1_000_000)),
      Option.new(:stream_share, :fraction, 0.5,
                 "What part of its time a worker gives to streams (responses that have begun and wait) while both streams and " \
                 "other requests want all of it. Neither waits while the other has nothing to do.",
                 group: :fairness, within: (0.05..0.95)),
      Option.new(:offload_threads, :integer, 16,
                 "How many blocks of Fairlead.offload a worker runs at once, each in a thread. Others queue.",
                 group: :fairness, within: (1..1024)),
      Option.new(:queue_timeout, :seconds, 30.0,
                 "How long a request may queue. Past it, it gets 503 with Retry-After.",
                 group: :fairness, within: DEADLINE),
      Option.new(:queue_target, :seconds, 0.3,
                 "About how long requests queue while more arrive than can be served. The newest ones then get " \
                 "503 with Retry-After at once. 0: all queue, up to queue_timeout.",
                 group: :fairness, within: (0..86_400)),

      Option.new(:database_connections, :integer, nil,
                 "Limit on open connections to each database server, for all workers together. It replaces the " \
                 "pool sizes in config/database.yml: workers open what their requests need and share the rest. " \
                 "Not for SQLite.",
                 group: :database, within: (1..100_000), shown: "each worker may open as many as its pools allow"),
      Option.new(:permanent_connection_checkout, :choice, "deprecated",
                 "Whether ActiveRecord::Base.connection, which keeps a connection until the request ends, is " \
                 "allowed, deprecated (the log names each call) or disallowed (it raises; use with_connection { … " \
                 "}). Overrides the app's own setting when set.",
                 group: :database, choices: %w[allowed deprecated disallowed]),

      Option.new(:request_timeout, :seconds, nil,
                 "How long a request may run without reading or writing a piece of a body. Past it, the client " \
                 "gets 504, and the request is cancelled at its current or next wait.",
                 group: :deadlines, within: DEADLINE),
      Option.new(:cancel_abandoned, :boolean, nil,
                 "Cancel a request, and its database query, at its wait when its client has gone. Otherwise the " \
                 "request runs to its end. An HTTP/1.0 client counts as gone only when it resets its connection.",
                 group: :deadlines, shown: "long-lived responses only (event streams, callable bodies)"),
      Option.new(:event_stream_keepalive, :seconds, 15.0,
                 "How long an event stream may be silent until its client is sent a comment, so that no proxy closes it. At most " \
                 "twice as long. 0: for ever; streams then end in order only when the server stops.",
                 group: :deadlines, within: (0..86_400)),
      Option.new(:stuck_timeout, :seconds, nil,
                 "How long a request may block or compute without a pause. Past it, a successor replaces its " \
                 "worker, which is killed after stream_drain_timeout.",
                 group: :deadlines, within: (0.1..86_400)),
      Option.new(:idle_timeout, :seconds, 65.0,
                 "How long a connection may stay open without a request.",
                 group: :deadlines, within: DEADLINE),
      Option.new(:head_timeout, :seconds, 15.0,
                 "How long a client may take to send a request's headers.",
                 group: :deadlines, within: DEADLINE),
      Option.new(:body_timeout, :seconds, 30.0,
                 "How long a client may pause while it sends a body. Fewer than 32 bytes a second count as a pause.",
                 group: :deadlines, within: DEADLINE),
      Option.new(:write_timeout, :seconds, 30.0,
                 "How long a client may take nothing of a response, beyond what its system has buffered. Fewer than 32 bytes a second " \
                 "count as nothing.",
                 group: :deadlines, within: DEADLINE),

      Option.new(:request_line, :bytes, 16 << 10,
                 "Largest request line. Longer ones get 414.",
                 group: :limits, within: (64..1_048_576)),
      Option.new(:head_size, :bytes, 128 << 10,
                 "Largest request head: request line and headers. Larger ones get 431. The limit drops to 32 KiB " \
                 "while a worker buffers more than 64 MiB for its clients.",
                 group: :limits, within: (256..1_048_576)),
      Option.new(:headers, :integer, 256,
                 "Most header fields in a request. More get 431.",
                 group: :limits, within: (1..256)),
      Option.new(:body_size, :bytes, 10 << 30,
                 "Largest request body. Larger ones get 413.",
                 group: :limits, within: (0..)),
      Option.new(:body_buffer, :bytes, 256 << 10,
                 "How much of a request body stays in memory. A larger body goes to a temporary file before the " \
                 "app is called.",
                 group: :limits, within: (0..1 << 30)),
      Option.new(:stream_request_bodies, :boolean, false,
                 "Call the app while a body over body_buffer still arrives. The app reads it once, as it arrives: " \
                 "nothing is stored, and rack.input cannot be rewound.",
                 group: :limits),
      Option.new(:response_buffer, :bytes, 1 << 20,
                 "How much of a response is buffered for a slow client before the app has to wait.",
                 group: :limits, within: (4096..1 << 30)),

      Option.new(:access_log, :choice, "off",
                 "Log each request: in the common log format, or as JSON with its duration and queue time.",
                 group: :logs, choices: %w[off common json]),
      Option.new(:log, :path, nil,
                 "A file for the access log, Fairlead's messages, and what workers write to stdout and stderr. " \
                 "USR1 reopens it.",
                 group: :logs, shown: "the access log goes to stdout, the rest to stderr"),
      Option.new(:stall_report, :seconds, 0.05,
                 "Report requests that block their reactor for longer: in the log, to " \
                 "ActiveSupport::Notifications, and in `fairlead stalls`. Requests that compute get four times as " \
                 "long. 0: never.",
                 group: :logs, within: (0..86_400)),
      Option.new(:metrics, :endpoint, nil,
                 "Where Prometheus reads metrics. An address like http://127.0.0.1:9394: a process of its own answers at /metrics " \
                 "there, also while every worker is stuck. A path like /metrics: a worker answers at the app's addresses.",
                 group: :logs),
      Option.new(:metrics_token, :text, nil,
                 "What a reader of the metrics has to send, as Authorization: Bearer TOKEN. Required unless metrics is a loopback " \
                 "address or a Unix socket; none lets anybody read. Set it in the environment, since ps shows flags.",
                 group: :logs, secret: true),
      Option.new(:debug, :boolean, false,
                 "Show the full backtrace when the app cannot be loaded.",
                 group: :logs)
    ].to_h { |option| [option.name, option] }.freeze

    # Hooks of the configuration file, and Puma's names for them.
    HOOKS = {
      before_fork: "Runs once in the supervisor, after the app is loaded and before the first fork.",
      after_fork: "Runs in each worker before it serves. Its argument is the worker's index, from 0.",
      before_worker_exit: "Runs in each worker after its last request. Its argument is the worker's index.",
      on_restart: "Runs in the supervisor when a restart of the workers (HUP) begins."
    }.freeze
    ALIASES = {
      on_worker_boot: :after_fork, before_worker_boot: :after_fork,
      on_worker_shutdown: :before_worker_exit, before_worker_shutdown: :before_worker_exit,
      before_restart: :on_restart
    }.freeze
  end
end
