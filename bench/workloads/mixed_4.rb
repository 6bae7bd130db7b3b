# frozen_string_literal: true

like "mixed"
title "The same as mixed, with four workers"
peers "falcon", "puma:5", "puma:60"
sweep
workers 4
