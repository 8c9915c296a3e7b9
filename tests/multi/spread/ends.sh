#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A job ends whatever a thread on another rank does meanwhile: ends.sh KASANE PROGRAM
kasane=$1 program=$2 failed=0
for state in created computes waits mutex join page calls sleeps ends ended; do
  for how in kill exit there; do
    output=$(timeout 20 "$kasane" run -n 2 --threads spread -- "$program" $state $how 2>&1)
    status=$?
    wanted=7
    [ $how = kill ] && wanted=137
    [ $status = $wanted ] && continue
    echo "$state, $how: status $status, not $wanted"
    echo "$output"
    failed=1
  done
done
exit $failed
