# frozen_string_literal: true

require_relative "puma"

module Bench
  module Servers
    # Thruster before Puma, as `rails new` has it: it does TLS and HTTP/2, and keeps in memory what may be cached.
    class Thruster < Server
      def command(site) = [*gem_program("thrust"), "ruby", "--yjit", *Puma.new("puma", nil).behind(site)]

      # Its certificates come from an authority, or from the folder in which it keeps those.
      def environment(site)
        plain = { "TARGET_PORT" => site.backend.to_s, "HTTP_PORT" => (site.tls ? 0 : site.port).to_s, "LOG_REQUESTS" => "false" }
        return plain unless site.tls

        { **plain, "HTTPS_PORT" => site.port.to_s, "TLS_DOMAIN" => TLS::NAME, "STORAGE_PATH" => site.tls.folder }
      end
    end
  end
end
