#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A crash on a pointer to another rank's private memory says so: private_memory.sh KASANE PROGRAM RANKS
# MODULE
kasane=$1 program=$2 ranks=$3 module=$4
# expect KIND WHERE WHAT [ARGUMENT]
expect() {
  out=$(timeout 50 "$kasane" run -n "$ranks" -- "$program" "$1" $4 2>&1)
  status=$?
  if [ "$ranks" = 1 ]; then
    [ $status = 0 ] && return
  else
    said="on rank 0 this address lies in $2.*$3 rank $((ranks - 1))"
    [ $status = 139 ] && grep -Eq "$said" <<<"$out" && return
  fi
  echo "$1: status $status"
  echo "$out"
  exit 1
}
for kind in tiny small large copy; do
  expect "$kind" 'anonymous memory \(malloc' 'private to rank 0, and'
done
expect code 'the code or constants of libforeign_module.so' which "$module"
