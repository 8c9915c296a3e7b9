#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ends.sh KASANE PROGRAM RANKS: each misuse ends the job soon, with a status that is not 0 and a message.
kasane=$1 program=$2 ranks=$3 failed=0
ends() {
  local what=$1 pattern=$2 output status
  shift 2
  output=$(timeout 30 "$kasane" run -n "$ranks" "$@" -- "$program" "$what" 2>&1)
  status=$?
  if [ $status -eq 0 ] || [ $status -eq 124 ] || ! grep -q -- "$pattern" <<<"$output"; then
    echo "$what: status $status, no '$pattern' in:"$'\n'"$output"
    failed=1
  fi
}
last=$((ranks - 1))
for row in \
  "early|acp_init" \
  "twice|acp_init: called twice" \
  "again|a call outside of acp_init and acp_finalize" \
  "abort|acp_abort: the reason (rank $last)" \
  "null|acp_push_back_vector: the handle names no vector (rank $last)" \
  "kind|acp_size_vector: the handle names no vector" \
  "destroyed|acp_size_list: the handle names no list" \
  "element|acp_push_back_vector: " \
  "private|acp_push_back_vector: " \
  "sizes|acp_assign_vector: elements of 4 bytes, of 8 in the other" \
  "range|acp_assign_vector: no elements 0 to 2 of 1" \
  "rank|acp_push_back_list: there is no rank $ranks" \
  "free|acp_free: no block of acp_malloc begins there" \
  "twice-freed|acp_free: no block of acp_malloc begins there"; do
  ends "${row%%|*}" "${row#*|}" --main all
done
[ "$ranks" = 1 ] ||
  ends "" "acp_init: main runs on rank 0 alone: start the program with kasane run --main all"
[ $failed -eq 0 ] && echo "ends: passed"
exit $failed
