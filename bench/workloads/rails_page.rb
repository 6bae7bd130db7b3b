# frozen_string_literal: true

title "A Rails page of 20 KB and its 30 assets over TLS, compressed, as a browser loads them"
app "rails_page.ru"
expect(/Product 39</)
peers "falcon", "itsi", "puma", "thruster", "nginx:puma", "nginx"
seconds 4, warm_up: 3
public_files
tls
compressed

load "kept", pages(browsers: 8)
load "new", pages(browsers: 8, fresh: true)

ahead "kept", "new"
