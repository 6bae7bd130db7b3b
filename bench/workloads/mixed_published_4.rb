# frozen_string_literal: true

like "mixed-published"
title "The same as mixed-published, with four workers"
workers 4
