# frozen_string_literal: true

require "fileutils"
require "mkmf"

# core/ knows nothing of Ruby and keeps its own folders of objects, so that a binding file may have the
# name of the core file that it wraps.
$objs = Dir.chdir(__dir__) { Dir["*.c", "core/*/*.c"].sort.map { |source| source.sub(/\.c\z/, ".o") } }
FileUtils.mkdir_p($objs.map { |object| File.dirname(object) }.uniq)
$INCFLAGS << " -I$(srcdir)/core"
$CPPFLAGS << " -D_GNU_SOURCE"
# On Linux too without what only Linux has: see core/base/platform.h.
$CPPFLAGS << " -DFL_FALLBACKS" if enable_config("fallbacks")
$CFLAGS << " -std=c11 -O3 -fvisibility=hidden"
# For tests: reports whoever uses memory that is free. Not of stacks: Ruby switches between them, and jumps out of frames. The
# library of the compiler has to be preloaded: see test/sanitizer.rb.
if enable_config("sanitizer")
  $CPPFLAGS << " -DFL_SANITIZED"
  stacks = RbConfig::CONFIG["CC"].include?("clang") ? "-mllvm -asan-stack=0" : "--param asan-stack=0"
  $CFLAGS << " -O1 -g -fno-omit-frame-pointer -fsanitize=address #{stacks}"
  $DLDFLAGS << " -fsanitize=address"
end
# TLS. Without it the gem builds, and a configuration that binds https:// is told what to install.
def find_openssl
  ruby = RbConfig::CONFIG["configure_args"].to_s[/--with-openssl-dir=([^ ']+)/, 1] # a process has one OpenSSL: that of Ruby's openssl
  dir_config("openssl", ruby) if ruby || with_config("openssl-dir")
  ruby || pkg_config("openssl")
  found = have_library("crypto", "OPENSSL_init_crypto", "openssl/crypto.h") && have_library("ssl", "SSL_write_ex", "openssl/ssl.h") &&
          have_macro("OPENSSL_VERSION_MAJOR", "openssl/opensslv.h") # since OpenSSL 3
  $defs << "-DHAVE_OPENSSL" if found
end
find_openssl unless enable_config("tls") == false

# HTTP/2. Without it the gem builds, and speaks HTTP/1 only.
def find_nghttp2
  pkg_config("libnghttp2")
  $defs << "-DHAVE_NGHTTP2" if have_library("nghttp2", "nghttp2_session_server_new3", "nghttp2/nghttp2.h")
end
find_nghttp2 unless enable_config("http2") == false

$warnflags = "-Wall -Wextra -Wno-unused-parameter -Wno-missing-field-initializers"

create_makefile "fairlead/fairlead"
