# frozen_string_literal: true

module Fairlead
  class Configuration
    # Writes guides/reference/configuration.md from the table of options. A test compares the page with it, and writes the
    # page when FAIRLEAD_WRITE_GUIDES is set.
    module Reference
      INTRODUCTION = <<~MARKDOWN
        # Options: reference

        [Configuration](../configuration.md) explains how to set them. This page is generated from the table that
        `fairlead --help` shows.
      MARKDOWN

      CONCLUSION = <<~MARKDOWN
        ## How Fairlead recognises a rush

        A burst is no rush, nor are a thousand clients of which each waits for its response before it asks again. Fairlead
        rejects requests (see `queue_target`) only while all of this holds:

        - For a second, every request that was started had waited for at least a third of `queue_target`.
        - A new request would wait for three times `queue_target`. If it would wait for ten times as long, half a second suffices.
        - The number of requests in all workers, running ones included, has doubled meanwhile and still grows.
        - No worker has room.
        - The queue is four times as long as the number of requests being served.

        Requests that wait for something themselves (a database, another service, `sleep`) are not in the queue.
      MARKDOWN

      # @return [String] the whole page.
      def self.to_markdown
        [INTRODUCTION, *groups, hooks, CONCLUSION].join("\n")
      end

      def self.groups
        GROUPS.map do |group, title|
          options = TABLE.values.select { |option| option.group == group }
          "## #{title}\n\n#{options.map { |option| entry(option) }.join("\n")}"
        end
      end

      def self.entry(option)
        flag = option.boolean? ? option.flag.sub("--", "--[no-]") : option.flag
        flags = [*("-#{option.short}" if option.short), flag].map { |word| "`#{word}`" }
        variables = option.variables.map { |name| "`#{name}`" }
        <<~MARKDOWN
          ### `#{option.name}`

          #{option.description}

          #{option.expectation.sub(/\A./, &:upcase)}. Default: #{option.default_in_words}.

          `#{option.name}` in the file, #{flags.join(" or ")}, or #{variables.join(" or ")} in the environment.
        MARKDOWN
      end

      def self.hooks
        rows = HOOKS.map do |name, description|
          others = ALIASES.filter_map { |other, original| "`#{other}`" if original == name }
          "| `#{name}` | #{description} | #{others.join(", ")} |"
        end
        <<~MARKDOWN
          ## Hooks

          | hook | | also known as |
          | --- | --- | --- |
          #{rows.join("\n")}
        MARKDOWN
      end
      private_class_method :groups, :entry, :hooks
    end
  end
end
