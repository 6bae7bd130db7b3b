# frozen_string_literal: true

module Fairlead
  class CLI
    # What `fairlead top` shows: the lines of one screen, a pure function of what it is given.
    class TopScreen
      include TopText

      # @!attribute style [Symbol, nil] :bold, :heading, :bad, :dim or :keys.
      Line = Data.define(:text, :style)

      # What the user has chosen.
      #
      # @!attribute name [Symbol] see {TopTables::ALL}
      # @!attribute sort [Integer] by which of the columns that can be sorted by
      # @!attribute offset [Integer] rows scrolled over
      View = Data.define(:name, :sort, :offset, :paused, :help) do
        def initialize(name: :workers, sort: 0, offset: 0, paused: false, help: false) = super
      end

      # Lines of problems above a table.
      PROBLEMS = 4
      # Rows of a table below the first.
      FEW = 4
      HELP = [
        ["w f r d t", "workers, requests in flight, routes, database pools, stalls"],
        ["s", "sort by the next column"], ["p", "pause, or go on"], ["arrows", "scroll; also j and k, space and b"], ["q", "quit"]
      ].freeze
      private_constant :PROBLEMS, :FEW, :HELP

      # @param snapshot [Hash] see {StatusReport#to_h}, with the `stalls:` of the answer
      # @param height [Integer, nil] nil: any
      # @param gone [Float, nil] since how many seconds the server has not answered
      # @param history [Array<Numeric>] requests per second, the newest last
      def initialize(snapshot, width:, height: nil, view: View.new, gone: nil, history: [])
        @snapshot = snapshot
        @width = width
        @height = height
        @view = view
        @gone = gone
        @history = history
      end

      # @return [Array<Line>] at most as many as the screen is high; none is wider than it.
      def lines
        above = [*heading, *problems]
        below = @height ? [keys] : []
        room = @height && [@height - above.size - below.size, 0].max
        content = @view.help ? help : content(room)
        content = content.first(room) + ([line("")] * [room - content.size, 0].max) if room
        shown = above + content + below
        @height ? shown.first([@height - 1, 0].max) + shown.last(1) : shown
      end

      def to_s = lines.map { |one| "#{one.text.rstrip}\n" }.join

      private

      def line(text, style = nil) = Line.new(cut(text, @width), style)

      def heading
        [line(beside(title, status), :bold), *flow(totals, @width).map { |text| line(text) }, *time, *gone]
      end

      def title = "Fairlead #{@snapshot[:version]}  #{plain(@snapshot[:tag])}, #{plain(@snapshot[:environment])}"

      def status
        return "paused" if @view.paused

        @history.size > 1 ? bars(@history.last([@width / 4, 60].min)) : ""
      end

      # Two texts, the second at the right border, if there is room.
      def beside(left, right)
        space = @width - width(left) - width(right)
        space < 2 ? left : "#{left}#{" " * space}#{right}"
      end

      def totals
        total = @snapshot[:total]
        ["#{Humanize.count(total[:requests_per_second])} req/s", "#{Humanize.count(total[:in_flight])} running",
         "#{Humanize.count(total[:queued])} waiting", "#{Humanize.count(total[:connections])} open", "CPU #{Humanize.percent(total[:cpu])}",
         Humanize.memory(total[:memory]), *latency, "#{Humanize.plural(total[:errors], "error")}", "up #{Humanize.duration(uptime)}"]
      end

      def latency
        times = @snapshot[:times]
        %i[p50 p99].filter_map { |key| "#{key} #{Humanize.latency(times[key])}" if times && times[key] }
      end

      # What the requests of the last minute have waited for.
      def time
        kinds = TopTables.kinds(@snapshot.dig(:times, :kinds) || {}, 6)
        kinds == "-" ? [] : [line("time: #{kinds}")]
      end

      def uptime = [@snapshot[:now] - @snapshot[:started_at], 0].max

      def gone
        return [] unless @gone

        text = "The server has not answered for #{Humanize.duration(@gone)}. Asking again each second."
        wrap(text, @width).map { |part| line(part, :bad) }
      end

      def problems
        all = @snapshot[:matters].flat_map { |problem| wrap(plain(problem), @width) }
        shown = all.size > PROBLEMS ? [*all.first(PROBLEMS - 1), "… `fairlead status` has all problems."] : all
        [*shown.map { |text| line(text, :bad) }, line("")]
      end

      def help
        HELP.flat_map do |keys, text|
          first, *others = wrap(text, @width - 12)
          [line("#{keys.ljust(11)} #{first}"), *others.map { |part| line("#{" " * 11} #{part}") }]
        end
      end

      # The table of the view. Below the workers there are pools and stalls, if there are any.
      def content(room)
        main = table(TopTables::ALL.fetch(@view.name), room, sorted: true)
        return main unless @view.name == :workers

        %i[pools stalls].inject(main) do |lines, name|
          below = TopTables::ALL.fetch(name)
          left = room && (room - lines.size - 3)
          next lines if below.rows.call(@snapshot).empty? || (left && left < 1)

          [*lines, line(""), line(below.title.capitalize, :bold), *table(below, [FEW + 2, (left + 2 if left)].compact.min)]
        end
      end

      def table(table, room, sorted: false)
        rows = table.rows.call(@snapshot)
        return wrap(table.empty, @width).map { |text| line(text, :dim) } if rows.empty?

        rows = sort(rows, table) if sorted
        shown, more = sorted ? window(rows, room) : few(rows, room)
        columns = columns_of(table, rows)
        [line(fit(written(columns, &:title), @width), :heading),
         *shown.map { |row| line(written(columns) { |column| cell(column, row) }, (:bad if table.bad.call(row))) },
         *(line(more, :dim) if more)]
      end

      # @return [(Array<Hash>, String)] the rows that fit, and what is said of the others.
      def window(rows, room)
        return [rows, nil] if room.nil? || rows.size < room

        size = [room - 2, 1].max
        offset = @view.offset.clamp(0, rows.size - size)
        [rows[offset, size], "#{offset + 1} to #{offset + size} of #{rows.size}"]
      end

      def few(rows, room)
        size = [room - 2, 1].max
        [rows.first(size), ("… #{rows.size - size} more" if rows.size > size)]
      end

      def sort(rows, table)
        column = sorted_by(table) or return rows
        rows.sort_by.with_index { |row, index| [-column.key.call(row).to_f, index] }
      end

      # The first order is that of the snapshot.
      def sorted_by(table) = [nil, *table.columns.select(&:key)].then { |columns| columns[@view.sort % columns.size] }

      Sized = Data.define(:column, :width) do
        def title = column.title
      end
      private_constant :Sized

      # Those that fit, the lowest ranks first.
      def columns_of(table, rows)
        sized = table.columns.map { |column| Sized.new(column, natural(column, rows)) }
        sized.delete(sized.max_by { |one| one.column.rank }) while sized.size > 1 && total_width(sized) > @width
        spare = @width - total_width(sized)
        sized.map { |one| one.column.rest ? one.with(width: widest(one.column, rows).clamp(one.width, one.width + [spare, 0].max)) : one }
      end

      # What takes the rest may be cut.
      def natural(column, rows) = column.rest ? [widest(column, rows), 16].min : widest(column, rows)

      def widest(column, rows) = [column.title, *rows.map { |row| cell(column, row) }].map { |text| width(text) }.max

      def total_width(sized) = sized.sum(&:width) + (2 * (sized.size - 1))

      def written(sized) = sized.map { |one| fit(yield(one), one.width, left: one.column.left) }.join("  ")

      def cell(column, row) = plain((column.is_a?(Sized) ? column.column : column).write.call(row))

      # What does not fit is left out, or short.
      def keys
        sorted = sorted_by(TopTables::ALL.fetch(@view.name))&.title
        others = TopTables::ALL.reject { |name, _| name == @view.name }.values
        views = others.map { |table| "#{table.key} #{table.title}" }
        common = ["q quit", "p #{@view.paused ? "go on" : "pause"}", "s sort#{": #{sorted}" if sorted}"]
        lines = flow(["? help", *views, *common], @width)
        lines = flow(["? help", others.map(&:key).join(" "), *common], @width) if lines.size > 1
        Line.new(fit(lines.first.to_s, @width), :keys)
      end
    end
  end
end
