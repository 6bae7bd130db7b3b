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
$warnflags = "-Wall -Wextra -Wno-unused-parameter -Wno-missing-field-initializers"

create_makefile "fairlead/fairlead"
