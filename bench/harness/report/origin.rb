# frozen_string_literal: true

require_relative "../gaps"
require_relative "rounds"

module Bench
  class Report
    # The page's parts that say of a result where it comes from: when and how it was measured, what is missing, which
    # versions there were, and how each server was started.
    module Origin
      # The gem of each server, where it has another name.
      GEMS = { "itsi" => "itsi-server" }.freeze
      private_constant :GEMS

      private

      # When and how it was measured, a result or one of the pool's tables.
      def facts(result)
        return unless result

        seconds, warm_up, workers = result.values_at("seconds", "warm_up", "workers")
        facts = [
          result["date"], "#{Rounds.text(result["rounds"])}#{" of #{seconds} s" if seconds}",
          *result["loads"]&.filter_map { |load| Rounds.note(load) }&.uniq, warm_up && "warm-up #{warm_up} s",
          workers && "#{workers} worker#{"s" if workers != 1} each",
          result["commit"] || result.dig("versions", "fairlead"), result["ruby"]
        ]
        %(<p class="note">#{escape(facts.compact.join(" · "))}</p>\n)
      end

      # A peer or a load that is not there is no accident of the page.
      def gaps(name, result)
        return unless result && Workload.names.include?(name)

        missing = Gaps.of(Workload.load(name), result)
        %(<p class="note">Not measured yet: #{escape(missing.join("; "))}.</p>\n) if missing.any?
      end

      # Folded away.
      def settings(result)
        return unless result&.key?("servers")

        started = result["servers"].map do |label, server|
          files = server["files"].map { |file, text| "<pre># #{escape(file)}\n#{escape(text.strip)}</pre>" }
          environment = server["environment"].map { |variable, value| "#{variable}=#{value}" }
          command = [*environment, ("ruby --yjit" unless server["ruby"] == false), server["command"]].compact.join(" ")
          "<dt>#{escape(label)} #{version(label, result)}</dt><dd><code>#{escape(command)}</code>#{files.join}</dd>"
        end
        %(<details><summary>Versions, and how each server was started</summary>\n<p class="note">#{tools(result)}</p>\n) +
          "<dl>#{started.join("\n")}</dl></details>\n"
      end

      def version(label, result)
        name = label[/\A[^:]+/]
        escape(result.dig("versions", "gems", GEMS.fetch(name, name)))
      end

      def tools(result)
        versions = result["versions"]
        gems = versions["gems"].slice("rack", "rails", "pg", "trilogy", "mysql2").map { |pair| pair.join(" ") }
        escape([*versions.values_at("ruby", "wrk", "database"), *gems].compact.join(" · "))
      end
    end
  end
end
