#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs the Debian packages that are needed (Debian 12, Ubuntu 24.04), and nothing else. Without options:
# the packages that `make demo` builds and shows.
# Run as root, or as a user who may use sudo. Says what it installs; quiet when nothing is missing.
#   --tests   also what `make build`, `make test` and `make format` need: networks, peers of the benchmarks,
#             GoogleTest
#   --packages  what `make deb` needs: networks, Global Arrays' headers, Python's
#   --numa    what `make test-numa` and `make test-cpus` need: a machine emulator
#   --tools   clang-tidy (for `make tidy`)
#   --fuzz    clang and libFuzzer (for `make fuzz`, beside --tests)
#   --site    what `make site` needs: Doxygen
#   --list    print the packages and stop
set -eu

build='g++ cmake make ninja-build pkg-config'
libraries='libexpected-dev libfmt-dev libspdlog-dev libcli11-dev nlohmann-json3-dev'
libraries="$libraries libhwloc-dev liburing-dev libxxhash-dev libelf-dev libcapstone-dev"
demo='wamerican-insane'
networks='libucx-dev libpmix-dev libopenmpi-dev openmpi-bin'
# Each rank that Ubuntu 24.04's MPICH (4.2.0-5build3) starts believes to be alone (Launchpad bug 2072338).
system=$(. /etc/os-release 2>/dev/null && echo "${ID:-} ${VERSION_ID:-}") || system=''
[ "$system" = 'ubuntu 24.04' ] || networks="$networks libmpich-dev mpich"
tests='clang-format-19 debootstrap ccache git python3 iproute2 python3-matplotlib'
tests="$tests man-db zsh fish"  # what manuals and completions are tried with
tests="$tests jellyfish bowtie-examples"  # apps/kmers: what it reads, its peer, its genome
tests="$tests libmimalloc-dev libcuckoo-dev libgtest-dev libtbb-dev libopenblas-dev fio gdb"
packages="dpkg-dev file libarmci-mpi-dev zlib1g-dev"  # armci.h with the peer
packages="$packages python3 python3-dev python3-numpy python3-pybind11 pybind11-dev"
tests="$tests $packages libglobalarrays-dev gfortran libscalapack-mpi-dev libscalapack-mpich-dev"
tests="$tests liblapack-dev"
tests="$tests pigz pbzip2 xz-utils zstd"  # installed programs on several ranks
tests="$tests libigraph-dev python3-networkx"  # a peer of the graphs, and the oracle of two
# the Python package
tests="$tests python3-mpi4py python3-pip python3-setuptools"
tests="$tests python3-venv python3-wheel patchelf binutils"
# Boost's flat map: Debian 12's version 1.81, which cannot be there beside the usual 1.74.
is_installed() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }
if [ "$system" = 'ubuntu 24.04' ]; then
  tests="$tests libboost-dev"
elif ! is_installed libboost1.74-dev; then
  tests="$tests libboost1.81-dev"
fi
numa='qemu-system-x86 cpio busybox-static'
tools='clang-tidy-19 clang-tools-19'
fuzz='clang-19 libclang-rt-19-dev libomp-19-dev'

wanted="$build $libraries $demo" list=no
for flag in "$@"; do
  case $flag in
    --tests) wanted="$wanted $networks $tests" ;;
    --packages) wanted="$build $libraries $networks $packages" ;;
    --numa) wanted="$wanted $numa" ;;
    --tools) wanted="$tools" ;;
    --fuzz) wanted="$wanted $fuzz" ;;
    --site) wanted='doxygen python3-markdown git' ;;
    --list) list=yes ;;
    *)
      echo "usage: $0 [--tests] [--packages] [--numa] [--tools] [--fuzz] [--site] [--list]" >&2
      exit 2 ;;
  esac
done
if [ "$list" = yes ]; then
  printf '%s\n' $wanted
  exit 0
fi

if ! command -v dpkg-query >/dev/null 2>&1; then
  echo "install-dependencies: not a Debian or Ubuntu system; install the equivalents of: $wanted" >&2
  exit 1
fi

missing=''
for package in $wanted; do
  is_installed "$package" || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" -eq 0 ]; then
  as_root=''
elif command -v sudo >/dev/null 2>&1; then
  as_root='sudo'
else
  echo "install-dependencies: these packages are missing and there is neither root nor sudo:$missing" >&2
  exit 1
fi

# The package lists are fetched only where they do not know a package that is missing (as on a fresh image).
for package in $missing; do
  if ! apt-cache show "$package" >/dev/null 2>&1; then
    echo "install-dependencies: apt-get update"
    $as_root apt-get update -qq
    break
  fi
done

unavailable=''
for package in $missing; do
  apt-cache show "$package" >/dev/null 2>&1 || unavailable="$unavailable $package"
done
if [ -n "$unavailable" ]; then
  echo "install-dependencies: no such package in this system's lists:$unavailable" >&2
  exit 1
fi

echo "install-dependencies: installing$missing"
# A list that is out of date names files that are gone: then update once and try again.
install() {
  $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing \
    >/dev/null
}
if ! install; then
  echo "install-dependencies: apt-get update, and once more"
  $as_root apt-get update -qq
  install
fi
