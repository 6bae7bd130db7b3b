# frozen_string_literal: true

like "cpu-turns"
title "The same as cpu-turns, with four workers on two cores"
workers 4
