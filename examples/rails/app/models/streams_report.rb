# frozen_string_literal: true

# What `bin/bench streams-beside-pages` has measured with 1,000 streams: Fairlead and Puma.
StreamsReport = Data.define(:date, :rows) do
  # @return [StreamsReport, nil] nil if nothing was measured.
  def self.read
    file = ENV.fetch("DEMO_STREAMS_REPORT") { Rails.root.join("../../bench/results/streams-beside-pages.json") }
    return unless File.exist?(file)

    report = JSON.parse(File.read(file))
    summary = report["loads"].find { |load| load["name"] == "1000" }["summary"]
    new(date: Date.parse(report["date"]), rows: summary.select { |server, _| server.match?(/\A(fairlead|puma)/) })
  end

  # @return [Float, nil] the median of all rounds.
  def figure(server, name) = rows[server].dig(name, "median")
end
