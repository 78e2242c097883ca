#!/bin/sh
# Eight threads that share an executable, under ThreadSanitizer: builds selector_threads.cpp and what
# a run executes with it, and runs that. Skipped where the compiler has no ThreadSanitizer.
#
#   tsan.sh BUILD_DIR
#
# GNU OpenMP synchronises its teams in ways that ThreadSanitizer cannot see, so that every parallel
# region would be reported. The executables of that test have one thread each, for which the library
# enters no region: what is left are the caller's threads, and what they share.
set -u
build=$1
probe=$(mktemp)
if ! echo 'int main() {}' | ${CXX:-c++} -x c++ -fsanitize=thread - -o "$probe" 2>/dev/null || ! "$probe"; then
  rm -f "$probe"
  echo "skipped: no ThreadSanitizer here"
  echo "0 passed, 0 failed, 1 skipped"
  exit 77
fi
rm -f "$probe"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
ninja -C "$build" test/test_threads_tsan >"$log" 2>&1 || {
  tail -30 "$log"
  exit 1
}
export OMP_NUM_THREADS=1 TSAN_OPTIONS="halt_on_error=1 exitcode=66 ${TSAN_OPTIONS:-}"
exec "$build/test/test_threads_tsan"
