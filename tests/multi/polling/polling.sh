#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# polling.sh KASANE PROGRAM: what --check polling reports, and that it reports nothing of right programs.
kasane=$1 program=$2 failed=0

# expect COUNT HOW [NAME]: NAME of the variable that the report adds
expect() {
  for n in 2 4; do
    output=$(timeout 30 "$kasane" run -n $n --workers 1 --debug relocate=off --check polling \
      -- "$program" "$2" 2>&1)
    ended=$?
    says="rank $((n - 1)): polling: thread [0-9]+ has run for 2 s without a call, and reads the word at"
    found=$(grep -cE "$says 0x[0-9a-f]+$3, which another rank has changed from 0x0 to 0x1\." <<<"$output")
    frames=$(grep -c '#0 .*wait_for_plain_word' <<<"$output")
    if [ $ended != 0 ] || [ "$found" != "$1" ] || [ "$frames" != "$1" ]; then
      echo "$2 on $n ranks: status $ended; reported $found times, not $1, with $frames frames"
      echo "$output"
      failed=1
    fi
  done
}
expect 1 plain
expect 1 variable " \(polled_variable\)"
expect 0 computes
expect 0 waits
exit $failed
