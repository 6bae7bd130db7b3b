# frozen_string_literal: true

require_relative "../../helper"

module Fairlead
  # What Fairlead keeps on Ruby's own fibers, threads and IOs is declared in one file, with a contract, and is used by those that it names.
  class AttributesTest < Test
    LIB = File.expand_path("../../../lib/fairlead", __dir__)
    FILE = "#{LIB}/fiber_safety/attributes.rb".freeze
    DECLARATION = /((?:^ *#.*\n)+) *attr_accessor :(fairlead_\w+)/

    def test_no_other_file_declares_one
      others = Dir["#{LIB}/**/*.rb"].select { |path| File.read(path).match?(/^ *(?:Fiber|Thread|IO)\.attr_\w+ :fairlead_/) }

      assert_empty others
    end

    def test_each_says_who_writes_it_and_who_does_so_is_there
      declarations = File.read(FILE).scan(DECLARATION)

      assert_equal 12, declarations.size
      declarations.each do |comment, name|
        writers = comment.gsub(/\s*#\s*/, " ")[/Written (?:and read )?by [^.]*/].to_s.scan(/\b[A-Z]\w+/) - ["Written"]

        refute_empty writers, name
        writers.each { |writer| assert_match(/#{name}/, source(writer), "#{writer} writes #{name}") }
      end
    end

    private

    def source(constant)
      name = constant.gsub(/(?<=[a-z])(?=[A-Z])/, "_").downcase
      Dir["#{LIB}/**/#{name}.rb"].sum("") { |path| File.read(path) }
    end
  end
end
