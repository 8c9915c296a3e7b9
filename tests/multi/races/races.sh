#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# races.sh KASANE PROGRAM: checks what --check races reports and how the job ends. It must report nothing of a
# right program, nor of one that runs without the check.
kasane=$1 program=$2 failed=0

# expect STATUS COUNT TEXT FLAGS… -- how
expect() {
  status=$1 count=$2 text=$3; shift 3
  for n in 2 3; do
    output=$("$kasane" run -n $n --workers 1 --debug relocate=off "$@" 2>&1)
    ended=$?
    found=$(echo "$output" | grep -c "$text")
    if [ $ended != "$status" ] || [ "$found" != "$count" ]; then
      echo "$* on $n ranks: status $ended, not $status; '$text' $found times, not $count"
      echo "$output"
      failed=1
    fi
  done
}

between="no fence lies between: from 0x0 to 0x2222 here, to 0x1111 elsewhere"
expect 66 1 "rank [0-9]: data race: two ranks changed the 2 bytes at 0x[0-9a-f]*0 and $between" \
  --check races -- "$program" race
expect 66 1 "kasane: 1 data race found" --check races -- "$program" race
# An array is one place, and the store is named with its file.
expect 66 1 "$between, stored in .*program+0x" --check races -- "$program" array
expect 66 1 "data races: 64 in the 512 bytes from 0x[0-9a-f]*0 on, stored in .* at .*program.cpp:56[.]" \
  --check races -- "$program" array
none="kasane: 0 data races found in this run, which does not prove that there are none"
expect 0 1 "$none" --check races -- "$program" neighbours
expect 0 1 "$none" --check races -- "$program" ordered
expect 0 0 "kasane:" -- "$program" race
exit $failed
