# frozen_string_literal: true

require_relative "helper"
require "open3"

module Fairlead
  # The folders of the core include and call each other in one direction only: the order is that of ext/fairlead/core/README.md.
  class CoreLayersTest < Test
    CORE = File.join(ROOT, "ext/fairlead/core")
    LAYERS = File.read(File.join(CORE, "README.md")).scan(/^\d+\. `(\w+)`/).flatten

    def test_the_order_names_each_folder
      assert_equal Dir.children(CORE).select { |entry| File.directory?(File.join(CORE, entry)) }.sort, LAYERS.sort
    end

    def test_so_does_the_drawing_of_the_architecture
      drawn = File.read(File.join(ROOT, "guides/architecture.md"))[/core \(ext\/fairlead\/core\): (.*?)"/, 1]

      assert_equal LAYERS.reverse, drawn.split(" → ")
    end

    def test_no_folder_includes_a_higher_one
      assert_empty(sources("*.[ch]").flat_map do |source|
        File.read(source).scan(/^#include "(\w+)\//).flatten.filter_map { |other| upward(folder(source), other, source) }
      end)
    end

    # Calls through tables of functions are those that the lower folder declares: they name no symbol of the higher one.
    def test_no_folder_calls_a_higher_one
      objects = compile
      homes = symbols(objects, "--defined-only").flat_map { |object, names| names.map { |name| [name, folder(object)] } }.to_h
      refute_empty homes
      assert_empty(symbols(objects, "--undefined-only").flat_map do |object, names|
        names.filter_map { |name| upward(folder(object), homes[name], "#{object}: #{name}") }
      end)
    end

    private

    def sources(pattern) = Dir[File.join(CORE, "*", pattern)]

    def folder(path) = File.basename(File.dirname(path))

    def upward(from, to, what)
      "#{from} → #{to} (#{what})" if to && LAYERS.index(to) > LAYERS.index(from)
    end

    # As the extension is compiled.
    def compile
      build = File.join(ROOT, "test/core/build/cost")
      output, status = Open3.capture2e("make", "--quiet", "-C", File.join(ROOT, "test/core"), "build/cost/core.a")
      assert status.success?, output
      sources("*.c").map { |source| File.join(build, folder(source), "#{File.basename(source, ".c")}.o") }
    end

    # Symbol names by object.
    def symbols(objects, which)
      objects.to_h do |object|
        output, status = Open3.capture2("nm", "-f", "posix", which, object)
        assert status.success?
        [object, output.scan(/^(fl_\w+)/).flatten]
      end
    end
  end
end
