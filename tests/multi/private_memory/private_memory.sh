#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A crash on a pointer to another rank's private memory says so: private_memory.sh KASANE PROGRAM RANKS
# MODULE
kasane=$1 program=$2 ranks=$3 module=$4
# run KIND [ARGUMENT]
run() {
  out=$(timeout 50 "$kasane" run -n "$ranks" -- "$program" "$@" 2>&1)
  status=$?
}
fail() {
  echo "$1: status $status"
  echo "$out"
  exit 1
}
# expect KIND TEXT [ARGUMENT]
expect() {
  run "$1" $3
  if [ "$ranks" = 1 ]; then
    [ $status = 0 ] && return
  else
    [ $status = 139 ] && grep -Eq "$2" <<<"$out" && return
  fi
  fail "$1"
}
last="rank $((ranks - 1))"
for kind in tiny small large copy; do
  expect "$kind" "on rank 0 this address lies in anonymous memory \(malloc.*private to rank 0, and $last"
done
expect code "on rank 0 .* in the code or constants of libforeign_module.so.*which $last" "$module"
expect local 'a thread_local variable, .*of_thread, of the first OS thread of rank 0, and no other'
expect back "on $last this address lies in anonymous memory .*thread_locals.*private to $last, and rank 0 has"
run apart
[ $status = 0 ] || fail apart
