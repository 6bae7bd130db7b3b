# frozen_string_literal: true

module Fairlead
  # Compresses responses of the app for clients that accept it (option `compress`), in slices, without Ruby's lock.
  class Compression
    autoload :Body, "fairlead/serving/compression/body"
    autoload :Encoders, "fairlead/serving/compression/encoders"
    autoload :Secrets, "fairlead/serving/compression/secrets"

    TYPES = %r{\A(?:text/|image/svg\+xml|
      application/(?:json|javascript|x-javascript|xml|wasm|graphql|[\w.-]+\+(?:json|xml)))}ix
    # What says that the bytes must stay as they are, or that they do not go through the server.
    BARRED = %w[content-encoding content-range transfer-encoding trailer upgrade content-md5 digest content-digest repr-digest
                rack.hijack rack.protocol].freeze
    WITHOUT_BODY = [204, 205, 206, 304].freeze
    # Bytes below which compression does not pay.
    SMALLEST = 1024
    # The coding whose length is padded.
    PADDED = %w[gzip].freeze
    private_constant :TYPES, :BARRED, :WITHOUT_BODY, :SMALLEST, :PADDED

    # @param secrets [Boolean] whether responses that may hold a secret are compressed, too.
    def initialize(secrets: false)
      @secrets = secrets
      @encoders = Encoders.available
      @codings = @encoders.keys.freeze
    end

    # @param headers [Hash] of the app's response; it stays as it is.
    # @return [Array(Hash, Object)] headers and body to be sent; the app's own where nothing is to be compressed.
    def apply(env, status, headers, body)
      return headers, body unless headers.is_a?(Hash) && compressible?(status, fields = fields_of(headers), body)

      headers = headers.dup
      add_vary(headers, fields)
      coding = coding(env, fields)
      return headers, body unless coding

      parts = body.respond_to?(:to_ary) ? body.to_ary : body
      size = parts.sum { |part| part.to_s.bytesize } if parts.is_a?(Array)
      return headers, parts if small?(env, fields, size)

      mark(headers, fields, coding)
      [headers, env["REQUEST_METHOD"] == "HEAD" ? [] : compressed(parts, size, @encoders[coding])]
    end

    private

    # Names are of any case in Rack 2.
    def fields_of(headers)
      headers.compact.to_h { |name, value| [name.to_s.downcase, [name, value.is_a?(Array) ? value.join(", ") : value.to_s]] }
    end

    def compressible?(status, fields, body)
      status.to_i >= 200 && !WITHOUT_BODY.include?(status.to_i) && body.respond_to?(:each) && !body.respond_to?(:to_path) &&
        TYPES.match?(fields.dig("content-type", 1).to_s) && BARRED.none? { |name| fields.key?(name) } &&
        !fields.dig("cache-control", 1).to_s.match?(/\bno-transform\b/i)
    end

    def add_vary(headers, fields)
      name, value = fields["vary"]
      return if value&.match?(/\*|accept-encoding/i)

      headers[name || "vary"] = value.to_s.empty? ? "accept-encoding" : "#{value}, accept-encoding"
    end

    # @return [String, nil] nil: the bytes stay as they are.
    def coding(env, fields)
      secret = Secrets.possible?(env, fields)
      return if secret && !@secrets

      ContentCoding.best(env["HTTP_ACCEPT_ENCODING"], secret ? PADDED : @codings)
    end

    # Of a response to HEAD without a length nobody knows.
    #
    # @param size [Integer, nil] of the parts; nil: they are a stream.
    def small?(env, fields, size)
      length = fields.dig("content-length", 1)
      return length.to_i < SMALLEST if length
      return true if env["REQUEST_METHOD"] == "HEAD"

      size ? size < SMALLEST : false
    end

    # What was said of the bytes before.
    def mark(headers, fields, coding)
      headers["content-encoding"] = coding
      headers.delete(fields["content-length"].first) if fields["content-length"]
      headers.delete(fields["accept-ranges"].first) if fields["accept-ranges"]
      name, etag = fields["etag"]
      headers[name] = "W/#{etag}" if etag && !etag.start_with?("W/")
    end

    def compressed(parts, size, encoder)
      return Body.new(parts, encoder) unless size && size <= Body::SLICE

      [encoder.whole(parts.map { |part| part.to_s.b }.join)] # parts may differ in encoding
    end
  end
end
