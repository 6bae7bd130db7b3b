# frozen_string_literal: true

require "open3"
require "tmpdir"

module Fairlead
  # A terminal under test: a tmux server of its own with one window, in which a shell script runs.
  class Tmux
    # @param script [String] for sh
    # @param env [Hash{String => String}]
    def initialize(script, columns: 100, rows: 24, directory: ".", env: {})
      @folder = Dir.mktmpdir("fairlead-tmux-")
      File.write(File.join(@folder, "script"), script)
      File.write(File.join(@folder, "tmux.conf"), "set -g remain-on-exit on\nset -g default-terminal screen\n")
      variables = { "LC_ALL" => "C.UTF-8", **env }.flat_map { |name, value| ["-e", "#{name}=#{value}"] }
      tmux("-f", File.join(@folder, "tmux.conf"), "new-session", "-d", "-x", columns.to_s, "-y", rows.to_s, "-c", directory, *variables,
        "sh #{@folder}/script")
    end

    # @return [Array<String>] the lines of the screen, without spaces at their ends.
    def lines = tmux("capture-pane", "-p").lines(chomp: true).map(&:rstrip)

    def screen = lines.join("\n")

    # Presses keys, by tmux' names of them.
    def press(*keys) = tmux("send-keys", *keys)

    def resize(columns, rows) = tmux("resize-window", "-x", columns.to_s, "-y", rows.to_s)

    # @return [String] what tmux knows of the terminal, like "alternate_on".
    def state(name) = tmux("display-message", "-p", "\#{#{name}}").chomp

    def finish
      tmux("kill-server")
      FileUtils.remove_entry(@folder)
    end

    private

    def tmux(*arguments)
      output, status = Open3.capture2e({ "TMUX" => nil, "LC_ALL" => "C.UTF-8" }, "tmux", "-S", File.join(@folder, "socket"), *arguments)
      raise "tmux #{arguments.join(" ")}: #{output}" unless status.success?

      output.force_encoding(Encoding::UTF_8)
    end
  end
end
