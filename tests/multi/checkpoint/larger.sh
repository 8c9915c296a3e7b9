#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Checkpoints of data larger than DRAM. A stencil of 36 MiB saves on two ranks with one budget, continues on
# one rank with another budget, and saves the same bytes as a stencil without a budget.
#
#   larger.sh KASANE STENCIL [IN_MEMORY_GROUP]
#
# With IN_MEMORY_GROUP the first two stencils run in memory control groups of their budgets and the slack that
# docs/guide/memory.md states, 1 MiB of it for the checkpoint, with files on a disk. Exits 77 where there are
# no groups.
set -u
kasane=$1 stencil=$2 group=${3-} spill=/dev/shm
[ -z "$group" ] || spill=/var/tmp
dir=$(mktemp -d /var/tmp/kasane-larger.XXXXXX) && trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
fail() { echo "FAILED: $*"; cat out err; exit 1; }

# step RANKS KIB_A_RANK STEPS
step() {
  local held=()
  [ -z "$group" ] || held=("$group" $(($1 * ($2 + 13312)))K "$dir")
  "${held[@]}" "$kasane" run -n "$1" --workers 2 --dram $(($1 * $2))K --spill $spill --stats \
    -- "$stencil" -n 2120 --steps "$3" --checkpoint c --quiet > out 2> err
  status=$?
  [ $status != 77 ] || { cat out; exit 77; }
  [ $status = 0 ] || fail "on $1 ranks with ${2}K each: status $status"
  spilled=$(cat out err | grep -o 'bytes_spilled *[0-9.]* MiB' | grep -o '[0-9]*[.]\?[0-9]* MiB' |
    cut -d. -f1 | cut -d' ' -f1)
  [ "${spilled:-0}" -gt 19 ] ||
    fail "on $1 ranks with ${2}K each: only ${spilled:-0} MiB were spilled: nothing was tested"
}

step 2 5120 2
step 1 6144 4
"$kasane" run -n 1 --workers 2 -- "$stencil" -n 2120 --steps 4 --checkpoint right --quiet > out 2> err ||
  fail "without a budget"
cmp c right || fail "other bytes than without a budget"
rm -f out err
[ "$(ls)" = "$(printf '%s\n' c right)" ] || { echo "FAILED: left behind: $(ls)"; exit 1; }
