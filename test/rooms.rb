# frozen_string_literal: true

require "prism"

# The rooms of lib/fairlead, and what each takes from the others: which constants it names, and which files it requires.
class Rooms
  LIB = File.expand_path("../lib", __dir__)
  # Files that load or show everything, and belong to no room.
  FACADE = %w[fairlead.rb fairlead/parts.rb fairlead/api.rb].freeze
  # What lies directly in lib/fairlead (errors, log …) belongs to all.
  BASE = "base"
  private_constant :FACADE

  # The constants that a file defines and names, each with the modules around it, and the files that it requires.
  class Reader < Prism::Visitor
    # @return [Array<String>] full names.
    attr_reader :definitions
    # @return [Array<(Array<String>, String, Integer)>] modules around, name, line.
    attr_reader :uses
    # @return [Array<(String, Integer)>] path below lib, line.
    attr_reader :requires

    def initialize(path)
      @folder = File.dirname(path)
      @nesting = []
      @definitions = []
      @uses = []
      @requires = []
      super()
    end

    def visit_class_node(node)
      node.superclass&.accept(self)
      define(node)
    end

    def visit_module_node(node) = define(node)

    def visit_constant_write_node(node)
      @definitions << [*@nesting, node.name].join("::")
      super
    end

    def visit_constant_read_node(node) = use(node)

    # `Log` in `Log::LEVEL` is one name with it; in `offload::Log` it is none.
    def visit_constant_path_node(node) = node.slice.match?(/\A(::)?[A-Z][\w:]*\z/) ? use(node) : super

    def visit_call_node(node)
      path = node.arguments&.arguments&.first
      if path.is_a?(Prism::StringNode) && node.receiver.nil?
        case node.name
        when :require then require_file(path.unescaped, node)
        when :require_relative then require_file(File.expand_path(path.unescaped, "/#{@folder}").delete_prefix("/"), node)
        end
      end
      super
    end

    private

    def define(node)
      name = node.constant_path.slice
      @definitions << [*@nesting, name].join("::")
      @nesting.push(name)
      node.body&.accept(self)
    ensure
      @nesting.pop
    end

    def use(node) = @uses << [@nesting.dup, node.slice, node.location.start_line]

    def require_file(path, node) = @requires << ["#{path}.rb", node.location.start_line]
  end

  # A use of another room's constant or file.
  Arrow = Data.define(:from, :to, :place)

  def initialize
    paths = Dir["fairlead/**/*.rb", "rack{,up}/**/*.rb", "generators/**/*.rb", base: LIB] - FACADE
    @files = paths.to_h { |path| [path, Reader.new(path).tap { |reader| Prism.parse_file(File.join(LIB, path)).value.accept(reader) }] }
    @homes = Hash.new { |hash, name| hash[name] = [] }
    @files.each do |path, reader|
      reader.definitions.each { |name| @homes[name] |= [room_of(path)] if name.start_with?("Fairlead::") && room_of(path) }
    end
  end

  # @return [Array<String>]
  def names = Dir["*/", base: File.join(LIB, "fairlead")].map { |folder| folder.chomp("/") }.sort

  # @return [String] the first comment of the room's door.
  def door(room)
    path = ["fairlead/#{room}/autoload.rb", "fairlead/#{room}.rb"].find { |file| File.exist?(File.join(LIB, file)) }
    File.read(File.join(LIB, path)).lines.drop(2).take_while { |line| line.start_with?("#") }.join
  end

  # @return [Array<Arrow>]
  def arrows
    @arrows ||= @files.flat_map do |path, reader|
      from = room_of(path) or next []
      constants = reader.uses.flat_map { |nesting, name, line| homes_of(nesting, name).map { |to| Arrow.new(from, to, "#{path}:#{line}: #{name}") } }
      files = reader.requires.filter_map { |file, line| (to = room_of(file)) && Arrow.new(from, to, "#{path}:#{line}: #{file}") }
      (constants + files).reject { |arrow| arrow.to == from }
    end
  end

  private

  # @return [String, nil] nil for the facade, other gems and the core's binding.
  def room_of(path)
    return unless @files.key?(path)
    return "rackup" if path.start_with?("rack")
    return "integrations" if path.start_with?("generators")

    room = path.delete_prefix("fairlead/")[/\A\w+/]
    File.directory?(File.join(LIB, "fairlead", room)) ? room : BASE
  end

  # As Ruby looks a constant up, from the inner module to the outer ones. Where a room reopens a module, all of its rooms would do.
  def homes_of(nesting, name)
    return [] if name.start_with?("::") && !name.start_with?("::Fairlead::")

    name = name.delete_prefix("::")
    scopes = nesting.size.downto(0).map { |size| nesting.take(size) }
    scopes.each do |scope|
      first = [*scope, name[/\A\w+/]].join("::")
      next unless first == "Fairlead" || @homes.key?(first)

      parts = name.split("::")
      known = parts.size.downto(1).map { |size| [*scope, *parts.take(size)].join("::") }.find { |full| @homes.key?(full) }
      return known ? @homes[known] : []
    end
    []
  end
end
