# frozen_string_literal: true

title "A small document, generated as JSON for each request"
app "json.ru"
expect(/\A\{"items":\[\{"id":0,/)
peers "iodine", "itsi", "agoo", "falcon", "puma"
seconds 4

load "c32", wrk(connections: 32)

ahead "c32"
