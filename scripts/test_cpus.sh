#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `make test-cpus`: the programs of tests/cpus/programs.txt on processors with other registers than this
# machine's, in a virtual machine (guest.sh) for each: without XSAVE (Nehalem), with it and without AVX, with
# AVX2 (Haswell), and all that QEMU has (max). QEMU 7.2 emulates neither AVX-512 nor AMX nor XSAVEC:
# Skylake-Server lacks them there, as its warnings say.
# Usage: test_cpus.sh [BUILD [MODEL…]]
set -eu
cd "$(dirname "$0")/.."
. scripts/guest.sh
build=${1:-build/release}
[ $# -eq 0 ] || shift
[ $# -ne 0 ] || set -- Nehalem Haswell,-avx,-avx2 Haswell Skylake-Server max
programs=$(awk '$1 ~ /^x?[0-9]/ { print $2 }' tests/cpus/programs.txt | sort -u)
# shellcheck disable=SC2086
cmake --build "$build" --target kasane_command $programs
guest_begin cpus "$build" tests/cpus/cases.sh
cp "$guest_top/tests/cpus/programs.txt" root/
guest_add kasane bin
for program in $programs; do
  guest_add "$program" bin
done
guest_pack

failed=''
for model in "$@"; do
  guest_boot "$model.log" 600 -machine q35 -cpu "$model,-cx16" -m 768M
  grep '^guest:\|^CASE' "$model.log" | sed "s/^/$model: /"
  guest_passed "$model.log" && continue
  cat "$model.log"
  echo "test_cpus: FAILED on $model: $bad of $cases cases; the machine ended with status $guest_status"
  failed="$failed $model"
done
[ -z "$failed" ] || { echo "test_cpus: FAILED on$failed"; exit 1; }
echo "test_cpus: $cases cases passed on each of: $*"
