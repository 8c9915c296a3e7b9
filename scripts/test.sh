#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What `make test` (quick), `make test-long` (long) and `make test-rare` (rare) do.
# Quick: the format of the sources; the unit and simulator tests, and programs of one rank, under the thread
# sanitizer; the tests of the release build that are not labelled "long".
# Long: the same under the address sanitizer, then the tests labelled "long".
# Rare: the tests labelled "rare" (tests/job_tests.cmake).
# The other parts run even if a part fails. The summary says which parts failed.
# Usage: test.sh quick|long|rare [JOBS [WARNINGS_ARE_ERRORS]]
set -eu
cd "$(dirname "$0")/.."
which="$1"
jobs="${2:-$(nproc)}"
werror=OFF
[ "${3:-0}" = 1 ] && werror=ON

scripts/install-dependencies.sh --tests

# run_tests PRESET TARGET CTEST-ARGUMENTS...: configures, builds and tests; the last lines are ctest's own.
run_tests() {
  preset=$1 target=$2
  shift 2
  echo "== $preset: build"
  cmake --preset "$preset" -DKASANE_WERROR=$werror >"build/$preset.configure.log" 2>&1 ||
    { cat "build/$preset.configure.log"; return 1; }
  cmake --build "build/$preset" --target "$target" -j "$jobs" || return 1
  echo "== $preset: test"
  ctest --test-dir "build/$preset" -j "$jobs" --output-on-failure --no-tests=error "$@"
}

mkdir -p build
failed=''
case $which in
  quick)
    echo "== format"
    make --no-print-directory format-check || failed="$failed format"
    run_tests tsan kasane_sanitized_tests -L '^(unit|sim|sanitized)$' -LE '^long$' || failed="$failed tsan"
    run_tests release kasane_quick_tests -LE '^(long|rare)$' || failed="$failed release" ;;
  long)
    run_tests asan kasane_sanitized_tests -L '^(unit|sim|sanitized)$' -LE '^long$' || failed="$failed asan"
    run_tests release all -L '^long$' || failed="$failed release" ;;
  rare) run_tests release all -L '^rare$' || failed="$failed release" ;;
  *) echo "usage: $0 quick|long|rare [JOBS [WARNINGS_ARE_ERRORS]]" >&2; exit 2 ;;
esac

if [ -n "$failed" ]; then
  echo "test: FAILED:$failed"
  exit 1
fi
