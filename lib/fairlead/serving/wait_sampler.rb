# frozen_string_literal: true

module Fairlead
  # Notes at intervals at which lines of the app the slow requests of a reactor wait. Runs only while requests wait, in the scheduler's
  # own fiber.
  class WaitSampler
    # Seconds between two samples, and the age from which on a request is sampled.
    INTERVAL = 0.25
    # Requests in a sample, and frames that are looked at of each.
    MOST = 16
    DEPTH = 100
    private_constant :INTERVAL, :MOST, :DEPTH

    # @param scheduler [Scheduler]
    # @param loop [Loop]
    def initialize(scheduler, loop)
      @scheduler = scheduler
      @loop = loop
      @armed = false
    end

    # A request begins to wait.
    def arm
      return if @armed

      @armed = true
      @armed_at = Clock.now
      @scheduler.after(INTERVAL) { sample }
    end

    private

    def sample
      @armed = false
      seconds = Clock.now - @armed_at
      waiting = @loop.in_flight(0).select { |row| row[:waits] }
      arm if waiting.any?
      old = waiting.select { |row| row[:age] >= INTERVAL }.max_by(MOST) { |row| row[:age] }.map { |row| row[:id] }
      add_frames(old, seconds) if old.any?
    rescue StandardError => error
      Log.say "Waiting requests could not be sampled: #{error.full_message(highlight: false)}"
    end

    def add_frames(ids, seconds)
      @scheduler.children&.each do |task|
        request = task.fiber&.fairlead_serving_fiber&.request if task.is_a?(::Async::Task)
        next unless request && ids.delete(request.id)

        frame = frame_of(task.fiber)
        request.notes.add_frame(frame, seconds) if frame
        break if ids.empty?
      end
    end

    def frame_of(fiber) = Stall::Culprit.new(Stall::Culprit.trim(fiber.backtrace(0, DEPTH) || [])).at
  end
end
