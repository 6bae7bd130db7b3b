# frozen_string_literal: true

require_relative "../../acme_authority"
require_relative "../../helper"

module Fairlead
  # When certificates are ordered, and what becomes of failures.
  class ACMERenewalTest < Test
    NAMES = %w[shop.test www.shop.test].freeze
    DAY = 86_400
    START = Time.at(1_800_000_000)
    private_constant :NAMES, :DAY, :START

    # An order that stores a certificate of 90 days, or raises.
    class Order
      def initialize(test) = @test = test
      def obtain = @test.obtain
      def renewal_window = @test.window
    end

    attr_accessor :window

    def setup
      super
      @path = Dir.mktmpdir("fairlead-acme-")
      @folder = ACMEFolder.new(File.join(@path, "storage", "ca.test"), NAMES)
      @now = START
      @orders = 0
      @renewal = ACMERenewal.new(@folder, now: -> { @now }) { Order.new(self) }
    end

    def teardown
      FileUtils.remove_entry(@path)
      super
    end

    def obtain
      @orders += 1
      raise Error, @failure if @failure

      key = @folder.new_key
      @folder.store(key, authority.for_key(key, *NAMES, from: @now, to: @now + (90 * DAY)))
    end

    def authority = @@authority ||= CertificateFiles.new

    # The clock goes on by what the renewal waits, until it orders or this many days have gone.
    def orders_within(days)
      before, end_at = @orders, @now + (days * DAY)
      while @now < end_at && @orders == before
        capture_io { @wait = @renewal.update }
        @now += [@wait, 1].max
      end
      @orders - before
    end

    def test_a_placeholder_is_replaced_at_once_and_renewed_after_two_thirds_of_its_lifetime
      @folder.prepare

      refute_predicate @folder, :obtained?
      assert_match(/clients see a self-signed one/, @folder.problem)
      assert_equal 1, orders_within(0.01)
      assert_predicate @folder, :obtained?
      assert_nil @folder.problem
      began = @now
      @folder.prepare # a restart leaves it alone

      assert_equal 0, orders_within(59)
      assert_equal 1, orders_within(2)
      assert_in_delta began + (60 * DAY), @now, DAY
    end

    def test_the_authority_may_want_it_earlier
      @folder.prepare
      orders_within(0.01)
      began = @now
      @window = (began + (10 * DAY))..(began + (11 * DAY))

      assert_equal 0, orders_within(9.5)
      assert_equal 1, orders_within(3)
      assert_includes (10 * DAY)..(11.3 * DAY), @now - began
    end

    def test_other_names_are_ordered_at_once
      @folder.prepare
      orders_within(0.01)

      assert_predicate @folder, :obtained?
      refute_predicate ACMEFolder.new(File.join(@path, "storage", "ca.test"), [*NAMES, "new.test"]), :obtained?
    end

    def test_failures_are_tried_again_later_and_later
      @folder.prepare
      @failure = "on purpose"
      delays = []
      _, log = capture_io { delays = Array.new(6) { @renewal.update } }

      assert_equal [60, 300, 1500, 7200, 21_600, 21_600], delays
      assert_match(/The certificate for shop\.test, www\.shop\.test could not be obtained: on purpose\. The next try is at/, log)
      assert_match(/on purpose.* must reach this server/, @folder.problem)
      @failure = nil
      capture_io { @renewal.update }

      assert_nil @folder.problem
    end

    def test_a_folder_that_cannot_be_written_ends_nothing
      @folder.prepare
      folder = File.join(@path, "storage", "ca.test")
      FileUtils.remove_entry(File.join(folder, "shop.test.problem"))
      FileUtils.mkdir(File.join(folder, "shop.test.problem"))
      @failure = "on purpose"
      delays = []
      _, log = capture_io { delays = Array.new(2) { @renewal.update } }

      assert_equal [60, 300], delays
      assert_match(/on purpose.*could not be noted: Is a directory/m, log)
      assert_empty Dir.glob("#{folder}/*.new")
    end

    def test_nothing_is_ordered_while_the_disk_is_full
      @folder.prepare
      limits = Process.getrlimit(:FSIZE)
      before = trap("XFSZ", "IGNORE")
      Process.setrlimit(:FSIZE, 4096, limits.last)
      _, log = capture_io { @wait = @renewal.update }
      Process.setrlimit(:FSIZE, *limits)

      assert_equal [60, 0], [@wait, @orders]
      assert_match(/could not be obtained: File too large/, log)
      assert_equal %w[shop.test.pem shop.test.problem tokens], Dir.children(File.join(@path, "storage", "ca.test")).sort - ["lock"]
      assert_equal 1, orders_within(0.01)
    ensure
      Process.setrlimit(:FSIZE, *limits)
      trap("XFSZ", before)
    end

    def test_what_is_no_certificate_for_the_key_replaces_nothing
      @folder.prepare
      orders_within(0.01)
      before = File.read(@folder.file)
      key = @folder.new_key
      others = authority.for_key(key, "other.test", from: @now, to: @now + DAY)
      own = authority.for_key(key, *NAMES, from: @now, to: @now + DAY)

      [nil, "", "nonsense", "{}", own.sub(/^M/, "!"), others].each { |chain| assert_raises(Error) { @folder.store(key, chain) } }
      assert_raises(Error) { @folder.store(@folder.new_key, own) }
      assert_equal before, File.read(@folder.file)
    end

    def test_only_this_user_may_read_and_only_tokens_are_answered
      @folder.prepare
      @folder.account_key
      @folder.publish("a-b_C", "a-b_C.thumbprint")

      assert_equal "a-b_C.thumbprint", @folder.answer("a-b_C")
      ["../shop.test.pem", "", "a/b", "none", "a-b_C\0", "..", "a-b_C\n"].each { |token| assert_nil @folder.answer(token), token }
      assert_raises(ArgumentError) { @folder.publish("../x", "x") }
      folder = File.join(@path, "storage", "ca.test")
      [folder, *Dir.glob(File.join(folder, "**", "*"))].each do |path|
        assert_equal File.directory?(path) ? 0o700 : 0o600, File.stat(path).mode & 0o777, path
      end
      assert_equal @folder.account_key.to_der, @folder.account_key.to_der
      @folder.withdraw("a-b_C")

      assert_nil @folder.answer("a-b_C")
    end
  end
end
