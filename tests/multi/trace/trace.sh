#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# trace.sh CHECK KASANE RANKS PROGRAM FLAGS…: CHECK looks at the program's trace, in core and with less DRAM
# than it uses. Also a log that is too small, and a file that cannot be created.
set -euo pipefail
check=$1 kasane=$2 ranks=$3 program=$4
shift 4
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

"$kasane" run -n "$ranks" "$@" --trace "$folder/trace.json" -- "$program" --count 1000000 --leaf 4096 --quiet
python3 "$check" "$folder/trace.json" "$ranks"

"$kasane" run -n "$ranks" "$@" --dram $((6 * ranks))M --spill "$folder" --trace "$folder/spills.json" \
  -- "$program" --count 2000000 --leaf 16384 --quiet
python3 "$check" "$folder/spills.json" "$ranks" beyond-dram

"$kasane" run -n "$ranks" "$@" --trace "$folder/small.json" --debug trace-events=1 \
  -- "$program" --count 1000000 --leaf 4096 --quiet 2> "$folder/text"
python3 -c 'import json, sys; json.load(open(sys.argv[1]))' "$folder/small.json"
[ "$ranks" = 1 ] ||
  grep -q "kasane: --trace: [0-9]* events found no room; a thread keeps 1 (--debug trace-events)" \
    "$folder/text"

if "$kasane" run -n "$ranks" "$@" --trace "$folder/none/trace.json" -- "$program" --count 1000 --quiet \
  2> "$folder/text"; then exit 1; fi
grep -q -- "--trace: creating $folder/none/trace.json" "$folder/text"
