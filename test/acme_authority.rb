# frozen_string_literal: true

require "json"
require "net/http"
require "openssl"
require "socket"
require_relative "certificate_files"

module Fairlead
  # An authority that speaks ACME (RFC 8555) in a thread, for tests. It checks signatures and nonces, and asks a server of the test's for
  # the answers to its challenges.
  class ACMEAuthority
    ENCODE = ->(bytes) { [bytes].pack("m0").tr("+/", "-_").delete("=") }
    DECODE = ->(text) { text.tr("-_", "+/").unpack1("m") }
    private_constant :ENCODE, :DECODE

    # @return [Array<Integer>] seconds that the next certificates last; the last number is for all further ones.
    attr_accessor :lifetimes
    # @return [String, nil] why it issues nothing.
    attr_accessor :refusal
    # @return [Array<String>] "POST /order", as they came.
    attr_reader :requests

    def initialize(certificates)
      @certificates = certificates
      @lifetimes = [90 * 86_400]
      @requests = []
      @nonces = []
      @accounts = {}
      @orders = []
      @port = Thread::Queue.new
      @lock = Thread::Mutex.new
      @server = TCPServer.new("127.0.0.1", 0)
      @thread = Thread.new { loop { serve(@server.accept) } }
    end

    def directory = "#{address}/directory"

    # Where the hosts of orders are. nil: it waits until that is known.
    def ask_at(port)
      @port.clear
      @port.push(port) if port
    end

    def close
      @thread.kill.join
      @server.close
    end

    private

    def address = "http://127.0.0.1:#{@server.addr[1]}"

    def serve(socket)
      method, path = socket.gets.to_s.split
      headers = {}
      while (line = socket.gets&.chomp) && !line.empty?
        name, value = line.split(": ", 2)
        headers[name.downcase] = value
      end
      body = socket.read(headers["content-length"].to_i)
      @requests << "#{method} #{path[%r{/\w+}]}"
      status, fields, answer = respond(method, path, body)
      write(socket, method, status, fields, answer)
    rescue StandardError => error
      write(socket, method, 500, {}, { type: "urn:ietf:params:acme:error:serverInternal", detail: error.full_message(highlight: false) })
    ensure
      socket.close
    end

    def write(socket, method, status, fields, answer)
      text = answer.is_a?(String) ? answer : JSON.generate(answer)
      type = answer.is_a?(String) ? "application/pem-certificate-chain" : "application/#{"problem+" if status >= 400}json"
      @nonces << (nonce = ENCODE.call(Random.bytes(12)))
      fields = { "content-type" => type, "content-length" => text.bytesize, "replay-nonce" => nonce, "connection" => "close", **fields }
      socket.write("HTTP/1.1 #{status} x\r\n#{fields.map { |name, value| "#{name}: #{value}\r\n" }.join}\r\n#{text unless method == "HEAD"}")
    end

    def respond(method, path, body)
      return [200, {}, directory_answer] if path == "/directory"
      return [200, {}, {}] if method == "HEAD"

      payload, account = verify(body, path)
      _, resource, number = path.split("/")
      number &&= number.to_i
      case resource
      when "account" then [201, { "location" => "#{address}/account/#{account}" }, { status: "valid" }]
      when "neworder" then new_order(payload, account)
      when "order" then [200, {}, order(number)]
      when "authorization" then [200, {}, authorization(number)]
      when "challenge" then challenge(number, asked: payload == {})
      when "finalize" then finalize(number, payload)
      when "certificate" then [200, {}, @orders[number][:certificate]]
      end
    end

    def directory_answer
      { newNonce: "#{address}/nonce", newAccount: "#{address}/account", newOrder: "#{address}/neworder", meta: { termsOfService: address } }
    end

    # @return [Array(Object, String)] the payload, and the thumbprint of the account's key.
    def verify(body, path)
      protected, payload, signature = JSON.parse(body).values_at("protected", "payload", "signature")
      header = JSON.parse(DECODE.call(protected))
      raise "a wrong nonce" unless @nonces.delete(header["nonce"])
      raise "a wrong URL" unless header["url"] == "#{address}#{path}"

      jwk = header["jwk"] || @accounts.fetch(header["kid"][%r{/account/(.+)}, 1])
      thumbprint = ENCODE.call(OpenSSL::Digest.digest("SHA256", JSON.generate(jwk.slice("crv", "kty", "x", "y").sort.to_h)))
      raise "a wrong signature" unless signed?(jwk, "#{protected}.#{payload}", DECODE.call(signature))

      @accounts[thumbprint] = jwk
      [(JSON.parse(DECODE.call(payload)) unless payload.empty?), thumbprint]
    end

    def signed?(jwk, text, signature)
      point = "\x04".b + DECODE.call(jwk["x"]) + DECODE.call(jwk["y"])
      curve = OpenSSL::ASN1.Sequence([OpenSSL::ASN1.ObjectId("id-ecPublicKey"), OpenSSL::ASN1.ObjectId("prime256v1")])
      key = OpenSSL::PKey.read(OpenSSL::ASN1.Sequence([curve, OpenSSL::ASN1.BitString(point)]).to_der)
      numbers = [signature[0, 32], signature[32, 32]].map { |bytes| OpenSSL::ASN1.Integer(OpenSSL::BN.new(bytes, 2)) }
      key.verify("SHA256", OpenSSL::ASN1.Sequence(numbers).to_der, text)
    end

    def new_order(payload, account)
      names = payload.fetch("identifiers").map { |identifier| identifier.fetch("value") }
      @orders << { names:, account:, status: "pending", proofs: names.map { { token: ENCODE.call(Random.bytes(16)), status: "pending" } } }
      [201, { "location" => "#{address}/order/#{@orders.size - 1}" }, order(@orders.size - 1)]
    end

    def order(number)
      one = @orders[number]
      one[:status] = "ready" if one[:status] == "pending" && one[:proofs].all? { |proof| proof[:status] == "valid" }
      { status: one[:status], identifiers: one[:names].map { |value| { type: "dns", value: } }, finalize: "#{address}/finalize/#{number}",
        authorizations: one[:names].each_index.map { |i| "#{address}/authorization/#{(number * 100) + i}" },
        **(one[:certificate] ? { certificate: "#{address}/certificate/#{number}" } : {}) }
    end

    def authorization(number)
      one, proof = proof_of(number)
      { status: proof[:status], identifier: { type: "dns", value: one[:names][number % 100] }, challenges: [challenge_answer(number)] }
    end

    def proof_of(number) = @orders[number / 100].then { |one| [one, one[:proofs][number % 100]] }

    def challenge_answer(number)
      _, proof = proof_of(number)
      { type: "http-01", url: "#{address}/challenge/#{number}", **proof.slice(:token, :status, :error) }
    end

    def challenge(number, asked:)
      one, proof = proof_of(number)
      if asked && proof[:status] == "pending"
        proof[:status] = "processing"
        Thread.new { look(one, proof, one[:names][number % 100]) }
      end
      [200, {}, challenge_answer(number)]
    end

    def look(one, proof, name)
      port = @port.pop.tap { |known| @port.push(known) }
      answer = Net::HTTP.start("127.0.0.1", port, open_timeout: 20, read_timeout: 20) do |http|
        http.get("/.well-known/acme-challenge/#{proof[:token]}", "host" => name)
      end
      wrong = refusal || ("#{answer.code} #{answer.body}" unless answer.code == "200" && answer.body == "#{proof[:token]}.#{one[:account]}")
    rescue StandardError => error
      wrong = error.message
    ensure
      proof[:error] = { type: "urn:ietf:params:acme:error:unauthorized", detail: wrong } if wrong
      proof[:status] = wrong ? "invalid" : "valid"
    end

    def finalize(number, payload)
      one = @orders[number]
      request = OpenSSL::X509::Request.new(DECODE.call(payload.fetch("csr")))
      raise "a wrong request" unless order(number)[:status] == "ready" && request.verify(request.public_key)

      seconds = @lifetimes.size > 1 ? @lifetimes.shift : @lifetimes.first
      one[:certificate] = @certificates.for_key(request.public_key, *one[:names], from: Time.now - 1, to: Time.now + seconds)
      one[:status] = "valid"
      [200, {}, order(number)]
    end
  end
end
