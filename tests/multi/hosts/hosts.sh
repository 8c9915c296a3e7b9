#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# kasane run --hosts: hosts.sh CASE KASANE PROGRAM FIB    (PROGRAM: tests/multi/launch)
# Hosts are this one under other names (--agent "env HOST=%h"), but in `network`: two network namespaces
# joined by a cable. Exits 77 where that cannot be.
set -u
case=$1 kasane=$2 program=$3 fib=$4
unset KASANE_RANKS
export KASANE_AGENT='env HOST=%h'
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "$1"; cat "$work/out" "$work/err" 2> /dev/null; exit 1; }
# run STATUS ARGUMENTS…: what it prints goes to out and err
run() {
  local wanted=$1 status
  shift
  timeout 60 "$kasane" run "$@" > "$work/out" 2> "$work/err" < "${input:-/dev/null}"
  status=$?
  [ $status = "$wanted" ] || fail "status $status, not $wanted: $*"
}
says() { grep -Eq -- "$1" "$work/out" "$work/err" || fail "does not say: $1"; }
silent() { [ ! -s "$work/err" ] || fail "says something"; }

case $case in
  result)
    run 0 --hosts a:2,b:2 -- "$fib" -n 16 --repeat 2 --serial
    silent
    run 0 --hosts a,b -n 4 --main all -- "$program" hello
    [ "$(grep -c . "$work/out")" -ge 4 ] || fail "not from each rank"
    run 0 --hosts a -- "$program" return
    run 0 -n 2 -- "$program" return
    silent
    run 3 --hosts a:2,b -- "$program" return3
    silent
    run 7 --hosts a,b -- "$program" exit7
    run 0 --hosts a,b --tag-output -- "$program" lines
    says '^\[0\] line 1999 of a rank$'
    printf 'one\ntwo' > "$work/in"
    input=$work/in run 0 --hosts a,b -- "$program" input
    says '^input: two'
    says 'end of input$' ;;
  ends)
    run 139 --hosts a,b -- "$program" segv
    says 'rank 0 on a was ended by SIGSEGV'
    run 137 --hosts a,b --main all -- "$program" kill 1
    says 'rank 1 on b was ended by SIGKILL'
    # Ctrl-C, and a kasane run that dies: nothing is left.
    for signal in INT KILL; do
      timeout --foreground 60 "$kasane" run --hosts a,b --main all -- "$program" pid \
        > "$work/out" 2> "$work/err" &
      job=$!
      for _ in $(seq 300); do [ "$(grep -c pid "$work/out")" = 2 ] && break; sleep 0.1; done
      pkill -$signal -P $job -x kasane
      wait $job
      status=$?
      [ $status != 0 ] || fail "status 0 after SIG$signal"
      for pid in $(sed -n 's/.* pid //p' "$work/out"); do
        for _ in $(seq 100); do kill -0 "$pid" 2> /dev/null || break; sleep 0.1; done
        kill -0 "$pid" 2> /dev/null && fail "rank $pid is left after SIG$signal"
      done
    done ;;
  refused)
    run 2 --hosts 'a:x' -- "$program" return
    says "write host:2,other:2"
    run 2 --hosts a,b -n 3 -- "$program" return
    says 'equal parts'
    run 2 --hosts a:1,b:1 -n 3 -- "$program" return
    says 'leave -n out'
    run 2 --hosts a,b -- /bin/true
    says 'not linked with Kasane'
    run 127 --hosts a,b -- "$work/nothing"
    run 2 --hosts a,b --transport mpi -- "$program" return
    says 'start them by mpirun'
    run 1 --hosts a,b --agent false -- "$program" return
    says 'host [ab]: its agent ended'
    run 1 --hosts a,b --agent "$work/no-such-agent" -- "$program" return
    says 'no-such-agent' ;;
  network)
    skip() { echo "skipped: $1"; exit 77; }
    [ "$(id -u)" = 0 ] || skip "network namespaces need root"
    command -v ip > /dev/null || skip "no ip(8): install iproute2"
    id=$$
    a=kha$id b=khb$id
    net=10.$((id % 200 + 20)).$((id / 200 % 200 + 20))
    clean() {
      for n in $a $b; do
        pids=$(ip netns pids $n 2> /dev/null)
        [ -n "$pids" ] && kill -9 $pids 2> /dev/null
        ip netns del $n 2> /dev/null
      done
      rm -rf "$work"
    }
    trap clean EXIT
    {
      ip netns add $a && ip netns add $b && ip link add va$id type veth peer name vb$id &&
        ip link set va$id netns $a && ip link set vb$id netns $b
    } 2> "$work/why" || skip "no network namespaces here: $(tail -1 "$work/why")"
    ip -n $a addr add $net.1/24 dev va$id
    ip -n $b addr add $net.2/24 dev vb$id
    for n in $a $b; do ip -n $n link set lo up; done
    ip -n $a link set va$id up
    ip -n $b link set vb$id up
    export KASANE_AGENT='ip netns exec %h' KASANE_LOG=error UCX_TLS=tcp,self UCX_NET_DEVICES=all
    run 0 --hosts $a:2,$b:2 -- "$fib" -n 16 --repeat 2 --serial
    silent
    run 137 --hosts $a,$b --main all -- "$program" kill 1
    says "rank 1 on $b was ended by SIGKILL" ;;
esac
echo "right"
