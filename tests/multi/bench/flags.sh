#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# flags.sh KASANE: every suite has the common flags with the same words, lists its names, refuses unknown
# words with status 2, and suggests others.
set -u
kasane=$1
fail() { echo "flags: FAILED: $*"; exit 1; }

# refused SAYS ARGUMENTS…
refused() {
  local says=$1 said status
  shift
  said=$(timeout 20 "$kasane" bench "$@" 2>&1 >/dev/null); status=$?
  [ $status -eq 2 ] || fail "bench $*: status $status, not 2: $said"
  [[ $said == *"$says"* ]] || fail "bench $*: does not say '$says' but: $said"
}

suites=$(timeout 20 "$kasane" bench | sed -n 's/^  \([a-z]*\)  *[A-Z].*/\1/p') || fail "bench alone"
count=0
common=
for suite in $suites; do
  help=$(timeout 20 "$kasane" bench "$suite" --help) || fail "bench $suite --help"
  what=$(timeout 20 "$kasane" bench | sed -n "s/^  $suite  *//p")
  [[ $help == "$what"* ]] || fail "bench $suite --help begins with other words than the list's"
  [[ $help == *"Usage: kasane bench $suite"* ]] || fail "bench $suite --help has another usage"
  flags=$(grep -E '^  --(only|list|json) ' <<<"$help")
  [ "$(wc -l <<<"$flags")" -eq 3 ] || fail "bench $suite: $flags"
  [ -z "$common" ] || [ "$flags" = "$common" ] || fail "bench $suite has other words: $flags"
  common=$flags
  for flag in --quick --repetitions; do
    [[ "$suite $flag" =~ ^(eviction|scale)" --repetitions"$ ]] || grep -q "^  $flag " <<<"$help" ||
      fail "bench $suite has no $flag"
  done
  names=$(timeout 20 "$kasane" bench "$suite" --list) || fail "bench $suite --list"
  [ "$(wc -l <<<"$names")" -ge 3 ] || fail "bench $suite --list: $names"
  refused "bench $suite has no option --jsom; did you mean --json?" "$suite" --jsom x
  refused "--only: there is no smoke-signals" "$suite" --only smoke-signals
  count=$((count + 1))
done
refused 'there is no suite stensil; did you mean stencil?' stensil
refused 'there is no suite frobnicate' frobnicate
refused 'did you mean kasane-shm?' gas --only kasane-shn
# Of each kind what is named, and all of the others.
only=$(timeout 60 "$kasane" bench eviction --quick --pages 64 --only clock,fifo --json - 2>/dev/null |
  grep -o '"system": "[a-z0-9-]*"' | sort -u | tr '\n' ' ')
[ "$only" = '"system": "best" "system": "clock" "system": "fifo" ' ] ||
  fail "bench eviction --only clock,fifo gave $only"
echo "flags: $count suites are alike"
