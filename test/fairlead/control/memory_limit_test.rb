# frozen_string_literal: true

require_relative "../../helper"

module Fairlead
  # Groups as the kernel shows them, in files of a folder that stands for "/".
  class MemoryLimitTest < Test
    def setup
      super
      @root = Dir.mktmpdir("fairlead-")
    end

    def teardown
      super
      FileUtils.remove_entry(@root)
    end

    def test_the_tightest_of_the_groups_around_a_process_counts
      processes("0::/system.slice/shop.service\n")
      group("system.slice/shop.service", max: "1000", current: 900, inactive_file: 200)
      group("system.slice", max: "1200", current: 1150, inactive_file: 0)
      group("", max: "max", current: 5000, inactive_file: 0)

      assert_equal MemoryLimit.new(used: 1140, limit: 1200), read
      group("system.slice", max: "max", current: 1150, inactive_file: 0)
      assert_equal MemoryLimit.new(used: 690, limit: 1000), read
    end

    # It may see the paths of its host.
    def test_a_container_sees_its_group_as_the_root
      processes("0::/docker/5f0c\n")
      group("", max: "1000", current: 900, inactive_file: 100)

      assert_equal MemoryLimit.new(used: 790, limit: 1000), read
    end

    def test_version_1
      processes("12:cpu,cpuacct:/a\n4:memory:/shop\n0::/\n")
      write("sys/fs/cgroup/memory/shop/memory.limit_in_bytes", "1000\n")
      write("sys/fs/cgroup/memory/shop/memory.usage_in_bytes", "900\n")
      write("sys/fs/cgroup/memory/shop/memory.stat", "inactive_file 1\ntotal_inactive_file 200\ntotal_active_file 100\n")

      assert_equal MemoryLimit.new(used: 600, limit: 1000), read
      write("sys/fs/cgroup/memory/shop/memory.limit_in_bytes", "9223372036854771712\n")
      assert_nil read
    end

    def test_where_none_is_known
      assert_nil read
      processes("0::/shop\n")
      assert_nil read
      group("shop", max: "max", current: 900, inactive_file: 0)
      assert_nil read
      assert_nil MemoryLimit.of((1 << 22) + 1)
    end

    private

    def read = MemoryLimit.of(7, root: @root)

    def processes(text) = write("proc/7/cgroup", text)

    def group(path, max:, current:, inactive_file:)
      write("sys/fs/cgroup/#{path}/memory.max", "#{max}\n")
      write("sys/fs/cgroup/#{path}/memory.current", "#{current}\n")
      write("sys/fs/cgroup/#{path}/memory.stat", "anon 1\ninactive_file #{inactive_file}\nactive_file 10\nfile_mapped 10\n")
    end

    def write(path, text)
      path = File.join(@root, path)
      FileUtils.mkdir_p(File.dirname(path))
      File.write(path, text)
    end
  end
end
