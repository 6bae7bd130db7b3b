# frozen_string_literal: true

require "fairlead/fairlead"

module Fairlead
  # What a Rails app's router knows of a stalled request: the pattern of its path, and its controller and action. That makes
  # "/articles/how-to-tie-a-knot" and "/articles/splices" one route, "GET /articles/:slug" (articles#show), which their paths alone do not
  # show. Nothing here asks the router: its result is in the request's env once it has run.
  module RailsRoutes
    # An optional part of a pattern. Patterns are tried with and without such parts, if there are few.
    OPTIONAL = /\(([^()]*)\)/
    MOST_OPTIONAL = 5
    # The most routes that are told apart from a learnt one.
    MOST_OTHERS = 20
    private_constant :OPTIONAL, :MOST_OPTIONAL, :MOST_OTHERS

    class << self
      # A callback of `rack.response_finished`.
      def call(env, *) = learn(env)

      # Tells the core the route of this request, to which it then counts what it knew by the path alone. Safe in any thread.
      #
      # @param env [Hash]
      # @return [Boolean] whether the router has run for it.
      def learn(env)
        spec = spec_of(env) or return false
        page = Fairlead.page or return true
        method = env["rack.methodoverride.original_method"] || env["REQUEST_METHOD"]
        path = env["SCRIPT_NAME"].to_s.b << env["PATH_INFO"].to_s.b
        pattern = fit(spec, path) or return true
        teach(page, method, pattern, action_of(env))
        page.merge_route(method, path)
        true
      end

      # @param env [Hash]
      # @return [String, nil] "articles#show"
      def action_of(env)
        parameters = env["action_dispatch.request.path_parameters"]
        "#{parameters[:controller]}##{parameters[:action]}" if parameters&.key?(:controller)
      end

      # @param spec [String] a pattern as `rails routes` shows it: "/articles/:slug(.:format)"
      # @param path [String] any bytes
      # @return [String, nil] the pattern of the whole path; the router of a mounted engine only knows its end. nil: the pattern stands
      #   for any number of parts, or does not match.
      def fit(spec, path)
        parts = parts_of(path)
        found = variants(spec).find { |variant| variant.size <= parts.size && like?(variant, parts.last(variant.size)) }
        return unless found

        before = parts.first(parts.size - found.size)
        before = parts_of(Fairlead.route("", "/#{before.join("/")}").lstrip)
        "/#{[*before, *found].join("/")}"
      end

      private

      # Rails 8.1 has the pattern, older versions have the route.
      def spec_of(env)
        env["action_dispatch.route_uri_pattern"] || env["action_dispatch.route"]&.path&.spec&.to_s
      end

      def parts_of(path) = path.b.split("/").reject(&:empty?)

      # A pattern with and without its optional parts; the longest first.
      def variants(spec)
        spec = spec.delete_suffix("(.:format)")
        return [] if spec.include?("*") || spec.count("(") > MOST_OPTIONAL

        open = [spec]
        while open.any?(OPTIONAL)
          open = open.flat_map { |one| one.match?(OPTIONAL) ? [one.sub(OPTIONAL, "\\1"), one.sub(OPTIONAL, "")] : [one] }
        end
        open.uniq.map { |one| parts_of(one) }.sort_by { |parts| -parts.size }
      end

      def like?(pattern, parts)
        pattern.zip(parts).all? do |wanted, given|
          wanted.include?(":") || wanted == given || wanted == given.sub(/\.[a-z]+\z/i, "")
        end
      end

      def teach(page, method, pattern, action)
        @known ||= {}
        return if @known["#{method} #{pattern}"]

        @known["#{method} #{pattern}"] = true
        page.add_route_pattern("#{method} #{pattern}", action.to_s)
        others(method, parts_of(pattern)).each { |other, name| page.add_route_pattern("#{method} #{other}", name) }
      end

      # More specific routes whose paths the pattern would match, too: "/articles/new" beside "/articles/:slug".
      def others(method, pattern)
        method = "GET" if method == "HEAD"
        found = all_routes.lazy.select { |route| route.verb.empty? || route.verb.split("|").include?(method) }.flat_map do |route|
          shapes = variants(route.path.spec.to_s).select { |shape| hidden?(shape, pattern) }
          shapes.map { |shape| ["/#{shape.join("/")}", "#{route.defaults[:controller]}##{route.defaults[:action]}"] }
        end
        found.first(MOST_OTHERS)
      end

      def all_routes = (::Rails.application if defined?(::Rails.application))&.routes&.routes.to_a

      # Whether both match some path, and this one is more specific.
      def hidden?(shape, pattern)
        return false unless shape.size == pattern.size

        pairs = shape.zip(pattern)
        pairs.all? { |own, other| own == other || own.include?(":") || other.include?(":") } &&
          pairs.any? { |own, other| other.include?(":") && !own.include?(":") }
      end
    end
  end
end
