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
# Each is a number, and none is nonsense: a link has a latency, bytes take time.
python3 - "$file" << 'END' || fail "$(cat "$file")"
import json, sys
file = json.load(open(sys.argv[1]))
for link in "in_host", "between_hosts":
    assert 0 < file[link]["ns_per_byte"] < 100 and file[link]["gap_ns"] < 1e6, link
assert file["between_hosts"]["latency_ns"] + file["between_hosts"]["overhead_ns"] > 0
assert file["fault_ns"] > 100
END
"$kasane" bench scale --quick --only fib --network "$file" > /dev/null || fail "scale does not read it"
"$kasane" bench network --quick --start "$kasane run -n 3 --main all --" 2> "$work/said" > /dev/null &&
  fail "three ranks are measured"
grep -q "on 2 ranks" "$work/said" || fail "refusal: $(cat "$work/said")"
echo "network: read by scale"
