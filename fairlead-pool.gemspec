# frozen_string_literal: true

require_relative "lib/fairlead/pool/version"

Gem::Specification.new do |spec|
  spec.name = "fairlead-pool"
  spec.version = Fairlead::POOL_VERSION
  spec.summary = "A connection pool for threads and fibers: strictly first come, first served."
  spec.description = <<~TEXT
    A pool of connections, or of anything scarce, with the API of the connection_pool gem. Whoever gives a
    connection back hands it to the oldest waiter, be it a thread or a fiber, so nobody starves. Pure Ruby, for
    any server and for none.
  TEXT
  spec.authors = ["The Fairlead authors"]
  spec.license = "MIT"
  spec.required_ruby_version = ">= 3.1"

  spec.files = Dir.chdir(__dir__) do
    Dir["lib/fairlead-pool.rb", "lib/fairlead/pool.rb", "lib/fairlead/pool/*.rb",
      "guides/fair-pool.md", "LICENSE"]
  end
  spec.require_paths = ["lib"]
  spec.metadata = { "rubygems_mfa_required" => "true" }
end
