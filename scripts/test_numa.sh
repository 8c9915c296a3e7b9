#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `make test-numa`: jobs of Kasane in a virtual machine (guest.sh) with two NUMA nodes that have a CPU each,
# and a third one without; two minutes. Needs a release build (make build).
# Usage: test_numa.sh [BUILD]
set -eu
cd "$(dirname "$0")/.."
. scripts/guest.sh
build=${1:-build/release}
cmake --build "$build" --target kasane_command numa_memory kasane-bench-triad
guest_begin numa "$build" tests/numa/cases.sh
guest_add kasane bin
guest_add numa_memory bin
for program in kasane-bench-triad player-triad-kasane player-triad-stream; do
  guest_add "$program" lib/kasane
done
guest_pack

memory() { echo "-object memory-backend-ram,size=$2M,id=m$1 -numa node,nodeid=$1,$3memdev=m$1"; }
latency() {
  echo "-numa hmat-lb,initiator=$1,target=$2,hierarchy=memory,data-type=access-latency,latency=$3" \
    "-numa hmat-lb,initiator=$1,target=$2,hierarchy=memory,data-type=access-bandwidth,bandwidth=$4G"
}
# shellcheck disable=SC2046
guest_boot output.log 1200 -machine q35,hmat=on -cpu max,-cx16 -m 704M \
  $(memory 0 288 cpus=0,) $(memory 1 288 cpus=1,) $(memory 2 128 '') \
  -numa dist,src=0,dst=1,val=21 -numa dist,src=0,dst=2,val=40 -numa dist,src=1,dst=2,val=40 \
  $(latency 0 0 80 100) $(latency 0 1 140 50) $(latency 0 2 300 25) \
  $(latency 1 0 140 50) $(latency 1 1 80 100) $(latency 1 2 300 25)
if ! guest_passed output.log; then
  cat output.log
  echo "test_numa: FAILED: $bad of $cases cases; the machine ended with status $guest_status"
  exit 1
fi
# what must be said, whatever the status
says() {
  grep -q "$1" output.log && return
  echo "test_numa: FAILED: build/numa/output.log does not say: $1" >&2
  exit 1
}
says 'rank 1, worker 0: core 1 (NUMA node 1), memory from node 1'
says 'distances 10 21 40'
says 'pages_misplaced'
says 'steals_numa'
says 'nodes  *node 1 to 2  '   # the matrix of kasane bench triad: from each node with a CPU to each
grep '^guest:\|^CASE' output.log
echo "test_numa: $cases cases passed"
