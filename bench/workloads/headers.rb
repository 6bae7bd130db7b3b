# frozen_string_literal: true

title "The smallest answer to a browser's 20 headers"
app "hello.ru"
expect "Hello World"
peers "iodine", "itsi", "agoo", "falcon", "puma"
seconds 4

# What a browser sends to a site that it knows.
browser = {
  "Host" => "www.example.com", "Connection" => "keep-alive", "Cache-Control" => "max-age=0",
  "Sec-Ch-Ua" => '"Chromium";v="140", "Not=A?Brand";v="24"', "Sec-Ch-Ua-Mobile" => "?0",
  "Sec-Ch-Ua-Platform" => '"Linux"', "Upgrade-Insecure-Requests" => "1",
  "User-Agent" => "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36",
  "Accept" => "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8",
  "Sec-Fetch-Site" => "same-origin", "Sec-Fetch-Mode" => "navigate", "Sec-Fetch-User" => "?1",
  "Sec-Fetch-Dest" => "document", "Referer" => "https://www.example.com/articles?page=2",
  "Accept-Encoding" => "gzip, deflate, br, zstd", "Accept-Language" => "en-GB,en;q=0.9,de;q=0.8",
  "Cookie" => "_session=#{"c2Vzc2lvbg" * 16}; theme=dark; seen=1", "If-None-Match" => 'W/"0123456789abcdef"',
  "Priority" => "u=0, i", "Dnt" => "1"
}.freeze

load "c32", wrk(connections: 32, headers: browser)

ahead "c32"
