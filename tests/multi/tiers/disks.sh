#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# disks.sh KASANE PROGRAM BROKEN_DISK RANKS [mounted|ext4]: the end of a job whose spill directory is missing,
# cannot be written, is full or fails, now or later, whose file size is limited, or that is killed. The job
# must give a message with path, bytes and errno and a status that is not 0, read no wrong word before that,
# and leave nothing behind. mounted: on file systems in memory that the script mounts. ext4: on one on a loop
# device, which takes direct I/O. Both end with status 77 (skipped) where that cannot be done.
set -u
kasane=$1 program=$2 broken=$3 ranks=$4 part=${5-} failed=0
skip() { echo "skipped: $1"; exit 77; }
if [ -n "$part" ] && [ "${6-}" != apart ]; then
  unshare -m true 2> /dev/null || skip "no mount namespace can be made here (root may)"
  exec unshare -m bash "$0" "$@" apart
fi
dir=$(mktemp -d /var/tmp/kasane-disks.XXXXXX)
trap 'umount "$dir"/* 2> /dev/null; rm -rf "$dir"' EXIT
export PATH=$PATH:/usr/sbin:/sbin   # mkfs
export KASANE_DRAM=$((ranks * 5120))K
job=(run -n "$ranks" --workers 2)
work=("$program" --gtest_filter=*Sweeps*/5 --gtest_repeat=100)

small() { mkdir "$dir/$1" && mount -t tmpfs -o "$2" none "$dir/$1"; }   # a file system of its own
wrong() { echo "FAILED: $1"; echo "$output"; failed=1; }

# expect WHAT PATTERN DIRECTORY ENVIRONMENT…: the job's end
expect() {
  what=$1 pattern=$2 where=$3; shift 3
  output=$(env "$@" timeout -k 5 60 "$kasane" "${job[@]}" --spill "$where" -- "${work[@]}" 2>&1)
  status=$?
  [ $status != 0 ] && [ $status != 124 ] && [ $status != 137 ] || wrong "$what: status $status"
  echo "$output" | grep -q "$pattern" || wrong "$what: no '$pattern'"
  echo "$output" | grep -q "EXPECT\|Failure" && wrong "$what: a word was lost first"
  [ -d "$where" ] && [ -n "$(ls -A "$where")" ] && wrong "$what: left behind: $(ls -A "$where")"
}

size="[0-9.]*[KMGT]"
sparse="it is sparse: as long as the space, $size, see --space, and takes what is spilled"
in_file="at offset 0x[0-9a-f]* of the spill file in"
plain() {
  mkdir "$dir/good"
  expect missing "no spill file can be made in $dir/none ($sparse); create it.*No such file or directory" \
    "$dir/none"
  [ "$(echo "$output" | grep -c "can be made in")" = 1 ] || wrong "missing: not said once"
  output=$(TMPDIR=$dir/none timeout -k 5 60 "$kasane" "${job[@]}" -- "$program" --gtest_list_tests 2>&1) &&
    wrong "missing, not named: found out late"
  echo "$output" | grep -q "did not start" &&
    echo "$output" | grep -q "can be made in $dir/none ($sparse); create it.*No such file" ||
    wrong "missing, not named"
  expect "a file" "can be made in $program ($sparse); create it.*Not a directory" "$program"
  expect few "1M of DRAM are too few for $ranks ranks .*: [0-9]*[KM] are needed (--dram" \
    "$dir/good" KASANE_DRAM=1M
  for error in 122:"Disk quota exceeded" 5:"Input/output error" 28:"No space left on device"; do
    expect "writes: ${error#*:}" \
      "writing $size $in_file $dir/good failed, where $size bytes are free; .*${error#*:}" "$dir/good" \
      LD_PRELOAD="$broken" BROKEN_DISK=write BROKEN_DISK_AFTER=40 BROKEN_DISK_ERRNO="${error%:*}"
  done
  # … and where io_uring says so.
  if "$kasane" info | grep -q "io_uring *available" && printf '6.10\n%s\n' "$(uname -r)" | sort -VC; then
    for error in 122:"Disk quota exceeded" 5:"Input/output error"; do
      for kind in write:writing read:reading; do
        expect "${kind#*:} by io_uring: ${error#*:}" \
          "${kind#*:} $size $in_file $dir/good failed, .*${error#*:}" "$dir/good" \
          LD_PRELOAD="$broken" BROKEN_RING=1 BROKEN_DISK="${kind%:*}" BROKEN_DISK_AFTER=40 \
          BROKEN_DISK_ERRNO="${error%:*}"
        echo "$output" | grep -q "broken by io_uring" || wrong "${kind#*:}: not by io_uring"
      done
    done
  fi
  expect reads "reading $size $in_file $dir/good failed, .*Input/output error" "$dir/good" \
    LD_PRELOAD="$broken" BROKEN_DISK=read BROKEN_DISK_AFTER=40 BROKEN_DISK_ERRNO=5

  # A limit of file sizes that the program itself, or another process, lowers in mid-run.
  if command -v prlimit > /dev/null; then
    "$kasane" "${job[@]}" --spill "$dir/good" -- "${work[@]}" > "$dir/out" 2>&1 &
    pid=$!
    # Once main runs, all ranks have started.
    for ((i = 0; i < 300; ++i)); do grep -qs RUN "$dir/out" && break; sleep 0.1; done
    for rank in $(pgrep -P $pid); do prlimit --fsize=1048576:unlimited --pid "$rank"; done
    wait $pid && { output=$(cat "$dir/out"); wrong "ulimit -f: status 0"; }
    output=$(cat "$dir/out")
    grep -q "$dir/good.*ulimit -f.*File too large" "$dir/out" || wrong "ulimit -f"
  fi
}

