# frozen_string_literal: true

require "net/http"

# One action for each kind of work in Work::KINDS; each takes `duration`, in seconds.
class WorkController < ApplicationController
  before_action { @duration = duration(Work::KINDS.fetch(action_name).duration) }

  def plain
    wait
    render plain: "Hello from worker #{Process.pid}.\n"
  end

  def find
    wait
    render json: Vessel.find(params.fetch(:id) { rand(1..Vessel::SEEDED) })
  end

  def slow_sql
    how = SlowQuery.run(@duration)
    done how: how
  end

  def remote_io
    done answer: Net::HTTP.get(RemoteServer.uri("/sleep?seconds=#{@duration}")).strip
  end

  def cwork_with_gvl
    Cwork.with_gvl(@duration)
    done
  end

  def cwork_without_gvl
    Cwork.without_gvl(@duration)
    done
  end

  def cpu
    done rounds: Work.compute(@duration)
  end

  def sleep
    wait
    done
  end

  private

  def wait
    Kernel.sleep(@duration) if @duration.positive?
  end

  def done(**more)
    render json: { kind: action_name, duration: @duration, worker: Process.pid, **more }
  end
end
