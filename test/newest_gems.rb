# frozen_string_literal: true

# Prints what of Fairlead::Compatibility's table does not fit the gems in GEM_PATH. Ends with 1 if anything does not.
$LOAD_PATH.unshift File.expand_path("../lib", __dir__)
require "fairlead/parts"
require "fairlead/serving/selector"

%w[async action_controller active_record active_support/concurrency/share_lock pg mysql2 trilogy sqlite3 rack-timeout net/http].each { |file| require file }
%w[postgresql mysql2 trilogy].each { |name| require "active_record/connection_adapters/#{name}_adapter" }
present = Fairlead::Compatibility::TABLE.select { |_, row| row.version }
rows = present.reject { |_, row| row.tested? == false && row.untested == :leave_out }
rows.each { |name, row| puts format("%-12s %-14s %-9s %s", name, row.gem, row.version, row.misfit || "fits") }
left_out = present.keys - rows.keys
puts "left out, since nobody has tested them: #{left_out.join(", ")}" if left_out.any?
exit rows.none? { |name, row| name != :own_queue && row.misfit }
