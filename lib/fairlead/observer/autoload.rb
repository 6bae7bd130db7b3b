# frozen_string_literal: true

# What monitoring reads: metrics, a dashboard, and the HTTP server of the observer process, which also answers while every worker is stuck.
# Called by supervision.
# Calls control and listening.
module Fairlead
  autoload :AccessToken, "fairlead/observer/access_token"
  autoload :Dashboard, "fairlead/observer/dashboard"
  autoload :Exposition, "fairlead/observer/exposition"
  autoload :History, "fairlead/observer/history"
  autoload :Metrics, "fairlead/observer/metrics"
  autoload :MetricsEndpoint, "fairlead/observer/metrics_endpoint"
  autoload :ObserverConnection, "fairlead/observer/observer_connection"
  autoload :ObserverServer, "fairlead/observer/observer_server"
  autoload :ServerStatus, "fairlead/observer/server_status"
end
