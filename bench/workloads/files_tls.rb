# frozen_string_literal: true

like "files"
title "The same as files, over TLS"
tls
