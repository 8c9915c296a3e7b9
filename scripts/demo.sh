#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The main job, as `make demo` shows it: a word list's lines and ten million random keys, sorted by threads that move
# between 1, 2 and 4 processes; every result compared with sort(1) or checked by the program itself; then a table per rank.
# Fails if any run fails or differs. KASANE_DEMO_WORDS, KASANE_DEMO_COUNT and KASANE_DEMO_RANKS choose other work.
set -eu
cd "$(dirname "$0")/.."

build=build/${PRESET:-release}
kasane=$build/bin/kasane
cilksort=$build/apps/cilksort
words=${KASANE_DEMO_WORDS:-/usr/share/dict/american-english-insane}
count=${KASANE_DEMO_COUNT:-10000000}
ranks=${KASANE_DEMO_RANKS:-1 2 4}
limit=300   # seconds a run may take before it counts as hung

for program in "$kasane" "$cilksort"; do
  [ -x "$program" ] || { echo "demo: $program is missing: run make build" >&2; exit 1; }
done
[ -r "$words" ] || { echo "demo: cannot read $words (package wamerican-insane)" >&2; exit 1; }

scratch=$(mktemp -d "${TMPDIR:-/tmp}/kasane-demo.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

say() { printf '%s\n' "$*"; }

# run_ranks N REPORT ARGUMENTS...: one run, with the program's progress on the terminal and its own summary in a log.
run_ranks() {
  n=$1 report=$2
  shift 2
  timeout --foreground "$limit" "$kasane" run -n "$n" -- "$cilksort" "$@" --json "$report" >"$scratch/log" && return 0
  status=$?
  cat "$scratch/log" >&2
  [ "$status" -ne 124 ] || say "demo: no end after $limit s" >&2
  say "demo: FAILED on $n rank(s): $cilksort $*" >&2
  return 1
}

say "== lines of $words ($(wc -l <"$words") lines, $(wc -c <"$words") bytes)"
LC_ALL=C sort "$words" >"$scratch/expected"
for n in $ranks; do
  run_ranks "$n" "$scratch/words.$n.json" --file "$words" --out "$scratch/sorted"
  cmp "$scratch/expected" "$scratch/sorted" || { say "demo: FAILED: the output on $n rank(s) is not what LC_ALL=C sort gives" >&2; exit 1; }
  say "$n rank(s): equal to LC_ALL=C sort"
  rm -f "$scratch/sorted"
done
python3 scripts/demo_table.py "$scratch"/words.*.json

say
say "== $count random 64-bit keys"
serial=--serial   # once, std::sort sorts the same keys and the results are compared
for n in $ranks; do
  run_ranks "$n" "$scratch/keys.$n.json" --count "$count" $serial
  [ -n "$serial" ] && say "$n rank(s): verified, equal to std::sort" || say "$n rank(s): verified (order and checksum)"
  serial=
done
python3 scripts/demo_table.py "$scratch"/keys.*.json
say
say "demo: all results are right"
