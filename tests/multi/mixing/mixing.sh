#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# mixing.sh KASANE PROGRAM: checks what --check mixing reports, once a place. It must report nothing of a
# right program, nor of one that runs without the check.
kasane=$1 program=$2 failed=0

# expect COUNT TEXT FLAGS… -- how
expect() {
  count=$1 text=$2; shift 2
  output=$("$kasane" run -n 2 --workers 1 "$@" 2>&1) ||
    { echo "failed: $*"; echo "$output"; failed=1; return; }
  found=$(echo "$output" | grep -c "$text")
  if [ "$found" != "$count" ]; then echo "$*: '$text' $found times, not $count"; echo "$output"; failed=1; fi
}

expect 1 "kasane::get at .* uses 0x[0-9a-f]* directly, but this rank has changed it" \
  --check mixing -- "$program" wrong-release
expect 1 "Call kasane::release_all()" --check mixing -- "$program" wrong-release
expect 1 "a load of 0x[0-9a-f]* after kasane::.* at .* changed it directly, without an acquire" \
  --check mixing -- "$program" wrong-acquire
expect 0 "kasane:" --check mixing -- "$program" right
expect 0 "kasane:" --check mixing -- "$program" fixed
expect 0 "kasane:" -- "$program" wrong-release
expect 0 "kasane:" -- "$program" wrong-acquire
exit $failed
