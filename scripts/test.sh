#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What `make test` does: the unit and simulator tests, and programs of one rank, under the thread and address sanitizers, then every test of the
# release build. All three run even if one fails; the summary says which. Usage: test.sh [JOBS [WARNINGS_ARE_ERRORS]]
set -eu
cd "$(dirname "$0")/.."
jobs="${1:-$(nproc)}"
werror=OFF
[ "${2:-0}" = 1 ] && werror=ON

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
for_sanitizers='-L ^(unit|sim|sanitized)$'
run_tests tsan kasane_sanitized_tests $for_sanitizers || failed="$failed tsan"
run_tests asan kasane_sanitized_tests $for_sanitizers || failed="$failed asan"
run_tests release all -LE '^soak$' || failed="$failed release"

if [ -n "$failed" ]; then
  echo "test: FAILED:$failed"
  exit 1
fi
