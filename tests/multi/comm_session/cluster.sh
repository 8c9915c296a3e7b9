#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Starts the session program under mpirun and looks for what it must say.
#
#   cluster.sh WHERE MPI TRANSPORT PROGRAM EXPECTED
#
# WHERE: one: all ranks here; pretended: here, but as if on two hosts; namespaces: one rank in each of two
# network namespaces (root only). MPI: openmpi | mpich. TRANSPORT: auto | shm | ucx | mpi.
# EXPECTED: what must stand in the output. Exit code 77: the test cannot run here, and the output says why.
set -u
where=$1 mpi=$2 transport=$3 program=$4 expected=$5
skip() { echo "skipped: $*"; exit 77; }
command -v "mpirun.$mpi" > /dev/null || skip "no mpirun.$mpi"

export KASANE_TRANSPORT="$transport" KASANE_MPI="$mpi"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
work=$(mktemp -d)
a=ks$$a b=ks$$b
clean() {
  if [ "$where" = namespaces ]; then
    ip netns pids "$a" 2> /dev/null | xargs -r kill -9
    ip netns pids "$b" 2> /dev/null | xargs -r kill -9
    ip netns del "$a" 2> /dev/null
    ip netns del "$b" 2> /dev/null
  fi
  rm -rf "$work"
}
trap clean EXIT
trap 'exit 1' INT TERM

# The two namespaces, joined by a pair of virtual interfaces, and the agent by which mpirun reaches them
# instead of ssh.
make_namespaces() {
  [ "$(id -u)" = 0 ] || skip "only root may make network namespaces"
  command -v ip > /dev/null || skip "no ip(8)"
  ip netns add "$a" 2> /dev/null || skip "no network namespaces here"
  ip netns add "$b" || skip "no network namespaces here"
  ip link add "v$a" type veth peer name "v$b" 2> /dev/null || skip "no virtual interfaces here"
  ip link set "v$a" netns "$a"
  ip link set "v$b" netns "$b"
  ip -n "$a" addr add 10.79.0.1/24 dev "v$a"
  ip -n "$b" addr add 10.79.0.2/24 dev "v$b"
  ip -n "$a" link set lo up
  ip -n "$b" link set lo up
  ip -n "$a" link set "v$a" up
  ip -n "$b" link set "v$b" up
  # Open MPI names its session directory by the host's name: each namespace gets one.
  cat > "$work/agent" << EOF
#!/bin/sh
while [ "\${1#-}" != "\$1" ]; do shift; done
host=\$1
shift
case \$host in 10.79.0.1) ns=$a ;; *) ns=$b ;; esac
exec ip netns exec \$ns unshare -u sh -c "hostname \$ns; \$*"
EOF
  chmod +x "$work/agent"
}

in_first_namespace() { timeout -k 5 "$limit" ip netns exec "$a" unshare -u sh -c "hostname $a; $*"; }

run_here() {
  case $mpi in
    openmpi) timeout -k 5 60 mpirun.openmpi -n 4 "$program" ;;
    mpich) timeout -k 5 60 mpirun.mpich -n 4 "$program" ;;
  esac
}

run_in_namespaces() {
  export UCX_TLS=tcp,self
  case $mpi in
    openmpi)
      in_first_namespace "mpirun.openmpi --mca plm_rsh_agent $work/agent --host 10.79.0.1:1,10.79.0.2:1 -n 2 \
        --mca oob_tcp_if_include 10.79.0.0/24 --mca btl_tcp_if_include 10.79.0.0/24 --mca pml ob1 \
        --mca btl tcp,self -x UCX_TLS -x KASANE_TRANSPORT -x KASANE_MPI $program" ;;
    mpich)
      in_first_namespace "mpirun.mpich -launcher ssh -launcher-exec $work/agent -iface v$a \
        -hosts 10.79.0.1,10.79.0.2 -ppn 1 -n 2 $program" ;;
  esac
}

limit=60
tries=1
case $where in
  one) run=run_here ;;
  pretended)
    export KASANE_DEBUG=hosts=2
    run=run_here ;;
  namespaces)
    make_namespaces
    run=run_in_namespaces
    # MPICH 4.0.2 over UCX's TCP does not always return from MPI_Finalize between two hosts. One rank closes
    # its connections, which needs an answer of the other rank, but that rank waits in the barrier of the
    # process manager. The program has printed everything by then, so the job is tried again.
    case $mpi in mpich) limit=15 tries=3 ;; esac ;;
esac
while :; do
  $run > "$work/output" 2>&1
  code=$?
  tries=$((tries - 1))
  if [ $code -ne 124 ] || [ $tries -eq 0 ] || ! grep -q "^session ok" "$work/output"; then break; fi
  echo "MPI_Finalize did not return; once more"
  ip netns pids "$a" | xargs -r kill -9
  ip netns pids "$b" | xargs -r kill -9
done
cat "$work/output"
grep -F -q "$expected" "$work/output" || { echo "exit code $code; not found: $expected"; exit 1; }
# What must be refused is; what must work ends well.
case $expected in "session ok"*) exit $code ;; esac
[ $code -ne 0 ]