mounted() {
  small ro ro 2> /dev/null || skip "no file system can be mounted here"
  expect "read-only" \
    "can be made in $dir/ro ($sparse); name a directory that this user can write to.*Read-only file system" \
    "$dir/ro"
  small full size=64k && head -c 65536 /dev/zero > "$dir/full/all" && mkdir "$dir/full.list"
  output=$(timeout -k 5 60 "$kasane" "${job[@]}" --spill "$dir/full" -- "${work[@]}" 2>&1) &&
    wrong "full: status 0"
  echo "$output" | grep -q "can be made in $dir/full ($sparse); free space there.*No space left on device" ||
    wrong full
  small later size=3m
  local full="free space there.*No space left on device"
  expect "full later" "writing $size $in_file $dir/later failed, where 0 bytes are free; $full" "$dir/later"

  # Killed, any of its processes, while the file is in use.
  small used size=256m
  used() { df --output=used "$dir/used" | tail -1; }
  for who in supervisor rank; do
    "$kasane" "${job[@]}" --spill "$dir/used" -- "${work[@]}" > "$dir/out" 2>&1 &
    pid=$!
    # Looked at once: each round of the program frees what it had.
    for ((i = 0, spilled = 0; i < 300 && (spilled = $(used)) < 1024; ++i)); do sleep 0.1; done
    [ "$spilled" -ge 1024 ] || { output=$(cat "$dir/out"); wrong "killed: nothing was spilled"; }
    victim=$pid
    [ $who = rank ] && victim=$(pgrep -P $pid | tail -1)
    kill -9 "$victim"
    wait $pid 2> /dev/null && { output=$(cat "$dir/out"); wrong "killed: status 0"; }
    for ((i = 0; i < 100 && $(used) != 0; ++i)); do sleep 0.1; done
    [ "$(used)" -eq 0 ] && [ -z "$(ls -A "$dir/used")" ] ||
      { output=$(ls -la "$dir/used"); wrong "killed ($who): left behind"; }
  done
}

# Full in mid-run: what io_uring says of direct writes.
ext4() {
  command -v mkfs.ext4 > /dev/null || skip "there is no mkfs.ext4"
  truncate -s 24M "$dir/image" && mkfs.ext4 -q -O ^has_journal -b 4096 -m 0 "$dir/image" ||
    skip "no ext4 can be made"
  mkdir "$dir/disk"
  mount -o loop "$dir/image" "$dir/disk" 2> /dev/null || skip "no loop device can be had here"
  rmdir "$dir/disk/lost+found"
  ((room = $(df --output=avail -k "$dir/disk" | tail -1) - 3072))
  fallocate -l ${room}K "$dir/disk/.full"
  output=$(timeout -k 5 60 "$kasane" "${job[@]}" --spill "$dir/disk" -- "${work[@]}" 2>&1)
  status=$?
  [ $status != 0 ] && [ $status != 124 ] && [ $status != 137 ] || wrong "ext4, full later: status $status"
  local full="free space there.*No space left on device"
  echo "$output" | grep -q "writing $size $in_file $dir/disk failed, .*$full" || wrong "ext4, full later"
  echo "$output" | grep -q "EXPECT\|Failure" && wrong "ext4, full later: a word was lost first"
  [ "$(ls -A "$dir/disk")" = .full ] || wrong "ext4, full later: left behind: $(ls -A "$dir/disk")"
}

"${part:-plain}"
exit $failed
