# frozen_string_literal: true

require_relative "crowd"
require_relative "h2load"
require_relative "handshakes"
require_relative "keep_alive_beside_new"
require_relative "open_loop"
require_relative "pages"
require_relative "public_files"
require_relative "scraped"
require_relative "server"
require_relative "stall"
require_relative "streams_beside_pages"
require_relative "tls"
require_relative "turns"
require_relative "wrk"

module Bench
  UsageError = Class.new(StandardError)

  # One workload: an app, the loads it is put under, the peers it makes sense for, and what would be ideal. Each
  # has a file in workloads/, written in the words of {Definition}.
  class Workload
    FOLDER = File.expand_path("../workloads", __dir__)
    APPS = File.expand_path("../apps", __dir__)
    # Of a run that missed, while the machine is too busy for the control too.
    REPETITIONS = 4
    private_constant :FOLDER, :APPS, :REPETITIONS
    # A server that runs no app is no peer, but shows what is possible.
    LIMITS = %w[nginx].freeze

    # A load, under its name, with what would be ideal for it, the most that its bounded figure may be in any run of
    # ours, and how long it is measured where that is not as long as the others.
    Load = Data.define(:name, :generator, :ideal, :most, :seconds) do
      def initialize(seconds: nil, **) = super

      # A run that missed its bound may have met a busy moment of the machine: it is repeated after a control, in which
      # nothing stalls. What misses again beside a control that does not, counts; so does what never got a fair chance.
      #
      # @param figures [Hash{Symbol => Object}] of the first run.
      # @yieldparam load [Load] measures it once more, or the control, and answers the figures.
      # @return [Hash{Symbol => Object}] those that count, with the earlier ones as :misses.
      def in_fairness(figures)
        misses = []
        while missed?(figures) && misses.size < REPETITIONS
          control = yield(with(generator: generator.control))
          misses << { **figures, control: control[generator.control.main_figure] }
          figures = yield(self)
          break if misses.last[:control]&.<=(most)
        end
        misses.empty? ? figures : { **figures, misses: }
      end

      private

      # Without the figure nothing is proven; a run that failed says so itself.
      def missed?(figures) = !most.nil? && !figures[:failed] && !figures[generator.bounded_figure]&.<=(most)
    end
    # A figure that is aimed at: the test is called with a {Comparison}.
    Aim = Data.define(:load, :text, :test)

    attr_accessor :title, :app, :peers, :swept, :workers, :seconds, :warm_up, :settle, :check_path, :expectation,
      :database, :driver, :environment, :fresh, :curve, :metrics, :tls, :public, :compress
    attr_reader :name, :loads, :aims

    # @return [Array<String>] the names of all workloads there are.
    def self.names = Dir.children(FOLDER).map { |file| file.delete_suffix(".rb").tr("_", "-") }.sort

    def self.load(name)
      raise UsageError, "no workload #{name}; there are: #{names.join(", ")}" unless names.include?(name)

      new(name).tap { |workload| Definition.new(workload).like(name) }
    end

    def initialize(name)
      @name = name
      @loads = []
      @aims = []
      @peers = []
      @swept = []
      @workers = 1
      @seconds = 5
      @warm_up = 2
      @settle = 0
      @check_path = "/"
      @environment = {}
    end

    def app_path = File.join(APPS, @app)

    # @return [Site]
    def site(**where)
      tls = TLS.new(File.join(Toolchain::WORK, "tls")) if @tls
      Site.new(app: app_path, workers: @workers, tls:, public: (PublicFiles.folder if @public), compress: @compress, **where)
    end

    def expects?(body) = @expectation.nil? || @expectation === body

    # The words of a workload's file.
    class Definition
      def initialize(workload)
        @workload = workload
      end

      # All that another workload is; what is said after it takes the place of what that says.
      def like(name)
        path = File.join(FOLDER, "#{name.tr("-", "_")}.rb")
        instance_eval(File.read(path), path)
      end

      def title(text) = @workload.title = text
      # A file in apps/, the same for all servers.
      def app(file) = @workload.app = file
      # Who is compared, each as "name" or "name:setting".
      def peers(*labels) = @workload.peers = labels
      # The settings of peers from which those above were taken: `bin/bench sweep` compares them with each other.
      def sweep(*labels) = @workload.swept = labels
      # Processes of each server.
      def workers(count) = @workload.workers = count

      # How long each load is measured, the server warmed up before the first one, and left alone after that:
      # its last requests must have ended.
      def seconds(count, warm_up: 2, settle: 0)
        @workload.seconds = count
        @workload.warm_up = warm_up
        @workload.settle = settle
      end

      # What a right answer's body is, a String or a Regexp; asked for before and after each run.
      def expect(body, path: "/")
        @workload.expectation = body
        @workload.check_path = path
      end

      # The database it needs, by the name of its processes.
      #
      # @param driver [String, nil] another one than its address names: "trilogy" for a mysql2://…
      def database(name, driver: nil)
        @workload.database = name
        @workload.driver = driver
      end

      # Each load gets a server that has just been started, and what a load leaves undone is nobody's business: for
      # loads that leave much behind.
      def fresh = @workload.fresh = true
      # Environment variables of all servers.
      def environment(**variables) = @workload.environment = variables.transform_keys(&:to_s)

      # @param seconds [Integer, nil] how long it is measured, instead of as long as the others.
      # @param most [Numeric, nil] an aim for each single run of ours. A run that misses it is repeated, beside the
      #   generator's control: only what misses again, or faster than that, counts as a miss.
      def load(name, generator, ideal: nil, most: nil, seconds: nil)
        @workload.loads.reject! { |load| load.name == name }
        @workload.loads << Load.new(name:, generator:, ideal:, most:, seconds:)
        return unless most

        aim(name, "at most #{most} ms in each run, and no error") do |c|
          c.faultless? && c.within?(generator.bounded_figure, most)
        end
      end

      # Servers show metrics.
      def metrics = @workload.metrics = true

      # Servers serve the files of {PublicFiles}; an app finds their folder in an environment variable.
      def public_files
        @workload.public = true
        environment PUBLIC_FILES: PublicFiles.folder
      end

      # Servers speak TLS.
      def tls = @workload.tls = true

      # Servers compress what the app answers.
      def compressed = @workload.compress = true

      # The loads are points of a curve: what is done of all that their connections could do if each request took no
      # longer than so many seconds.
      def curve(seconds) = @workload.curve = seconds
      # What Fairlead should reach. The block says whether a {Comparison} of that load's runs does.
      def aim(load, text, &test) = @workload.aims << Aim.new(load:, text:, test:)

      # Faster than each peer in these loads.
      def ahead(*loads)
        loads.each do |name|
          main = @workload.loads.find { |load| load.name == name }.generator.main_figure
          aim(name, "faster than each server that runs the app") { |c| c.times(main, *(@workload.peers - LIMITS))&.> 1 }
        end
      end

      def wrk(...) = Wrk.new(...)
      def turns(...) = Turns.new(...)
      def crowd(...) = Crowd.new(...)
      def handshakes(...) = Handshakes.new(...)
      def h2load(...) = H2load.new(...)
      def open_loop(...) = OpenLoop.new(...)
      def pages(...) = Pages.new(...)
      def scraped(...) = Scraped.new(...)
      def stall(...) = Stall.new(...)
      def streams(...) = StreamsBesidePages.new(...)
      def keep_alive_beside_new(...) = KeepAliveBesideNew.new(...)
    end
  end
end
