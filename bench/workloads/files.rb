# frozen_string_literal: true

title "Public files of 1 KB, 100 KB and 10 MB"
app "files.ru"
public_files
expect(/\Ax{1000}\z/, path: "/1k.txt")
peers "falcon", "itsi", "puma", "thruster", "nginx"
seconds 4

load "1k", wrk(connections: 32, path: "/1k.txt")
load "100k", wrk(connections: 32, path: "/100k.txt")
load "10m", wrk(connections: 4, path: "/10m.txt", timeout: 20)

ahead "1k", "100k", "10m"
%w[1k 100k 10m].each do |size|
  aim(size, "0.7 × nginx, which runs no app") { |c| c.times(:requests_per_second, "nginx")&.>= 0.7 }
end
