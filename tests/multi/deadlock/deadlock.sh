#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What `kasane run` says of threads that are blocked: deadlock.sh KASANE PROGRAM RANKS
kasane=$1 program=$2 ranks=$3
out=$(mktemp)
trap 'rm -f "$out"' EXIT

fail() {
  echo "FAILED: $*"
  cat "$out"
  exit 1
}
run() {  # STATUS ARGUMENT: ends with STATUS
  timeout 50 "$kasane" run -n "$ranks" --debug deadlock=1 -- "$program" "$2" >"$out" 2>&1
  local status=$?
  [ $status = "$1" ] || fail "$2: status $status, not $1"
}
says() { grep -Eq -- "$1" "$out" || fail "no line matches: $1"; }
never() { ! grep -Eq -- "$1" "$out" || fail "a line matches: $1"; }

# Two threads that lock crosswise: each waits for a mutex that the other holds, with the line in the program.
run 67 crosswise
says 'all threads of the job are blocked, and have been for 1 s'
says 'waits in join for thread [0-9]+$'
waiting='waits in mutex::lock for the mutex at 0x[0-9a-f]+.*, which thread [0-9]+ holds$'
[ "$(grep -cE "$waiting" "$out")" = 2 ] || fail "not two that wait for a mutex"
says 'lock_both\(.*blocked_program\+0x[0-9a-f]+\)'
if command -v addr2line >/dev/null; then
  says 'lock_both\(.*at .*tests/multi/deadlock/blocked\.cpp:[0-9]+$'
fi
says 'ending the job with status 67'

# Each kind of object.
run 67 everything
for what in 'condition_variable::wait for the condition variable' 'barrier for the barrier' \
  'latch::wait for the latch' 'semaphore::acquire for' 'shared_mutex::lock_shared for' \
  'atomic::wait for the word'; do
  says "waits in $what"
done

# A thread with a deadline will go on.
run 0 slow
says 'slow, but right'
never 'blocked'

# Where something else than a thread may act, the job goes on.
run 4 os-thread
says 'the job goes on, since the program has OS threads of its own'
run 142 alarm
says 'the job goes on, since the program has set a timer'
timeout --preserve-status 5 "$kasane" run -n "$ranks" --debug deadlock=1 -- "$program" handler >"$out" 2>&1
status=$?
[ $status = 3 ] || fail "handler: status $status, not 3"
says 'the job goes on, since the program handles signals'

# A program of one rank without kasane run.
if [ "$ranks" = 1 ]; then
  KASANE_DEBUG=deadlock=1 timeout 50 "$program" crosswise >"$out" 2>&1
  status=$?
  [ $status = 67 ] || fail "alone: status $status, not 67"
  says 'waits in mutex::lock for the mutex at 0x[0-9a-f]+, which thread [0-9]+ holds$'
fi

# By SIGQUIT at any time; the job goes on.
asked() {  # ARGUMENT LINE…: each line is in a report on the program
  "$kasane" run -n "$ranks" --debug deadlock=0 -- "$program" "$1" >"$out" 2>&1 &
  local job=$! line
  for _ in $(seq 100); do
    kill -QUIT $job 2>/dev/null
    grep -Eq "$2" "$out" && break
    sleep 0.2
  done
  wait $job || fail "$1: status $? after SIGQUIT"
  says 'threads of the job:'
  shift
  for line in "$@"; do says "$line"; done
}
asked slow 'waits in latch::wait for the latch at' \
  'waits in condition_variable::wait_until, with a deadline, for' 'slow, but right'
[ "${KASANE_TRANSPORT-}" != ucx ] || asked misses 'waits for a page: it has accessed 0x' 'missed'
asked computes '#[0-9] .*compute_for_long' 'runs on worker [0-9]+$' 'computed'
exit 0
