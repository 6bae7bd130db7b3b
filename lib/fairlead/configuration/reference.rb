# frozen_string_literal: true

module Fairlead
  class Configuration
    # The reference page, guides/configuration.md, written from the table of options. A test checks that the page
    # is what this makes; FAIRLEAD_WRITE_GUIDES=1 lets the test write it.
    module Reference
      INTRODUCTION = <<~MARKDOWN
        # Configuration

        Nothing has to be set: `fairlead` serves the `config.ru` of the current folder with one worker per core,
        and there is no number of threads to tune. What can be set, can be set in three ways. A flag goes before
        an environment variable, an environment variable before the configuration file, and the file before the
        default.

        ## The configuration file

        `config/fairlead.rb`, if there is one, or the file that `--config` names; `--config -` reads none. It is
        Ruby, and every option is a word in it:

        ```ruby
        bind "http://127.0.0.1:3000"
        bind "unix:/run/app/fairlead.sock?mode=0660"
        workers 4
        drain_timeout 60
        body_size "50M"
        access_log "json"

        before_fork { Metrics.start }
        after_fork { |index| Cache.reconnect }
        ```

        A word without a value reads: `port 3001 if environment == "test"`. Bytes are written as numbers or like
        `"64K"`, `"10M"`, `"1G"`; durations in seconds.

        ## Addresses

        `http://host:port` serves TCP (`http://[::1]:9292` for IPv6), `unix:/path` a Unix socket, with
        `?mode=0660` for its permissions, and `unix:@name` one of Linux' abstract namespace: it has no file, and whoever is
        on the machine may connect. `http://localhost:9292` is both 127.0.0.1 and ::1. Port 0 takes a free
        port, which the start banner names. A mere port (`port 3000`, `-p 3000`, `PORT=3000`) is served on
        127.0.0.1 in development and test, and on every interface elsewhere. A variable goes before the file, and
        replaces all addresses in it; `FAIRLEAD_BIND` goes before `PORT`.

        Sockets that a service manager has opened (systemd's `LISTEN_FDS`) replace the default address;
        others that are asked for are served besides.
      MARKDOWN

      CONCLUSION = <<~MARKDOWN
        ## When more comes than can be served

        Requests wait for their turn in one line, first come, first served. When more come than the workers can
        serve, the line would only get longer, until everybody in it has given up before their turn: all work
        is then in vain. So those that come last are answered 503 with `Retry-After` at once, and their connections
        stay open; those that wait already are served in their order, within about 0.3 s (`queue_target`). As
        many are served as ever, and soon after the rush is over nobody is turned away.

        A burst is no such rush, and a thousand clients of which each waits for its answer are none either. It
        takes all of this: for a second nobody was taken who had not waited for a third of `queue_target`; whoever
        comes now would wait for three times of it (for ten times of it, half a second is enough); the requests have
        doubled meanwhile and still become more, in all workers taken together, those that are being served too; no
        worker has room; and the line is four times as long as what is being served. Requests that wait for something
        themselves (a database, another service, `sleep`) stand in no line.

        Nothing has to be set for it. If your clients are programs that would rather wait, set `queue_target 0`;
        then `queue_timeout` alone counts.

        ## Signals

        | signal, to the first process | |
        | --- | --- |
        | TERM, INT | stop accepting, finish what runs, end; past `drain_timeout`, or with a second signal, the rest is ended and told so: 504 to what runs, 503 to what waits |
        | USR2 | start new code, which takes over once it serves (`fairlead restart` does the same, and tells how it went) |
        | HUP | replace the workers one by one: each successor serves before its predecessor drains, and no request fails |
        | TTIN, TTOU | one worker more, one less |
        | USR1 | reopen the logs, here and in the workers: Fairlead's own and every file that is open for appending |

        Under Puma, USR1 is the phased restart, and HUP reopens the logs. Who comes from there sends USR2 (or calls
        `fairlead restart`) to bring new code in, and USR1 from logrotate.

        With `preload` (the default) HUP forks the new workers from the app that was loaded at the start: it
        frees memory, and opens new connections, but new code needs USR2: see [Deployment](deployment.md). With `preload false`
        each worker loads the app, and HUP brings new code in; each worker then has a copy of its own in memory.
        A successor that cannot boot is tried a few times; then the restart is given up, and those that serve go
        on.

        With `workers 0` there is one process: with USR2 it has another process load the new code. If that can be loaded, it
        finishes what runs, and then begins anew in its own place, while connections wait in its sockets. HUP does what TERM does; TTIN and TTOU change nothing (in a terminal they belong to its
        shell, as anywhere).

        A service manager that gives a `NOTIFY_SOCKET` (systemd's `Type=notify`, or `notify-reload`) is told READY once all
        workers serve, RELOADING when a restart begins and STOPPING when the server drains.
      MARKDOWN

      # @return [String] the whole page.
      def self.to_markdown
        [INTRODUCTION, "## Options\n", *groups, hooks, CONCLUSION].join("\n")
      end

      def self.groups
        GROUPS.map do |group, title|
          options = TABLE.values.select { |option| option.group == group }
          "### #{title}\n\n#{options.map { |option| entry(option) }.join("\n")}"
        end
      end

      def self.entry(option)
        flag = option.boolean? ? option.flag.sub("--", "--[no-]") : option.flag
        flags = [*("-#{option.short}" if option.short), flag].map { |word| "`#{word}`" }
        variables = option.variables.map { |name| "`#{name}`" }
        <<~MARKDOWN
          #### `#{option.name}`

          #{option.description}

          #{option.expectation.sub(/\A./, &:upcase)}. Default: #{option.default_in_words}.

          `#{option.name}` in the file, #{flags.join(" or ")}, or the variable #{variables.join(" or ")}.
        MARKDOWN
      end

      def self.hooks
        rows = HOOKS.map do |name, description|
          others = ALIASES.filter_map { |other, original| "`#{other}`" if original == name }
          "| `#{name}` | #{description} | #{others.join(", ")} |"
        end
        <<~MARKDOWN
          ## Hooks

          A hook takes a block, and may be given more than once. With `workers 0` nothing is forked, and no hook
          runs. Connections of ActiveRecord need none: they are closed before each fork, and each worker opens
          its own.

          | hook | | also known as |
          | --- | --- | --- |
          #{rows.join("\n")}
        MARKDOWN
      end
      private_class_method :groups, :entry, :hooks
    end
  end
end
