# frozen_string_literal: true

require "json"
require "open3"
require_relative "native_program"
require_relative "public_files"
require_relative "wrk"

module Bench
  # Browsers that load a page and its assets over TLS. See pages.c.
  class Pages
    # @param browsers [Integer] each of which loads its next page once all of the last one is there.
    # @param fresh [Boolean] whether each page has a new visitor, who opens new connections.
    def initialize(browsers:, fresh: false, path: "/", assets: PublicFiles.assets)
      @browsers = browsers
      @fresh = fresh
      @path = path
      @assets = assets
    end

    def name = "pages"

    def connections = @browsers

    def description
      "#{@browsers} browsers, a page (path #{@path}) and its #{@assets.size} assets, " \
        "#{@fresh ? "each over new connections" : "over kept connections"}: one of HTTP/2, or six of HTTP/1.1"
    end

    def main_figure = :pages_per_second

    # @return [Hash{Symbol => Numeric}] of pages: latencies in milliseconds, kilobytes of all bodies as they came; requests:
    #   responses of pages and assets.
    # @raise [Wrk::Failed] when a page was not compressed.
    def run(server, seconds)
      output, status = Open3.capture2(
        NativeProgram.path("pages", "-lnghttp2", "-lssl", "-lcrypto"), server.port.to_s, seconds.to_s, @browsers.to_s, @fresh ? "1" : "0",
        @path, *@assets
      )
      raise Wrk::Failed, "the load generator failed" unless status.success?

      figures = JSON.parse(output, symbolize_names: true)
      plain, pages, bytes = figures.values_at(:plain, :pages, :bytes)
      raise Wrk::Failed, "#{plain} pages came without compression" if plain.positive?

      {
        **figures.except(:plain, :bytes, :http2), pages_per_second: pages.fdiv(figures[:seconds]),
        page_kilobytes: bytes.fdiv([pages, 1].max * 1000), http: figures[:http2] ? 2 : 1
      }
    end
  end
end
