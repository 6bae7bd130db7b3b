# frozen_string_literal: true

require "optparse"

module Bench
  # What a call of bin/bench says about how it measures.
  Options = Struct.new(
    :against, :rounds, :seconds, :only, :ruby, :build_ruby, :seed, :save, :list, :ours, :patience, :priority, :minutes,
    :continue, :sweep, :price, :peer_rounds, :instructions
  ) do
    # Whether the result is one to publish: every peer and every load, at the full length.
    def whole? = save || [against, rounds, seconds, only, ours, priority].none?

    # @return [String, nil] what is compared where it is not Fairlead with its peers.
    def kind = sweep ? "sweep" : ("price" if price)

    # @return [Array<String>] the words that are no flags.
    # @raise [OptionParser::ParseError]
    def parse(arguments)
      OptionParser.new do |parser|
        parser.banner = Options::BANNER
        choose_what(parser)
        choose_how_long(parser)
        choose_where(parser)
      end.parse(arguments)
    end

    private

    def choose_what(parser)
      parser.on("--list", "show workloads, loads and peers") { self.list = true }
      parser.on("--against LIST", Array, "only these peers (puma,falcon; with a setting: puma:60), or none") do |names|
        self.against = names
      end
      parser.on("--ours LIST", Array, "what to compare with the peers, the reference first: fairlead,",
        "fairlead:REVISION (a git revision), or none") { |names| self.ours = names - ["none"] }
      parser.on("--only LIST", Array, "only these loads (c32,c256)") { |names| self.only = names }
      parser.on("--save", "write to bench/results also when run with options") { self.save = true }
    end

    def choose_how_long(parser)
      parser.on("--rounds N", Integer, "rounds, each of which measures every server (5; a sweep: 3)") do |n|
        self.rounds = n
      end
      parser.on("--peer-rounds N", Integer, "in how many of them the peers take part (all)") do |n|
        self.peer_rounds = n
      end
      parser.on("--seconds N", Integer, "how long each load is measured") { |n| self.seconds = n }
      parser.on("--minutes N", Float, "end before N minutes are over, go on there the next time;",
        "status #{Options::UNFINISHED} while there is more to do") { |n| self.minutes = n }
      parser.on("--continue", "go on where an earlier call was ended, and leave out what is done: what was",
        "measured of this very state in the same way") { self.continue = true }
      parser.on("--patience N", Integer, "repeat a measurement up to N times while others disturb",
        "it (the quietest counts)") { |n| self.patience = n }
      parser.on("--seed N", Integer, "repeat the order of an earlier run") { |n| self.seed = n }
    end

    def choose_where(parser)
      parser.on("--ruby PATH", "a Ruby with YJIT (else one is looked for)") { |path| self.ruby = path }
      parser.on("--build-ruby", "build one if there is none") { self.build_ruby = true }
      parser.on("--priority", "run servers and load before all other processes (as root): for quick",
        "looks on a shared machine; a database does not get it") { self.priority = true }
    end
  end

  # The exit status for whoever calls in slices: there is more to do.
  Options::UNFINISHED = 3
  Options::BANNER = <<~TEXT
    Usage: bin/bench WORKLOAD… [options]
           bin/bench all | --list
           bin/bench all --minutes 8     the same in slices: each call does as much as fits in, and the next goes on
           bin/bench sweep WORKLOAD…     the settings of peers that were tried (threads), beside each other
           bin/bench report [check]      the page of charts, and the README's tables and picture
           bin/bench price [WORKLOAD…]   what the ladder costs where nothing stalls
           bin/bench compare BEFORE AFTER    what moved between two results, beyond their noise

  TEXT
end
