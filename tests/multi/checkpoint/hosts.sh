#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A checkpoint by ranks on two hosts (tests/multi/cluster/cluster.sh), and its restart on one rank.
#
#   hosts.sh KASANE PROGRAM CLUSTER_SH together|apart
#
# apart: the second host has a directory of its own at the same path
set -u
kasane=$1 program=$2 cluster=$3 how=$4
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT
mkdir "$dir/data"
cat > "$dir/start" << END
#!/bin/sh
case $how-\$(hostname) in
  apart-kb*) exec unshare -m sh -c 'mount -t tmpfs none $dir/data && exec $program $dir/data/c 3' ;;
esac
exec $program $dir/data/c 3
END
chmod +x "$dir/start"
bash "$cluster" openmpi 1 ucx "$dir/start" > "$dir/out" 2>&1
status=$?
cat "$dir/out"
[ $status = 0 ] || exit $status
grep -qx 'saved 3' "$dir/out" || { echo "FAILED: not saved"; exit 1; }
timeout 60 "$kasane" run -n 1 -- "$program" "$dir/data/c" check 3 || { echo "FAILED: not restored"; exit 1; }
[ "$(ls "$dir/data")" = c ] || { echo "FAILED: left behind: $(ls "$dir/data")"; exit 1; }
