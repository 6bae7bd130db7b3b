# frozen_string_literal: true

module Fairlead
  # The HTTP server of the observer process: a thread for each connection, of which there are few. If all are taken, a new client
  # gets the place of the one that has been silent longest, so that slow clients keep nobody away.
  class ObserverServer
    MOST = 32
    # Seconds until the server accepts again after the process had no descriptor or thread left.
    PAUSE = 0.2
    private_constant :MOST, :PAUSE

    # @param ios [Array<Socket>] that listen; another process may accept from them as well.
    # @param routes [Hash{String => #call}] path => what answers it; takes an {ObserverConnection::Request}, and returns status,
    #   headers and body, a String.
    # @param token [AccessToken]
    # @param hosts [#call, nil] takes a request's Host and returns whether it is served; nil: each is.
    def initialize(ios, routes, token, hosts: nil)
      @ios = ios
      @routes = routes
      @token = token
      @hosts = hosts
      @lock = Thread::Mutex.new
      @connections = []
    end

    # Serves for ever.
    def run
      loop do
        ready, = IO.select(@ios)
        sleep if @finishing # another process may accept them
        ready.each { |io| accept(io) }
      end
    end

    # Accepts nobody any more, and waits until all requests are answered. To be called from another thread.
    #
    # @param within [Numeric] the most seconds that it waits.
    def finish(within:)
      @finishing = true
      till = Clock.now + within
      sleep 0.01 while Clock.now < till && @lock.synchronize { @connections.any?(&:busy?) }
    end

    # @param request [ObserverConnection::Request]
    # @return [Array(Integer, Hash, String)]
    def answer(request)
      headers = request.headers
      return plain(401, "Unauthorized", "www-authenticate" => AccessToken::CHALLENGE) unless @token.allows?(headers["authorization"])
      return plain(421, "Misdirected Request") unless @hosts.nil? || @hosts.call(headers["host"])
      return plain(405, "Method Not Allowed", "allow" => "GET, HEAD") unless %w[GET HEAD].include?(request.method)

      route = @routes[request.path] or return plain(404, "Not Found")
      route.call(request)
    rescue StandardError => error # the next one may be answered
      Log.say "The observer could not answer #{request.path}: #{error.full_message(highlight: false)}"
      plain(500, "Internal Server Error")
    end

    private

    def plain(code, text, headers = {}) = [code, { "content-type" => "text/plain", **headers }, "#{text}\n"]

    def accept(io)
      socket, = io.accept_nonblock(exception: false)
      serve(socket) if socket.is_a?(Socket)
    rescue SystemCallError, ThreadError
      socket.close if socket.is_a?(Socket)
      sleep PAUSE
    end

    def serve(socket)
      connection = ObserverConnection.new(socket)
      @lock.synchronize do
        @connections.min_by(&:since).evict if @connections.size >= MOST
        @connections << connection
      end
      start_thread(connection)
    rescue ThreadError
      @lock.synchronize { @connections.delete(connection) }
      raise
    end

    def start_thread(connection) = Thread.new { run_connection(connection) }.report_on_exception = false

    def run_connection(connection)
      connection.serve { |request| answer(request) }
    ensure
      @lock.synchronize { @connections.delete(connection) }
    end
  end
end
