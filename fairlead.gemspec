# frozen_string_literal: true

require_relative "lib/fairlead/version"

# The pool is a gem of its own, so that other servers can use it: what that one packs is left out here.
pool = Gem::Specification.load(File.join(__dir__, "fairlead-pool.gemspec"))

Gem::Specification.new do |spec|
  spec.name = "fairlead"
  spec.version = Fairlead::VERSION
  spec.summary = "A Rack and Rails server that runs every request in a fiber, from a C core."
  spec.description = <<~TEXT
    Fairlead serves Rack and Rails apps with one fiber per request: a request that waits for a socket, a
    database, a lock or a sleep costs almost nothing, and everything scarce goes to the request that came
    first. A C core reads and writes HTTP without Ruby; async schedules the fibers.
  TEXT
  spec.authors = ["The Fairlead authors"]
  spec.license = "MIT"
  spec.required_ruby_version = ">= 3.3"

  spec.files = Dir.chdir(__dir__) do
    Dir["lib/**/*.rb", "lib/**/*.{tt,html}", "ext/**/*.{c,h,rb,md}", "ext/fairlead/depend", "exe/*", "guides/**/*.{md,svg,png}",
      "README.md", "CHANGELOG.md"] - pool.files + ["LICENSE"]
  end
  spec.bindir = "exe"
  spec.executables = ["fairlead"]
  spec.extensions = ["ext/fairlead/extconf.rb"]
  spec.require_paths = ["lib"]
  spec.metadata = { "rubygems_mfa_required" => "true" }

  spec.add_dependency "async", "~> 2.46"
  spec.add_dependency pool.name, pool.version.to_s
  spec.add_dependency "rack", ">= 2.2"
  spec.add_dependency "rackup"
end
