# frozen_string_literal: true

like "json"
title "The same document as in json, over TLS"
peers "falcon", "itsi", "puma", "thruster", "nginx:puma"
tls
