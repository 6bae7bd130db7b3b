# frozen_string_literal: true

title "The smallest answer over TLS and HTTP/2, ten requests at a time on each connection"
app "hello.ru"
expect "Hello World"
peers "falcon", "itsi", "thruster", "nginx:puma", "nginx"
seconds 4
tls

load "c4", h2load(connections: 4, streams: 10)
load "c32", h2load(connections: 32, streams: 10)

ahead "c4", "c32"
aim("c32", "3 × Falcon") { |c| c.times(:requests_per_second, "falcon")&.>= 3 }
