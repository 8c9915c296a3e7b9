#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# network.sh KASANE: kasane bench network writes a file that kasane bench scale reads; a second link goes
# into the same file; a job that is not one of two ranks is refused.
set -u
kasane=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "network: FAILED: $*"; exit 1; }
file=$work/network.json
"$kasane" bench network --quick --out "$file" > "$work/said" || fail "shm"
grep -q "in a host; one-sided operations by the network" "$work/said" || fail "$(cat "$work/said")"
"$kasane" bench network --quick --out "$file" --json "$work/rows" \
  --start "$kasane run -n 2 --workers 1 --main all --transport ucx --" > "$work/said" || fail "ucx"
grep -q '"wake"' "$work/rows" || fail "rows: $(cat "$work/rows")"
# Each is a number; how large depends on the machine and what else it does.
python3 - "$file" << 'END' || fail "$(cat "$file")"
import json, sys
file = json.load(open(sys.argv[1]))
for link in "in_host", "between_hosts":
    for name in "latency_ns", "overhead_ns", "message_overhead_ns", "gap_ns", "ns_per_byte":
        assert file[link][name] >= 0, (link, name)
assert not file["one_sided"] and file["fault_ns"] >= 0 and file["wake_ns"] >= 0
END
"$kasane" bench scale --quick --only fib --network "$file" > /dev/null || fail "scale does not read it"
"$kasane" bench network --quick --start "$kasane run -n 3 --main all --" 2> "$work/said" > /dev/null &&
  fail "three ranks are measured"
grep -q "on 2 ranks" "$work/said" || fail "refusal: $(cat "$work/said")"
echo "network: read by scale"
