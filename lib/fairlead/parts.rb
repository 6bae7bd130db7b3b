# frozen_string_literal: true

# Loads the module's errors and its API, and registers where all constants are. The command loads this file instead of "fairlead",
# which the app's Gemfile then loads after Rails, with the railtie.
require_relative "version"
require_relative "errors"
require_relative "api"
require_relative "clock"

%w[
  acme connection_budget control fiber_safety hot_restart integrations ipc listening observer rackup serving stalls supervision
].each do |room|
  require_relative "#{room}/autoload"
end

module Fairlead
  # The core's binding.
  %i[
    ClientGone FiberOwner Platform RequestTimes ServerStopping SharedPage StallKind TLS WorkerState
  ].each { |name| autoload name, "fairlead/fairlead" }

  autoload :ActiveRecord, "fairlead/active_record"
  autoload :CLI, "fairlead/cli"
  autoload :Compatibility, "fairlead/compatibility"
  autoload :Configuration, "fairlead/configuration"
  autoload :Doctor, "fairlead/doctor"
  autoload :Drivers, "fairlead/drivers"
  autoload :ErrorReport, "fairlead/error_report"
  autoload :Log, "fairlead/log"
  autoload :Pool, "fairlead/pool"
  autoload :Signals, "fairlead/signals"
end
