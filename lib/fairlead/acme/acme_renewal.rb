# frozen_string_literal: true

module Fairlead
  # When the certificate of an {ACMEFolder} is ordered, and again.
  class ACMERenewal
    # Seconds until the next try after each failure in a row. Authorities allow few failures an hour.
    DELAYS = [60, 300, 1500, 7200, 21_600].freeze
    # Seconds between looks at the clock, which may be set meanwhile.
    LOOK_EVERY = 3600
    # Seconds between questions when the authority wants the certificate renewed.
    ASK_EVERY = 21_600
    # The part of its lifetime after which a certificate is renewed, unless the authority says when.
    PART = 2.0 / 3
    private_constant :DELAYS, :LOOK_EVERY, :ASK_EVERY, :PART

    # @param folder [ACMEFolder]
    # @param order [#call] returns a new {ACMEOrder}.
    def initialize(folder, now: Time.method(:now), &order)
      @folder = folder
      @order = order
      @now = now
      @failures = 0
    end

    # Orders the certificate if it is due.
    #
    # @return [Numeric] seconds until the next call.
    def update
      return seconds_left if seconds_left.positive?

      @folder.lock { obtain unless seconds_left.positive? } # an older generation may have got it meanwhile
      @failures = 0
      seconds_left
    rescue StandardError => error
      fail_for_now(error)
    end

    private

    def obtain
      @folder.check_room
      @order.call.obtain
      ends = @folder.certificate.not_after
      @asked_at = nil
      raise Error, "the authority has issued a certificate that is to be renewed at once" unless seconds_left.positive?

      @folder.record_problem(nil)
      Log.say "The certificate for #{names} has been obtained. It expires on #{ends.utc.strftime("%F %R UTC")}."
    end

    def names = @folder.names.join(", ")

    # @return [Numeric] at most LOOK_EVERY.
    def seconds_left
      return 0 unless @folder.obtained?

      (renew_at - @now.call).clamp(0, LOOK_EVERY)
    end

    def renew_at
      certificate = @folder.certificate
      usual = certificate.not_before + ((certificate.not_after - certificate.not_before) * PART)
      window = wished_window
      return usual unless window

      # Servers of one authority do not come all at once, and one server always comes at the same time.
      window.begin + ((window.end - window.begin) * (certificate.serial.to_i % 1000 / 1000.0))
    end

    def wished_window
      return @window if @asked_at && @now.call - @asked_at < ASK_EVERY

      @asked_at = @now.call
      @window = @order.call.renewal_window
    rescue StandardError
      @window = nil
    end

    def fail_for_now(error)
      delay = DELAYS[[@failures, DELAYS.size - 1].min]
      @failures += 1
      report(error, delay)
      delay
    end

    # A folder that cannot be read or written must not end the process: its successor would order again at once.
    def report(error, delay)
      reason = error.message == error.class.name ? "the authority does not answer (#{error.class})" : error.message.strip
      aim = @folder.obtained? ? "renewed" : "obtained"
      description = "The certificate for #{names} could not be #{aim}: #{reason.delete_suffix(".")}. " \
                    "The next try is at #{(@now.call + delay).strftime("%F %T")}."
      Log.say description
      @folder.record_problem("#{description} Requests for http://#{@folder.names.first}#{ACMEChallenges::PREFIX} must reach this server.")
    rescue SystemCallError => failure
      Log.say "The problem with the certificate for #{names} could not be noted: #{failure.message}."
    end
  end
end
