#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes the Debian packages in a clean root of a distribution (`make deb` there), installs them in another,
# and takes the README's first steps with them; or tries a wheel. Says each step as it is done. Needs root
# and debootstrap. What git tracks is built. Each root takes 1 to 3 GB; they are removed in the end, and the
# packages stay.
# Usage: packages.sh [SUITE [FOLDER]]   SUITE: one that debootstrap knows here (default: this system's)
#   FOLDER      where the roots and the packages go (default: build/packages)
#   MIRROR='URL [SCRIPT]'  of the suite, and debootstrap's script for it, else debootstrap's own
#   BOOTSTRAP=OPTIONS  of debootstrap's, such as --keyring or --components
#   CCACHE=DIR  a folder of ccache's, shared with the root in which is built
#   PACKAGES=DIR  a folder with packages of this suite, to be installed in place of making them
#   WHEEL=FILE  tries that wheel (make wheel) in a root which has Python and neither a compiler, an MPI nor
#               UCX, and makes no packages; NumPy comes from pip's index
#   KEEP=1      the roots stay, and are used again
set -euo pipefail
source=$(cd "$(dirname "$0")/.." && pwd)
suite=${1:-$(. /etc/os-release && echo "$VERSION_CODENAME")}
folder=$(realpath -m "${2:-$source/build/packages}")/$suite
[ "$(id -u)" = 0 ] || { echo "packages: needs root (chroot, mount)" >&2; exit 1; }
command -v debootstrap >/dev/null || { echo "packages: apt-get install debootstrap" >&2; exit 1; }
mkdir -p "$folder"
say() { echo "== $(date +%T) $suite: $*"; }

# within ROOT COMMAND: in its own mounts, which end with it.
within() {
  local root=$1
  shift
  unshare -m bash -c 'root=$1 cache=$2
    mount -t proc proc "$root/proc" && mount --rbind /sys "$root/sys" && mkdir -p "$root/dev/shm" &&
      mount -t tmpfs none "$root/dev/shm" || exit
    if [ -n "$cache" ]; then mkdir -p "$root/ccache" && mount --bind "$cache" "$root/ccache" || exit; fi
    shift 2
    exec chroot "$root" env -i PATH=/usr/lib/ccache:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 \
      DEBIAN_FRONTEND=noninteractive CCACHE_DIR=/ccache OMPI_ALLOW_RUN_AS_ROOT=1 \
      OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 bash -ec "$*"' _ "$root" "${CCACHE:-}" "$@"
}

fresh() {   # ROOT: Debian alone
  [ ! -d "$1" ] || return 0
  if [ ! -d "$folder/bare" ]; then
    say "debootstrap"
    # shellcheck disable=SC2086  # words
    debootstrap --variant=minbase ${BOOTSTRAP:-} "$suite" "$folder/bare.tmp" ${MIRROR:-} \
      >"$folder/log" 2>&1 ||
      { tail -5 "$folder/log"; rm -rf "$folder/bare.tmp"; say "no such archive here"; exit 1; }
    cp /etc/resolv.conf "$folder/bare.tmp/etc/" 2>/dev/null || true
    cp -r /etc/apt/apt.conf.d/. "$folder/bare.tmp/etc/apt/apt.conf.d/" 2>/dev/null || true
    echo force-unsafe-io >"$folder/bare.tmp/etc/dpkg/dpkg.cfg.d/packages"   # the root is thrown away
    within "$folder/bare.tmp" "apt-get update -qq" >"$folder/log" 2>&1
    mv "$folder/bare.tmp" "$folder/bare"
  fi
  cp -a "$folder/bare" "$1"
}

