# frozen_string_literal: true

title "The smallest answer: what the server itself costs"
app "hello.ru"
expect "Hello World"
peers "iodine", "itsi", "agoo", "falcon", "puma"
sweep "puma:1", "puma:3", "puma:5", "puma:10", "puma:16"
seconds 4

load "c1", wrk(connections: 1)
load "c4", wrk(connections: 4)
load "c32", wrk(connections: 32)
load "c256", wrk(connections: 256)

aim("c32", "1.9 × the faster of Iodine and Itsi") do |c|
  c.times(:requests_per_second, "iodine", "itsi")&.>= 1.9
end
aim("c32", "3.5 × Falcon") { |c| c.times(:requests_per_second, "falcon")&.>= 3.5 }
aim("c32", "8 × Puma") { |c| c.times(:requests_per_second, "puma")&.>= 8 }
aim("c32", "at most 10 µs of CPU a request") { |c| c.median(:cpu_per_request)&.<= 10 }
aim("c1", "not below Puma's requests/s") { |c| c.times(:requests_per_second, "puma")&.>= 1 }
aim("c1", "at most 0.7 × Puma's CPU a request") { |c| c.times(:cpu_per_request, "puma")&.<= 0.7 }
aim("c4", "2 × the next fastest") do |c|
  c.times(:requests_per_second, "iodine", "itsi", "agoo", "falcon", "puma")&.>= 2
end
