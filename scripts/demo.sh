#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What `make demo` shows: three things, each with its time, the time of std::sort (one thread, no Kasane), and
# what the figures mean.
#   1. the lines of a word list on two ranks: equal to sort(1)
#   2. ten million keys on 1 x 2, 2 x 1 and 4 x 1 ranks x workers
#   3. the same keys in a quarter of their memory
# The program verifies each run. A run that fails or differs ends the demo with 1.
# Usage: demo.sh [BUILD]. DEMO_WORDS and DEMO_COUNT choose other work.
set -eu
cd "$(dirname "$0")/.."

build=${1:-build/release}
kasane=$build/bin/kasane
cilksort=$build/apps/cilksort
words=${DEMO_WORDS:-/usr/share/dict/american-english-insane}
count=${DEMO_COUNT:-10000000}
limit=300   # seconds a run may take before it counts as hung
cores=$(nproc)

say() { printf '%s\n' "$*"; }
fail() { say "demo: FAILED: $*" >&2; exit 1; }

for program in "$kasane" "$cilksort"; do
  [ -x "$program" ] || fail "$program is missing: run make demo"
done
[ -r "$words" ] || fail "cannot read $words (package wamerican-insane)"

scratch=$(mktemp -d "${TMPDIR:-/tmp}/kasane-demo.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# sort_on RANKS WORKERS [OPTIONS OF kasane run] -- ARGUMENTS: one start of the program. The program writes its
# report to $scratch/report and its progress to the terminal.
sort_on() {
  on="$1 x $2" ranks=$1 workers=$2
  shift 2
  options=''
  while [ "$1" != -- ]; do options="$options $1"; shift; done
  shift
  # shellcheck disable=SC2086   # options are words without blanks
  timeout --foreground "$limit" "$kasane" run -n "$ranks" --workers "$workers" $options \
    -- "$cilksort" "$@" --json "$scratch/report" >"$scratch/log" && return 0
  status=$?
  cat "$scratch/log" >&2
  [ "$status" -ne 124 ] || fail "no end after $limit s"
  fail "status $status on $on ranks x workers:$options cilksort $*"
}

# figure NAME: the first number of this name in the report.
figure() { sed -n "s/^ *\"$1\": \([0-9.e+-]*\),*$/\1/p" "$scratch/report" | head -n 1; }

# row HOW SECONDS NOTE, and compute EXPRESSION [FORMAT]
row() { awk -v how="$1" -v s="$2" -v note="$3" 'BEGIN { printf "   %-28s %7.3f s   %s\n", how, s, note }'; }
compute() { awk "BEGIN { printf \"${2:-%.2f}\", $1 }"; }

say "1. The lines of $words ($(wc -l <"$words" | tr -d ' ') lines) on two ranks"
LC_ALL=C sort "$words" >"$scratch/expected"
sort_on 2 1 -- --file "$words" --out "$scratch/sorted" --serial
cmp "$scratch/expected" "$scratch/sorted" || fail "the output is not what LC_ALL=C sort gives"
alone=$(figure seconds_std_sort) s=$(figure seconds)
row 'std::sort' "$alone" ''
row '2 ranks x 1 worker' "$s" 'equal to LC_ALL=C sort, byte for byte'
say "   So threads, pointers and strings of one program mean the same in two processes; that takes" \
  "$(compute "$s / $alone") times as long as std::sort,"
say "   since the list is small and has to be sent to the other rank and back."

say
say "2. $count random 64-bit keys on $cores cores (medians of 3 runs; bytes of all of them)"
sort_on 1 2 -- --count "$count" --serial --repeat 3
alone=$(figure seconds_std_sort) threads=$(figure seconds)
row 'std::sort' "$alone" ''
row '1 rank x 2 workers' "$threads" "$(compute "$alone / $threads") times as fast"
sort_on 2 1 -- --count "$count" --repeat 3
two=$(figure seconds)
fetched=$(compute "$(figure bytes_fetched) / 1e6" '%.0f')
row '2 ranks x 1 worker' "$two" \
  "$(compute "$alone / $two") times as fast, $fetched MB fetched from the other rank"
sort_on 4 1 -- --count "$count" --repeat 3
four=$(figure seconds)
fetched=$(compute "$(figure bytes_fetched) / 1e6" '%.0f')
row '4 ranks x 1 worker' "$four" \
  "$(compute "$alone / $four") times as fast, $fetched MB fetched from other ranks"
say "   So two processes take $(compute "$two / $threads") times as long as two threads of one:" \
  "what is fetched is the price of not sharing memory."
if [ "$cores" -ge 4 ]; then
  say "   Four ranks have a core each, so they may be faster than two."
else
  say "   Four ranks share $cores cores, so they cannot be faster than two:" \
    "they only fetch more ($(compute "$four / $two") times as long)."
fi

say
quarter=$((count * 8 / 4 / 1048576 + 1))
[ "$quarter" -ge 16 ] || quarter=16   # two ranks cannot do well with less
say "3. The same keys in a quarter of their memory: $(compute "$count * 8 / 1048576" '%.0f') MiB," \
  "and as much again to sort them, with --dram ${quarter}M"
sort_on 2 1 --dram "${quarter}M" -- --count "$count" --repeat 3
spilled=$(figure seconds)
row 'std::sort, all in memory' "$alone" ''
written=$(compute "$(figure bytes_spilled) / 1e6" '%.0f')
read_back=$(compute "$(figure bytes_read_back) / 1e6" '%.0f')
row '2 ranks x 1 worker' "$spilled" \
  "$written MB written to ${TMPDIR:-/var/tmp}, $read_back MB read back"
say "   So data need not fit into memory: the program is the same," \
  "and takes $(compute "$spilled / $two") times as long as with all of it."
say
say "demo: all results are right"