build() {
  local here=/src   # the same for every build, for ccache
  fresh "$folder/builds"
  say "what is needed for building: scripts/install-dependencies.sh --packages"
  mkdir -p "$folder/builds$here"
  (cd "$source" && git ls-files -z | tar --null -T - -c) | tar -x -C "$folder/builds$here"
  within "$folder/builds" "cd $here; apt-get install -y -qq ca-certificates ${CCACHE:+ccache} >/dev/null 2>&1
    sh scripts/install-dependencies.sh --packages" >"$folder/log" 2>&1 || { tail -20 "$folder/log"; exit 1; }
  say "make deb"
  within "$folder/builds" "cd $here && make deb" >"$folder/build.log" 2>&1 ||
    { tail -40 "$folder/build.log"; say "FAILED: $folder/build.log"; exit 1; }
  cp "$folder/builds$here"/build/release/deb/*.deb "$folder"
}

try_wheel() {   # the programs of docs/guide/python.md, alone and on two ranks
  local root=$folder/wheel step version program
  fresh "$root"
  say "apt-get install of python3 and python3-venv alone"
  within "$root" "apt-get install -y -qq --no-install-recommends python3 python3-venv" >"$folder/log" 2>&1 ||
    { tail -20 "$folder/log"; exit 1; }
  rm -rf "$root/try"
  mkdir "$root/try"
  cp "$WHEEL" "$root/try"
  version=$(within "$root" "python3 -c 'import sys; print(*sys.version_info[:2], sep=\".\")'")
  python3 -m pip download -q --no-deps --only-binary :all: --python-version "$version" -d "$root/try" numpy
  awk -v to="$root/try/program" 'inside && /^```/ { inside = 0; close(file) }
    inside == 1 && /^import kasane/ { inside = 2; file = to (++n) ".py" }
    inside == 1 { inside = 0 } inside == 2 { print >file } /^```python/ { inside = 1 }' \
    "$source/docs/guide/python.md"
  local steps=(
    'python3 --version; ldd --version | head -1; ! command -v gcc mpirun'
    'python3 -m venv ENV; ENV/bin/pip install -q --no-index --find-links . kasane'
    'ENV/bin/kasane version; ENV/bin/kasane info | grep -iE "ucx|mpi"'
    'ENV/bin/python3 -c "import kasane; kasane.show_config()"')
  for program in "$root"/try/program*.py; do
    program=$(basename "$program")
    steps+=("ENV/bin/python3 $program")
    grep -q 'kasane.start' "$root/try/$program" ||
      steps+=("ENV/bin/kasane run --attach -n 2 -- ENV/bin/python3 $program")
  done
  for step in "${steps[@]}"; do
    echo "   \$ $step"
    within "$root" "cd /try; timeout 600 bash -ec '$step'" 2>&1 | sed 's/^/   /'
  done
}

if [ -n "${WHEEL:-}" ]; then
  try_wheel
  [ "${KEEP:-}" = 1 ] || rm -rf "$folder"/{bare,wheel}
  say "passed"
  exit
fi

rm -f "$folder"/*.deb
if [ -n "${PACKAGES:-}" ]; then cp "$PACKAGES"/*.deb "$folder"; else build; fi
for package in "$folder"/*.deb; do
  echo "   $(basename "$package"), $(dpkg-deb -f "$package" Depends)"
done

fresh "$folder/installs"
say "apt-get install of the packages, with a compiler"
mkdir -p "$folder/installs/try"
cp "$folder"/*.deb "$source/README.md" "$folder/installs/try"
within "$folder/installs" "cd /try; apt-get install -y -qq --no-install-recommends ./*.deb g++ pkg-config" \
  >"$folder/log" 2>&1 || { tail -20 "$folder/log"; exit 1; }
say "the first steps of README.md"
awk '/^```cpp/ { inside = 1; next } /^```/ { inside = 0 } inside' "$source/README.md" \
  >"$folder/installs/try/hello.cpp"
steps=(
  'kasane version'
  'g++ -std=c++20 hello.cpp -o hello $(pkg-config --cflags --libs kasane)'
  'kasane run -n 4 -- ./hello'
  'kasane run -n 2 --dram 64M --spill /var/tmp -- cilksort --count 8000000'
  'kasane run -n 2 -- fib -n 20'
  'kasane info | head -3')
[ -z "$(ls "$folder"/python3-kasane_*.deb 2>/dev/null)" ] ||
  steps+=('python3 -c "import kasane; print(kasane.ones(1000).sum())"')
for mpi in openmpi mpich; do
  [ -z "$(ls "$folder"/kasane-${mpi}_*.deb 2>/dev/null)" ] ||
    steps+=("apt-get install -y -qq $mpi$([ $mpi = mpich ] || echo -bin) >/dev/null 2>&1" \
      "kasane run -n 2 --transport mpi --mpi $mpi -- ./hello")
done
for step in "${steps[@]}"; do
  echo "   \$ $step"
  within "$folder/installs" "cd /try; timeout 600 bash -ec '$step'" 2>&1 | sed 's/^/   /'
done
[ "${KEEP:-}" = 1 ] || rm -rf "$folder"/{bare,builds,installs}
say "passed; the packages are in $folder"
