#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What is said of the program's OS threads on all ranks: reports.sh KASANE PROGRAM
kasane=$1 program=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
out=$folder/out

fail() {
  echo "FAILED: $*"
  cat "$out"
  exit 1
}
says() { [ "$(grep -Ec -- "$2" "$out")" = "$1" ] || fail "not $1 lines match: $2"; }

mkfifo "$folder/input"
timeout 50 "$kasane" run -n 2 --threads spread --check threads -- "$program" <"$folder/input" >"$out" 2>&1 &
job=$!
exec 3>"$folder/input"
until grep -q begun "$out"; do sleep 0.05; done
for _ in $(seq 100); do
  kill -QUIT "$(pgrep -P $job)" 2>/dev/null
  for _ in $(seq 20); do
    grep -q 'rank 1:' "$out" && break 2
    sleep 0.05
  done
done
says 1 'OS thread [0-9]+, main, runs, or waits for the kernel$'
says 2 'OS thread [0-9]+ waits in std::condition_variable::wait for the word at 0x[0-9a-f]+ \(.*g_condition\)'
says 2 '#[0-9]+ .*wait_for_main'
says 2 '#[0-9]+ .*sleep_for_long'
exec 3>&-
wait $job || fail "status $?"
says 1 'rank 0: threads check: [12] OS threads of the program have run here$'
says 1 'rank 1: threads check: [23] OS threads of the program have run here$'
grep -Eq '[0-9]+ waits in std::condition_variable::wait, [0-9.]+ s$' "$out" || fail "no waits for a condition"
says 1 '[23] calls made on another rank: vfprintf'
exit 0
