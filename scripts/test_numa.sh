#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `make test-numa`: jobs of Kasane in a virtual machine with two NUMA nodes that have a CPU each, and a third
# one without. QEMU emulates it, so that no privileges and no such machine are needed; two minutes.
# Needs a release build (make build). The kernel is Debian's, fetched once into build/numa and unpacked there,
# not installed. QEMU 7.2 leaves the flags of cmpxchg16b wrong, which Linux 6.12 does not survive: cx16 is
# off.
# Usage: test_numa.sh [BUILD]. CPU (max) names one of QEMU's, with other vector registers: Haswell.
set -eu
cd "$(dirname "$0")/.."
build=${1:-build/release}
scripts/install-dependencies.sh --numa
cmake --build "$build" --target kasane_command numa_memory program_live_registers kasane-bench-triad

mkdir -p build/numa
cd build/numa
here=$(pwd)
if ! ls boot/vmlinuz-* >/dev/null 2>&1; then
  kernel=$(apt-cache search --names-only '^linux-image-[0-9.]*-[0-9]*-cloud-amd64$' | sed 's/ .*//' |
    sort -V | tail -n 1)
  if [ -z "$kernel" ]; then
    echo "test_numa: no package linux-image-…-cloud-amd64 in this system's lists" >&2
    exit 1
  fi
  echo "test_numa: fetching $kernel"
  apt-get download -qq "$kernel" 2>/dev/null
  dpkg-deb --fsys-tarfile linux-image-*.deb | tar -x --wildcards './boot/vmlinuz*'
  rm -f linux-image-*.deb
fi

rm -rf root
mkdir -p root/bin root/lib/kasane root/proc root/sys root/dev root/tmp
cp /bin/busybox root/bin/busybox
cp "../../tests/numa/guest/init.sh" root/init
chmod +x root/init
# The programs, and the libraries that they need, where the loader expects them.
add() {   # PROGRAM FOLDER
  cp "$1" "root/$2/"
  ldd "$1" | awk '{ for (i = 1; i <= NF; ++i) if ($i ~ "^/") print $i }' | while read -r library; do
    mkdir -p "root$(dirname "$library")"
    cp -L "$library" "root$library"
  done
}
add "../../$build/bin/kasane" bin
for program in numa_memory program_live_registers; do
  add "$(find "../../$build" -name $program -type f)" bin
done
for program in kasane-bench-triad player-triad-kasane player-triad-stream; do
  add "../../$build/lib/kasane/$program" lib/kasane
done
(cd root && find . | cpio -o -H newc --quiet | gzip -1) >initrd.gz

memory() { echo "-object memory-backend-ram,size=$2M,id=m$1 -numa node,nodeid=$1,$3memdev=m$1"; }
latency() {
  echo "-numa hmat-lb,initiator=$1,target=$2,hierarchy=memory,data-type=access-latency,latency=$3" \
    "-numa hmat-lb,initiator=$1,target=$2,hierarchy=memory,data-type=access-bandwidth,bandwidth=$4G"
}
status=0
# shellcheck disable=SC2046
timeout 1200 qemu-system-x86_64 -machine q35,hmat=on -accel tcg,thread=multi -cpu "${CPU:-max},-cx16" \
  -smp 2 -m 704M \
  -nographic -no-reboot -nodefaults -serial stdio -monitor none -net none \
  $(memory 0 288 cpus=0,) $(memory 1 288 cpus=1,) $(memory 2 128 '') \
  -numa dist,src=0,dst=1,val=21 -numa dist,src=0,dst=2,val=40 -numa dist,src=1,dst=2,val=40 \
  $(latency 0 0 80 100) $(latency 0 1 140 50) $(latency 0 2 300 25) \
  $(latency 1 0 140 50) $(latency 1 1 80 100) $(latency 1 2 300 25) \
  -kernel boot/vmlinuz-* -initrd initrd.gz -append 'console=ttyS0 quiet panic=-1' \
  </dev/null >guest.log 2>&1 || status=$?
tr -d '\r' <guest.log >"$here/output.log"
cases=$(grep -c '^CASE ' output.log) || true
bad=$(grep '^CASE ' output.log | grep -vc ' 0$') || true
if [ "$status" -ne 0 ] || [ "$cases" -eq 0 ] || [ "$bad" -ne 0 ] ||
  [ "$(grep -c '^guest: [0-9.]* s after' output.log)" -ne 1 ]; then
  cat output.log
  echo "test_numa: FAILED: $bad of $cases cases; the machine ended with status $status"
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
