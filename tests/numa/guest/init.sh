#!/bin/busybox sh
# SPDX-License-Identifier: Apache-2.0
# The first process of the virtual machine (scripts/test_numa.sh): runs each case, prints its status, and
# switches the machine off.
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmp /tmp
mkdir -p /dev/shm /var/tmp /etc
mount -t tmpfs shm /dev/shm
ip link set lo up
export PATH=/bin HOME=/ TMPDIR=/tmp HWLOC_COMPONENTS=-gl,-opencl

# run_case NAME COMMAND …
run_case() {
  name=$1
  shift
  echo "== $name"
  timeout 240 "$@"
  echo "CASE $name $?"
}

kernel=$(uname -r)
echo "guest: Linux $kernel, $(cut -d' ' -f1 /proc/uptime) s after its start"
for node in /sys/devices/system/node/node[0-9]*; do
  echo "guest: ${node##*/}: CPUs $(cat "$node/cpulist"), $(sed -n 's/.*MemFree: *//p' "$node/meminfo") free"
done
run_case one_rank kasane run -n 1 --stats -- numa_memory
run_case two_ranks kasane run -n 2 --workers 1 -- numa_memory
run_case without_spill kasane run -n 1 --spill none -- numa_memory
run_case full_node kasane run -n 1 --dram 400M --stats -- numa_memory 2 200
run_case peers kasane run -n 2 --workers 1 -- numa_memory peers
run_case four_ranks kasane run -n 4 --workers 1 -- numa_memory peers
run_case peers_without_spill kasane run -n 2 --workers 1 --spill none -- numa_memory peers
run_case spilled kasane run -n 1 --workers 1 --dram 12M -- numa_memory spilled
run_case bound kasane run -n 2 --workers 1 --bind numa --show-binding -- numa_memory
run_case rank_is_node kasane run -n 2 --workers 1 --bind numa -- numa_memory rank_is_node
run_case steals kasane run -n 4 --workers 1 --bind numa --stats -- numa_memory steals
run_case registers kasane run -n 2 --workers 1 -- program_live_registers   # no AVX-512 here
run_case topology kasane info --topology -n 2 --bind numa
# Two nodes have threads, three have memory.
run_case triad kasane bench triad --quick --only parted,blocks,nodes,ordinary --sizes 65536 --jobs 1x2 \
  --json /tmp/triad.json
run_case triad_matrix sh -c 'grep -c \"memory_node\" /tmp/triad.json | grep -qx 6'
mkdir -p /sys/fs/cgroup
mount -t cgroup2 cgroup /sys/fs/cgroup
echo +cpuset >/sys/fs/cgroup/cgroup.subtree_control
mkdir /sys/fs/cgroup/two
echo 0-1 >/sys/fs/cgroup/two/cpuset.mems
run_case cpuset sh -c 'echo $$ >/sys/fs/cgroup/two/cgroup.procs
exec kasane run -n 1 -- numa_memory forbidden'
echo 'user:x:1000:1000::/:/bin/sh' >/etc/passwd
run_case unprivileged su user -c 'kasane run -n 1 -- numa_memory'
# Without privileges and without a spill file.
as_user() {   # NAME ARGUMENTS OF kasane run …
  name=$1
  shift
  run_case "$name" su user -c "kasane run --spill none $*"
}
as_user peers_unprivileged -n 2 --workers 1 -- numa_memory peers
as_user four_ranks_unprivileged -n 4 --workers 1 -- numa_memory peers
run_case full_node_unprivileged su user -c \
  'kasane run -n 1 --dram 400M --spill none -- numa_memory 2 200 2>/tmp/full
  status=$?
  cat /tmp/full
  [ "$(grep -c "rank 0: [0-9]* pages stay on other NUMA nodes" /tmp/full)" -eq 1 ] && exit $status'
echo 1 >/proc/sys/vm/unprivileged_userfaultfd   # so that uffd-thread can be had
for engine in $(kasane info | sed -n 's/^  \([a-z-]*\)  *available: \(userfaultfd\|SIGSEGV\).*/\1/p'); do
  run_case "spilled_$engine" su user -c \
    "kasane run -n 1 --workers 1 --dram 8M --faults $engine -- numa_memory spilled_then_bound"
  as_user "in_use_$engine" -n 1 --workers 2 --faults "$engine" -- numa_memory in_use
  as_user "shared_$engine" -n 2 --workers 1 --faults "$engine" -- numa_memory shared
  as_user "released_$engine" -n 2 --workers 2 --faults "$engine" -- numa_memory released
  as_user "four_shared_$engine" -n 4 --workers 1 --faults "$engine" -- numa_memory shared
done
echo "guest: $(cut -d' ' -f1 /proc/uptime) s after its start"
poweroff -f
