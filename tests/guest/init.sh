#!/bin/busybox sh
# SPDX-License-Identifier: Apache-2.0
# The first process of a virtual machine (scripts/guest.sh): runs the cases in /cases.sh, each of which prints
# its status, and switches the machine off.
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

echo "guest: Linux $(uname -r), $(cut -d' ' -f1 /proc/uptime) s after its start"
. /cases.sh
echo "guest: $(cut -d' ' -f1 /proc/uptime) s after its start"
poweroff -f
