# frozen_string_literal: true

require_relative "helper"
require_relative "rooms"

# The rooms of lib/fairlead call each other in one direction, as their doors say.
class LayersTest < Fairlead::Test
  # From the bottom up: a room calls only those before it.
  ORDER = %w[
    base pool ipc configuration acme listening fiber_safety stalls connection_budget serving drivers active_record control observer
    integrations hot_restart supervision doctor rackup cli
  ].freeze
  private_constant :ORDER

  def rooms = @@rooms ||= Rooms.new

  def test_no_room_calls_one_above_it
    assert_equal ORDER.drop(1).sort, rooms.names
    upwards = rooms.arrows.select { |arrow| ORDER.index(arrow.to) > ORDER.index(arrow.from) }

    assert_empty upwards.map { |arrow| "#{arrow.from} calls #{arrow.to}: #{arrow.place}" }
  end

  def test_doors_name_the_rooms_that_are_called
    rooms.names.each do |room|
      named = rooms.door(room)[/^# Calls ([^.]*)\.$/, 1].to_s.scan(/\w+/) & ORDER
      called = rooms.arrows.select { |arrow| arrow.from == room }.map(&:to).uniq - ["base"]

      assert_equal called.sort, named.sort, "the door of #{room}:\n#{rooms.door(room)}"
    end
  end

  def test_doors_name_the_rooms_that_call
    rooms.names.each do |room|
      named = rooms.door(room)[/^# Called by (.*)\.$/, 1].to_s.scan(/\w+/) & ORDER
      calling = rooms.arrows.select { |arrow| arrow.to == room }.map(&:from).uniq - ["base"]

      assert_empty calling - named, "the door of #{room}:\n#{rooms.door(room)}"
    end
  end

  def test_doors_say_what_their_room_is_for_and_who_calls_it
    rooms.names.each { |room| assert_match(/\A# [A-Z`].*\.\n# Called by .*\.\n# Calls [^.]*\.\n\z/, rooms.door(room), room) }
  end

  def test_the_drawing_of_the_architecture_has_each_arrow
    drawing = File.read(File.expand_path("../guides/architecture.md", __dir__))[/^flowchart TD\n(.*?)^```/m, 1]
    drawn = drawing.scan(/^  (\w+) --> ([\w &]+)$/).flat_map { |from, to| to.split(" & ").map { |room| [from, room] } }
    called = rooms.arrows.map { |arrow| [arrow.from, arrow.to] }.uniq.reject { |pair| pair.include?("base") }

    assert_equal called.sort, drawn.sort
  end

  def test_few_files_belong_to_no_room
    assert_operator Dir[File.join(Rooms::LIB, "fairlead/*.rb")].size, :<=, 15
  end

  def test_doors_list_their_constants_in_order
    Dir[File.join(Rooms::LIB, "fairlead/*/autoload.rb")].each do |path|
      listed = File.read(path).scan(/autoload :(\w+)/).flatten

      assert_equal listed.sort, listed, path
    end
  end

  # `RailsLive` lies in rails/live.rb.
  def test_a_constant_lies_in_the_file_of_its_name
    doors = Dir[File.join(Rooms::LIB, "fairlead/{*/autoload,cli,active_record}.rb")]
    doors.flat_map { |path| File.read(path).scan(%r{autoload :(\w+), "fairlead/\w+/(.+)"}) }.each do |name, path|
      assert_equal name.downcase, path.delete("/_")
    end
  end

  # That the reader sees what it should.
  def test_a_constant_is_looked_for_as_ruby_does
    arrow = rooms.arrows.find { |one| one.from == "supervision" && one.place.end_with?("Messages::Drain") }

    assert_equal "ipc", arrow.to
    assert rooms.arrows.any? { |one| one.from == "cli" && one.to == "doctor" && one.place.end_with?(": Doctor") }
    assert rooms.arrows.none? { |one| one.place.include?("::ActiveRecord::Base") }
  end
end
