# frozen_string_literal: true

# The app of `mixed`. With APP_METRICS, for servers without metrics of their own, the middleware of prometheus-client counts requests
# and shows /metrics.
if ENV["APP_METRICS"]
  require "prometheus/middleware/collector"
  require "prometheus/middleware/exporter"
  use Prometheus::Middleware::Collector
  use Prometheus::Middleware::Exporter
end

run Rack::Builder.parse_file(File.join(__dir__, "mixed.ru"))
