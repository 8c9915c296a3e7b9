#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# stats.sh KASANE PROGRAM SOURCE RANKS: what --stats says of where the time went. The transport and the fault
# engine are in the environment (KASANE_TRANSPORT, KASANE_FAULTS).
set -uo pipefail
kasane=$1 program=$2 source=$3 ranks=$4
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
out=$folder/text
workers=$((ranks == 1 ? 2 : 1))

fail() {
  echo "FAILED: $what: $*"
  cat "$out"
  exit 1
}
# The table alone, of PROGRAM ARGUMENT; percentages of its first column must sum to 100.
run() {  # PROGRAM ARGUMENT
  what=$2
  timeout 60 "$kasane" run --stats -n "$ranks" --workers "$workers" -- "$1" "$2" >"$out" 2>&1 ||
    fail "status $?"
  sed -i -n '/^where the time of [0-9]* workers went$/,$p' "$out"
  local sum
  sum=$(awk 'substr($0, 7, 1) == "%" { n += $1 * 10 } END { printf "%d", n + 0.5 }' "$out")
  [ "$sum" = 1000 ] || fail "the parts sum to $sum tenths of a percent"
}
# The account has MIN to MAX percent, and its first place is PLACE.
has() {  # ACCOUNT MIN MAX [PLACE]
  local line part place
  line=$(grep -E "^ ?[ 0-9.]+ %  $1( \(most: |\$)" "$out") || fail "no line: $1"
  part=$(awk '{ print int($1) }' <<<"$line")
  [ "$part" -ge "$2" ] && [ "$part" -le "$3" ] || fail "$1: $part %, not $2 to $3"
  [ $# = 3 ] && return
  place=$(grep -A1 -F -- "$line" "$out" | sed -n '2s/^ *[0-9.]* %  //p')
  [[ $place =~ ^$4$ ]] || fail "$1: '$place' is not $4"
}
lacks() { ! grep -Eq "^ ?[ 0-9.]+ %  $1" "$out" || fail "a line: $1"; }
line_of() { grep -n "here: $1\$" "$source" | cut -d: -f1; }
at() {  # FUNCTION MARK: the name with its line, if it can be known
  if command -v addr2line >/dev/null; then echo "$1\\(.*\\) program.cpp:$(line_of "$2")"
  else echo "$1\\(.*\\)"; fi
}

run "$program" compute
has compute $((80 / ranks / workers)) 100
lacks 'load faults'
[ $((ranks * workers)) = 1 ] || has idle $((70 - 100 / ranks / workers)) 100

# On one rank both threads may be one worker's, and wait for nobody.
run "$program" barrier
[ "$ranks" = 1 ] || has 'waits at barriers' $((10 * ranks)) $((100 - 80 / ranks)) "$(at meet barrier)"
run "$program" lock
[ "$ranks" = 1 ] || has 'waits for locks' $((5 * ranks / 2)) 90 "$(at take_turn lock)"

if [ "$ranks" -gt 1 ]; then
  far() {  # ARGUMENT ACCOUNT FUNCTION
    run "$program" "$1"
    # A thread that serves faults for others knows not where they come from, nor when those go on.
    if [[ ${KASANE_FAULTS-} == uffd-thread ]]; then has "$2" 1 $((100 / ranks))
    else has "$2" $((20 / ranks)) $((100 / ranks)) "$(at "$3" "$1")"; fi
  }
  far loads 'load faults' load_far
  far stores 'store faults' store_far
  far copies 'load faults' copy_far
  has 'waits in joins' $((50 / ranks)) $((100 / ranks)) '.*'

  # Without debug information and without symbols.
  strip -g -o "$folder/program" "$program"
  run "$folder/program" barrier
  has 'waits at barriers' 20 90 'meet\(.*\)'
  strip -o "$folder/program" "$program"
  run "$folder/program" barrier
  has 'waits at barriers' 20 90 'program\+0x[0-9a-f]+'
fi
exit 0
