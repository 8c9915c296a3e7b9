# SPDX-License-Identifier: Apache-2.0
# A virtual machine for tests, emulated by QEMU, so that no privileges are needed. Sourced by test_numa.sh and
# test_cpus.sh, which then use, in this order:
#   guest_begin NAME BUILD CASES   in build/NAME: an empty file system, in which CASES (a shell script) is run
#   guest_add PROGRAM FOLDER       puts a program of BUILD and the libraries that it needs there
#   guest_pack
#   guest_boot OUTPUT SECONDS OPTIONS OF QEMU …
#   guest_passed OUTPUT            the machine ran its cases, and each ended with status 0
# The kernel is Debian's, fetched once into build/guest and unpacked there, not installed; one that lies there
# is used instead. QEMU 7.2 leaves the flags of cmpxchg16b wrong, which Linux 6.12 does not survive: give
# processors without cx16.

guest_kernel() {
  ls "$guest_top"/build/guest/boot/vmlinuz-* 2>/dev/null && return
  kernel=$(apt-cache search --names-only '^linux-image-[0-9.]*-[0-9]*-cloud-amd64$' | sed 's/ .*//' |
    sort -V | tail -n 1)
  if [ -z "$kernel" ]; then
    echo "guest: no package linux-image-…-cloud-amd64 in this system's lists" >&2
    return 1
  fi
  echo "guest: fetching $kernel" >&2
  mkdir -p "$guest_top/build/guest"
  (cd "$guest_top/build/guest" && apt-get download -qq "$kernel" 2>/dev/null &&
    dpkg-deb --fsys-tarfile linux-image-*.deb | tar -x --wildcards './boot/vmlinuz*' &&
    rm -f linux-image-*.deb)
  ls "$guest_top"/build/guest/boot/vmlinuz-*
}

guest_begin() {
  guest_top=$(pwd) guest_build=$(realpath "$2") guest_cases=$(realpath "$3")
  "$guest_top/scripts/install-dependencies.sh" --numa
  vmlinuz=$(guest_kernel)
  mkdir -p "build/$1"
  cd "build/$1"
  rm -rf root
  mkdir -p root/bin root/lib/kasane root/proc root/sys root/dev root/tmp
  cp /bin/busybox root/bin/busybox
  cp "$guest_top/tests/guest/init.sh" root/init
  chmod +x root/init
  cp "$guest_cases" root/cases.sh
}

# The libraries go where the loader expects them.
guest_add() {
  cp "$(find "$guest_build" -name "$1" -type f -perm -u+x | head -n 1)" "root/$2/"
  ldd "root/$2/$1" | awk '{ for (i = 1; i <= NF; ++i) if ($i ~ "^/") print $i }' | while read -r library; do
    mkdir -p "root$(dirname "$library")"
    cp -L "$library" "root$library"
  done
}

guest_pack() { (cd root && find . | cpio -o -H newc --quiet | gzip -1) >initrd.gz; }

# no_timer_check: else the kernel panics where a busy machine keeps it from its first timer interrupts.
guest_boot() {
  output=$1 seconds=$2
  shift 2
  guest_status=0
  timeout "$seconds" qemu-system-x86_64 -accel tcg,thread=multi -smp 2 -nographic -no-reboot -nodefaults \
    -serial stdio -monitor none -net none -kernel "$vmlinuz" -initrd initrd.gz \
    -append 'console=ttyS0 quiet panic=-1 no_timer_check' "$@" </dev/null >"$output.raw" 2>&1 ||
    guest_status=$?
  tr -d '\r' <"$output.raw" >"$output"
}

guest_passed() {
  cases=$(grep -c '^CASE ' "$1") || true
  bad=$(grep '^CASE ' "$1" | grep -vc ' 0$') || true
  [ "$guest_status" -eq 0 ] && [ "$cases" -ne 0 ] && [ "$bad" -eq 0 ] &&
    [ "$(grep -c '^guest: [0-9.]* s after' "$1")" -eq 1 ]
}
