# frozen_string_literal: true

module Fairlead
  # The limit that the system sets to the memory of a group of processes (cgroup), as a container's.
  #
  # @!attribute used [Integer] bytes, without cached files, which the kernel drops when memory runs short.
  # @!attribute limit [Integer] bytes.
  MemoryLimit = Data.define(:used, :limit) do
    # @param root [String] the folder that stands for "/".
    # @return [MemoryLimit, nil] the one of which least is left, since a group is limited by those around it too; nil: none is known.
    def self.of(pid, root: "")
      groups = File.read("#{root}/proc/#{pid}/cgroup")
      self::HIERARCHIES.each do |hierarchy|
        path = groups[hierarchy[:path], 1] or next
        found = around(path).filter_map { |group| read("#{root}#{hierarchy[:folder]}#{group}", hierarchy) }
        return found.min_by { |one| one.limit - one.used } if found.any?
      end
      nil
    rescue SystemCallError
      nil
    end

    # A container may see the paths of its host, and below the folder only its own group: that is the last of these.
    #
    # @return [Array<String>] "/a/b", "/a", ""
    def self.around(path)
      names = path.split("/").reject(&:empty?)
      names.size.downto(0).map { |count| names.first(count).map { |name| "/#{name}" }.join }
    end

    # @return [MemoryLimit, nil] nil if there is no such group, or it has no limit.
    def self.read(folder, hierarchy)
      limit = Integer(File.read("#{folder}/#{hierarchy[:limit]}"), exception: false)
      return unless limit&.between?(1, self::UNLIMITED)

      cached = File.read("#{folder}/memory.stat").scan(hierarchy[:cached]).sum { |bytes,| bytes.to_i }
      new(used: File.read("#{folder}/#{hierarchy[:used]}").to_i - cached, limit:)
    rescue SystemCallError
      nil
    end
    private_class_method :around, :read
  end

  # Version 1 writes no limit as one beyond any memory.
  MemoryLimit::UNLIMITED = 1 << 60
  # Version 2, and version 1 where that one governs memory (cgroups(7)).
  MemoryLimit::HIERARCHIES = [
    { path: /^0::(.*)/, folder: "/sys/fs/cgroup", limit: "memory.max", used: "memory.current",
      cached: /^(?:in)?active_file (\d+)/ },
    { path: /^\d+:(?:[^:]*,)?memory(?:,[^:]*)?:(.*)/, folder: "/sys/fs/cgroup/memory", limit: "memory.limit_in_bytes",
      used: "memory.usage_in_bytes", cached: /^total_(?:in)?active_file (\d+)/ }
  ].freeze
end
