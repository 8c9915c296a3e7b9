#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# globals.sh KASANE PROGRAM EXPECTED OPTION…: the program prints what stands in EXPECTED below its first
# line, and ends with status 3. mpirun forwards each rank's lines by themselves: their order is not compared.
set -u
kasane=$1 program=$2 expected=$3
shift 3
out=$("$kasane" run "$@" -- "$program" argument 3)
status=$?
if [ $status -ne 3 ]; then
  echo "status $status"
  exit 1
fi
order=cat
[ "${KASANE_TRANSPORT-}" = mpi ] && order=sort
printf '%s\n' "$out" | $order | diff - <(tail -n +2 "$expected" | $order)
