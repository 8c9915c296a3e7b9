#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# directories.sh KASANE TIERS_TEST RANKS: a job with two spill directories has data in both, reads the right
# data back, and leaves nothing behind.
set -u
dir=$(mktemp -d /dev/shm/kasane-directories.XXXXXX) && trap 'rm -rf "$dir"' EXIT
mkdir "$dir/a" "$dir/b"
export KASANE_SPILL="$dir/a:$dir/b" KASANE_DRAM=$(($3 * 5120))K
"$1" run -n "$3" --workers 2 -- "$2" --gtest_filter='TiersDirectories.*:*Sweeps*/5' > "$dir/out" 2>&1
status=$?
cat "$dir/out"
[ $status = 0 ] && grep -q 'PASSED.* 2 tests' "$dir/out" || { echo "FAILED: status $status"; exit 1; }
[ -z "$(ls -A "$dir/a" "$dir/b" | grep -v ':$' | tr -d '\n')" ] ||
  { echo "FAILED: left behind:"; ls -lA "$dir/a" "$dir/b"; exit 1; }
