# frozen_string_literal: true

like "json"
title "The same document as in json, over TLS and HTTP/2, ten requests at a time on each connection"
peers "falcon", "itsi", "thruster", "nginx:puma"
tls

load "c32", h2load(connections: 32, streams: 10)
