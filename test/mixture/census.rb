# frozen_string_literal: true

require "json"
require "uri"

module Fairlead
  class Mixture
    # What the processes of a server hold: memory, descriptors, threads; and what the page that they share says.
    class Census
      # What is zero in each slot while nobody asks for anything; the connection of who looks is left out.
      CALM = %i[
        in_flight streams queued incoming_requests incoming_connections fresh oldest_us stall away_us stalled_us stalled_kind
        lane_waiting lane_running database_waiting
      ].freeze

      # @param server [ServerProcess]
      # @param database [String] its address: connections to it are counted apart, as a pool may keep some.
      def initialize(server, database)
        @server = server
        @port = URI(database).port
      end

      # @return [Hash{String => Hash}] by the process' title: how many there are of each kind of descriptor.
      def descriptors
        processes.to_h { |title, pid| [title, links(pid).map { |link| link[/\A[a-z_]+:(\[[a-z]+\])?/] || link }.tally] }
      end

      # @return [Hash{String => Hash}] likewise of threads.
      def threads = processes.transform_values { |pid| { "threads" => Dir.children("/proc/#{pid}/task").size } }

      # @return [Hash{String => Integer}] resident bytes, by the process' title.
      def memory
        processes.transform_values { |pid| File.read("/proc/#{pid}/status")[/^VmRSS:\s+(\d+)/, 1].to_i * 1024 }
      end

      # @return [Hash{String => Integer}] by title: "supervisor", "worker 0", "lane worker", "relief worker", …
      def processes
        pids = @server.worker_pids.to_h { |pid| [@server.title(pid)[/fairlead: ([a-z ]+\d*)/, 1].to_s.strip, pid] }
        { "supervisor" => @server.supervisor_pid, **pids.sort.to_h }
      end

      # @return [Hash{Symbol => Object}] the `slots:` of the page, its `routes:`, and the `pid:` of who has answered.
      def page = JSON.parse(@server.get("/figures").body, symbolize_names: true)

      # @return [Array<String>] what of the page is not as it should be while nobody asks for anything.
      def unrest
        page = self.page
        used = page[:slots].select { |slot| slot[:state].positive? }
        used.flat_map { |slot| unrest_of(slot, own: slot[:pid] == page[:pid]) } + strangers(page, used)
      end

      private

      def unrest_of(slot, own:)
        # The one request that asks is shown as waiting, or as running.
        slot[:in_flight] = slot[:queued] = slot[:oldest_us] = 0 if own && slot[:in_flight] + slot[:queued] == 1
        expected = CALM.to_h { |name| [name, 0] }.merge(connections: own ? 1 : 0)
        wrong = expected.reject { |name, value| slot[name] == value }
        wrong.keys.map { |name| "#{name} of process #{slot[:pid]} is #{slot[name]}" }
      end

      # Slots that are not used are empty, and those that are have a process that lives.
      def strangers(page, used)
        left = (page[:slots] - used).flat_map { |slot| slot.reject { |_, value| value.zero? }.keys }
        dead = used.map { |slot| slot[:pid] } - @server.worker_pids
        left.map { |name| "#{name} of a slot without a worker is not 0" } + dead.map { |pid| "#{pid} has a slot, and is dead" }
      end

      def links(pid)
        database = database_sockets(pid)
        Dir.children("/proc/#{pid}/fd").filter_map do |name|
          File.readlink("/proc/#{pid}/fd/#{name}").then { |link| link unless database.include?(link) }
        rescue Errno::ENOENT
          nil
        end
      end

      def database_sockets(pid)
        File.readlines("/proc/#{pid}/net/tcp").drop(1).filter_map do |line|
          _, _, remote, *, inode = line.split.first(10)
          "socket:[#{inode}]" if remote.end_with?(format(":%04X", @port))
        end
      end
    end
  end
end
