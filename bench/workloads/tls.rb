# frozen_string_literal: true

title "The smallest answer over TLS: connections that stay, and a new one for each request"
app "hello.ru"
expect "Hello World"
peers "falcon", "itsi", "puma", "thruster", "nginx:puma", "nginx"
seconds 4
tls

load "kept", wrk(connections: 32)
load "new", handshakes(connections: 8)
load "resumed", handshakes(connections: 8, resumed: true)

ahead "kept", "new", "resumed"
aim("new", "0.8 × nginx, which runs no app") { |c| c.times(:requests_per_second, "nginx")&.>= 0.8 }
