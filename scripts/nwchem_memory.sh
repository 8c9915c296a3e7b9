#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Times a direct MP2 of waters, whose operators are one global array, in core and with less DRAM than that
# array has: on Kasane with a budget, and on armci-mpi in a memory control group of the same size, with swap.
# Needs root, what nwchem.sh built, and a quiet machine. The SCF before it is made once, and not timed.
# usage: nwchem_memory.sh [OPTION]... [FOLDER]
#   FOLDER           of nwchem.sh (default: build/nwchem)
#   --waters N       arrays of 112 MB with 7 (default), 190 MB with 8, 460 MB with 10
#   --ranks N        processes (default: 2); no more than there are processors
#   --percent LIST   budgets in percent of the arrays (default: '50 25')
#   --times N        of which the median counts (default: 3)
#   --dir DIR        where spill and swap files are made (default: /var/tmp); nothing stays there
#   --mpi NAME       openmpi (default) or mpich
set -euo pipefail

waters=7 ranks=2 percent='50 25' times=3 dir=/var/tmp mpi=openmpi
limit=1800   # seconds until a run counts as hung
. "$(dirname "$0")/nwchem_options.sh"
take_options 'waters ranks percent times dir mpi' "$@"
programs=$folder/$mpi/bin/LINUX64
[ -x "$programs/nwchem.kasane" ] || fail "there is no $programs/nwchem.kasane: run nwchem.sh"
[ "$(id -u)" = 0 ] || fail "needs root, for swap and memory control groups"

groups=/sys/fs/cgroup/memory most=memory.limit_in_bytes
[ -d "$groups" ] || groups=/sys/fs/cgroup most=memory.max
work=$(mktemp -d "$dir/kasane-nwchem.XXXXXX")
group=$groups/$(basename "$work") running='' swap=''
finish() {   # to its end, whatever of it fails
  set +e
  trap '' INT TERM
  [ -z "$running" ] || { kill "$running"; wait "$running"; } 2>/dev/null
  [ -z "$swap" ] || swapoff "$swap"
  rmdir "$group" 2>/dev/null
  rm -rf "$work"
}
trap finish EXIT
trap 'exit 2' INT TERM

# run LIBRARY NAME LIMIT: NWChem on NAME.nw in a new group of so many bytes (none: as many as there are).
# resident: what its processes had in DRAM at most; files that are merely cached are not part of it.
run() {
  rmdir "$group" 2>/dev/null || true
  mkdir "$group" && [ -e "$group/$most" ] || fail "there is no $group/$most: no control of memory here"
  [ -z "$3" ] || echo "$3" >"$group/$most"
  (echo "$BASHPID" >"$group/cgroup.procs" && cd "$work" &&
    exec timeout "$limit" "mpirun.$mpi" -n "$ranks" "$programs/nwchem.$1" "$2.nw" >"$2.out" 2>&1 </dev/null) &
  running=$!
  resident=0
  while kill -0 "$running" 2>/dev/null; do
    now=$(awk '/^(total_rss|total_mapped_file|anon|file_mapped) / { n += $2 } END { printf "%.0f", n }' \
      "$group/memory.stat")
    [ "$now" -le "$resident" ] || resident=$now
    sleep .2
  done
  wait "$running" || {
    grep -h 'ARMCI Error' "$work/$2.out" >&2 || tail -n 20 "$work/$2.out" >&2
    fail "$1 on $2.nw has failed"
  }
  running=''
}
{
  printf 'start water\nmemory stack 40 mb heap 10 mb global 4000 mb\n'
  printf 'geometry units angstrom noautosym nocenter noautoz\n'
  awk -v n="$waters" 'BEGIN {
    for (side = 1; side ^ 3 < n; ++side);
    for (i = 0; i < n; ++i) {
      x = 2.9 * int(i / side / side); y = 2.9 * (int(i / side) % side); z = 2.9 * (i % side)
      printf " O %.3f %.3f %.3f\n H %.3f %.3f %.3f\n H %.3f %.3f %.3f\n", x, y, z, x + .757, y + .586, z,
        x - .757, y + .586, z + .1 * (i % 3)
    }
  }'
  printf 'end\nbasis spherical\n * library cc-pvdz\nend\nscf\n thresh 1e-6\n direct\nend\ntask scf\n'
} >"$work/scf.nw"
printf 'restart water\nmemory stack 40 mb heap 10 mb global 4000 mb\ntask direct_mp2\n' >"$work/mp2.nw"
run armci-mpi scf ''
mkdir "$work/scf"
cp "$work"/water.* "$work/scf"

# mp2 LIBRARY CASE LIMIT: appends the seconds to the file CASE, and the energy to that of all.
mp2() {
  cp "$work"/scf/* "$work"
  run "$1" mp2 "$3"
  awk '/^ *Task +times/ { sub(/s$/, "", $NF); print $NF }' "$work/mp2.out" >>"$work/$2.seconds"
  awk '/Total MP2 energy/ { print $NF }' "$work/mp2.out" >>"$work/energies"
  echo "   $2: $(tail -n 1 "$work/$2.seconds") s, $(tail -n 1 "$work/energies")"
}
median() { sort -n "$work/$1.seconds" | awk '{ x[NR] = $1 } END { print x[int((NR + 1) / 2)] }'; }

mp2 armci-mpi first ''
arrays=$(awk '/Max memory consumed for GA/ { print $(NF - 1) }' "$work/mp2.out")
arrays=$((arrays * ranks))
private=$((resident - arrays))
echo "arrays $((arrays >> 20)) MiB, beside them $((private >> 20)) MiB; $ranks processes"
head -c $((2 * arrays + (64 << 20))) /dev/zero >"$work/swap"
chmod 600 "$work/swap"
mkswap -q "$work/swap" && swapon "$work/swap" || fail "the kernel does not swap to a file in $dir"
swap=$work/swap
for ((i = 0; i < times; ++i)); do
  mp2 armci-mpi armci-core ''
  mp2 kasane kasane-core ''
  for part in $percent; do
    budget=$((arrays * part / 100))
    export KASANE_DRAM=$budget KASANE_SPILL=$work
    mp2 kasane "kasane-$part" ''
    unset KASANE_DRAM KASANE_SPILL
    mp2 armci-mpi "swap-$part" $((private + budget))
  done
done
echo "energies, and how often:"
sort "$work/energies" | uniq -c | awk '{ print "   " $2, $1 }'
for part in core $percent; do
  peer=swap-$part
  [ "$part" != core ] || peer=armci-core
  awk -v part="$part" -v k="$(median "kasane-$part")" -v p="$(median "$peer")" \
    -v c="$(median kasane-core)" 'BEGIN {
    printf "%-5s %8.1f s, %.2f of in core; armci-mpi %8.1f s, ratio %.2f\n", part, k, c / k, p, p / k }'
done
