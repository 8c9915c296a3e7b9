#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# clang-tidy over the sources of a build folder, or over the named ones. The folder needs its
# compile_commands.json, with KASANE_QUICK_BUILD=OFF. Fails if clang-tidy finds anything.
# Usage: tidy.sh BUILD-FOLDER [JOBS [FILE-REGEX…]]
set -eu
cd "$(dirname "$0")/.."
build="${1:?usage: tidy.sh BUILD-FOLDER [JOBS [FILE-REGEX...]]}"
jobs="${2:-$(nproc)}"
[ $# -ge 1 ] && shift
[ $# -ge 1 ] && shift
[ $# -ge 1 ] || set -- "$PWD/(src|apps|examples|tools|bench|tests)/"
exec run-clang-tidy-19 -quiet -p "$build" -j "$jobs" -warnings-as-errors='*' "$@"
