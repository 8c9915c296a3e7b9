#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A cluster of two hosts on one machine: two network namespaces joined by a cable (veth). mpirun starts a job
# with ranks in both.
#
#   cluster.sh MPI RANKS TRANSPORT PROGRAM [ARGUMENTS...]      MPI: openmpi or mpich; RANKS: per host
#   cluster.sh MPI RANKS TRANSPORT --kill PROGRAM …            kills one rank, too
#
# After the kill the job must end, say which rank died, and leave nothing. Exits 77 where the test cannot run
# (not root, no namespaces, no such mpirun). All names have this process's number, and the end removes
# everything.
set -u
mpi=$1 per_host=$2 transport=$3
shift 3
kill_one=0
[ "$1" = --kill ] && { kill_one=1; shift; }

skip() { echo "skipped: $1"; exit 77; }
[ "$(id -u)" = 0 ] || skip "network namespaces need root"
command -v ip > /dev/null || skip "no ip(8): install iproute2"
command -v "mpirun.$mpi" > /dev/null || skip "no mpirun.$mpi"

id=$$
a=ka$id b=kb$id va=va$id vb=vb$id
net=10.$((id % 200 + 20)).$((id / 200 % 200 + 20))
work=$(mktemp -d)
clean() {
  # Only what was started here: processes inside these two namespaces.
  for n in $a $b; do
    pids=$(ip netns pids $n 2> /dev/null)
    [ -n "$pids" ] && kill -9 $pids 2> /dev/null
  done
  ip netns del $a 2> /dev/null
  ip netns del $b 2> /dev/null
  rm -rf "$work"
}
trap clean EXIT
trap 'exit 1' INT TERM
{
  ip netns add $a && ip netns add $b && ip link add $va type veth peer name $vb &&
    ip link set $va netns $a && ip link set $vb netns $b
} 2> "$work/why" || skip "no network namespaces here: $(tail -1 "$work/why")"
ip -n $a addr add $net.1/24 dev $va
ip -n $b addr add $net.2/24 dev $vb
for n in $a $b; do ip -n $n link set lo up; done
ip -n $a link set $va up
ip -n $b link set $vb up

# The second host has been up for a day longer, since monotonic clocks of hosts are unrelated. Where the
# kernel has no time namespaces the clocks are equal.
shift_clock=
unshare -T --monotonic 86400 --fork true 2> /dev/null && shift_clock="-T --monotonic 86400 --fork"

# What mpirun uses instead of ssh. Each host has a name of its own. Otherwise both would share Open MPI's
# folder for the session.
cat > "$work/agent" << AGENT
#!/bin/sh
while [ "\${1#-}" != "\$1" ]; do shift; done
h=\$1; shift
case \$h in $net.1) ns=$a;; $net.2) ns=$b;; *) ns=\$h;; esac
[ \$ns = $b ] && clock="$shift_clock" || clock=
exec ip netns exec \$ns unshare -u \$clock sh -c "hostname \$ns; \$*"
AGENT
chmod +x "$work/agent"

ranks=$((2 * per_host))
export KASANE_TRANSPORT=$transport KASANE_JOB_KEY=cluster$id
unset KASANE_RANKS KASANE_MPI
export UCX_TLS=tcp,self UCX_NET_DEVICES=all
case $mpi in
  openmpi)
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    start="mpirun.openmpi --oversubscribe --bind-to none --mca plm_rsh_agent $work/agent \
      --host $net.1:$per_host,$net.2:$per_host -n $ranks \
      --mca oob_tcp_if_include $net.0/24 --mca btl_tcp_if_include $net.0/24 --mca pml ob1 --mca btl tcp,self \
      -x KASANE_TRANSPORT -x KASANE_JOB_KEY -x UCX_TLS -x UCX_NET_DEVICES" ;;
  mpich)
    start="mpirun.mpich -launcher ssh -launcher-exec $work/agent -iface $va -hosts $net.1,$net.2 \
      -ppn $per_host -n $ranks" ;;
esac
limit=150 tries=1
# MPICH 4.0.2 over UCX's TCP does not always return from MPI_Finalize between two hosts. The program has
# printed everything by then, so the job is tried again.
case $mpi in mpich) limit=22 tries=3 ;; esac
run() { timeout --kill-after=5 $limit ip netns exec $a unshare -u sh -c "hostname $a; exec $start $*"; }

if [ $kill_one = 0 ]; then
  while :; do
    run "$@" > "$work/out" 2>&1
    status=$?
    tries=$((tries - 1))
    if { [ $status -ne 124 ] && [ $status -ne 137 ]; } || [ $tries -eq 0 ] ||
      ! [ -s "$work/out" ]; then break; fi
    echo "MPI_Finalize did not return; once more"
    for n in $a $b; do ip netns pids $n | xargs -r kill -9; done
  done
  cat "$work/out"
  exit $status
fi
limit=150

run "$@" > "$work/out" 2>&1 &
job=$!
# The last rank is on the second host; the program prints a line once it runs.
for _ in $(seq 300); do grep -qv ' warning ' "$work/out" && break; sleep 0.1; done
# ranks_in HOST PROGRAM: the program's processes in a host.
ranks_in() {
  for p in $(ip netns pids $1); do
    [ "$(readlink /proc/$p/exe)" = "$(readlink -f "$2")" ] && echo "$p"
  done
}
victim=$(ranks_in $b "$1" | tail -1)
[ -n "$victim" ] || { cat "$work/out"; echo "no rank runs on the second host"; exit 1; }
kill -9 "$victim"
wait $job
status=$?
cat "$work/out"
[ $status != 0 ] && [ $status != 124 ] || { echo "exit status $status after a rank was killed"; exit 1; }
grep -Eq "rank 1|PID $victim" "$work/out" || { echo "nobody says which rank died"; exit 1; }
sleep 1
left=$(for n in $a $b; do ranks_in $n "$1"; done)
[ -z "$left" ] || { echo "left behind: $left"; exit 1; }
echo "the job ended with status $status"
