# frozen_string_literal: true

module PoolBench
  SIZE = 5
  HOLD = 0.01

  # What is measured of each pool: so many workers of a kind, which share so many requests; or what one alone pays.
  Part = Struct.new(:key, :kind, :workers, :requests, :title, keyword_init: true) do
    # Of a request, once all of them wait.
    def ideal = workers * HOLD / SIZE
    def cost? = requests.zero?
    def histogram? = workers == Parts::WORKERS

    def to_h = { key: key, title: title, ideal: (ideal unless cost?) }
  end

  # The parts by their names.
  module Parts
    NAMES = %w[threads fibers crowd cost].freeze
    # JRuby has no scheduler for fibers.
    HERE = RUBY_ENGINE == "ruby" ? NAMES : %w[threads cost].freeze
    WORKERS = 32
    CROWD = 2_000

    module_function

    # @param requests [Integer] of all workers; the crowd has two each.
    def named(name, requests)
      case name
      when "crowd" then sharing(name, :fibers, CROWD, CROWD * 2)
      when "cost"
        Part.new(key: name, kind: :threads, workers: 1, requests: 0,
          title: "Taking and giving back, nobody else there: the best of five runs")
      else sharing(name, name.to_sym, WORKERS, requests / WORKERS * WORKERS)
      end
    end

    def sharing(key, kind, workers, requests)
      Part.new(key: key, kind: kind, workers: workers, requests: requests,
        title: "#{requests} requests by #{workers} #{kind} on #{SIZE} connections, each held for #{HOLD} s; ideal: " \
               "#{(SIZE / HOLD).to_i} requests/s, and #{(workers * HOLD / SIZE).round(3)} s for each once all wait")
    end
  end
end
