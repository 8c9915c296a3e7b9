#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs each fuzzer of build/fuzz for some seconds, from its seeds and what earlier runs have found
# (build/fuzz/corpus). Prints a line for each; the status is 1 if one has a finding, whose input stays in
# build/fuzz/findings. It becomes a seed with a name that says what it is, once it is mended.
# Usage: fuzz.sh [SECONDS [NAME…]]
set -eu
cd "$(dirname "$0")/.."
seconds=${1:-60}
[ $# -gt 0 ] && shift
[ $# -gt 0 ] || set -- $(ls tests/fuzz/seeds)
mkdir -p build/fuzz/findings
failed=''
for name in "$@"; do
  corpus=build/fuzz/corpus/$name log=build/fuzz/findings/$name.log
  mkdir -p "$corpus"
  # A read beyond what was asked for, a leak, an input of five minutes or 2 GiB are findings, too.
  if nice -n 19 "build/fuzz/bin/fuzz_$name" -max_total_time="$seconds" -timeout=300 -rss_limit_mb=2048 \
    -max_len=8192 -artifact_prefix="build/fuzz/findings/$name-" -print_final_stats=1 \
    "$corpus" "tests/fuzz/seeds/$name" >"$log" 2>&1; then
    result='no finding'
  else
    result='FINDING'
    failed="$failed $name"
  fi
  runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  edges=$(sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "$log" | tail -1)
  echo "$name: $result in $seconds s: ${runs:-?} inputs, ${edges:-?} edges"
done
[ -z "$failed" ] || { echo "fuzz: see build/fuzz/findings:$failed"; exit 1; }
