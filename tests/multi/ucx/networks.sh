#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Which network UCX takes between hosts, and which processes may connect to it. Hosts are network namespaces.
# Open MPI's mpirun starts a rank in each of two.
#
#   networks.sh CASE PROGRAM
#
#   two      on two networks. Each host has a third network with the same address on both hosts, as of
#            containers. UCX takes one of the two, and nothing listens elsewhere. A stranger on it gets no
#            answer, nor does any other process of a rank's host. Garbage from the other rank's host changes
#            nothing.
#   routed   on different networks, joined by a third host
#
# Exits 77 where the test cannot run (not root, no namespaces, no mpirun). All names have this process's
# number, and the end removes everything.
set -u
case=$1 program=$2
skip() { echo "skipped: $1"; exit 77; }
fail() { echo "failed: $1"; cat "$work/out"; exit 1; }
[ "$(id -u)" = 0 ] || skip "network namespaces need root"
command -v ip > /dev/null || skip "no ip(8): install iproute2"
command -v python3 > /dev/null || skip "no python3"
command -v mpirun.openmpi > /dev/null || skip "no mpirun.openmpi"

a=kna$$ b=knb$$ c=knc$$
work=$(mktemp -d)
clean() {
  for n in $a $b $c; do
    ip netns pids $n 2> /dev/null | xargs -r kill -9 2> /dev/null
    ip netns del $n 2> /dev/null
  done
  rm -rf "$work"
}
trap clean EXIT
trap 'exit 1' INT TERM
touch "$work/out"
for n in $a $b $c; do
  ip netns add $n 2> "$work/why" || skip "no network namespaces here: $(tail -1 "$work/why")"
  ip -n $n link set lo up
done
# What joins hosts, and a stranger on it: a switch in the third host, which has an address there, too.
switch() {  # NAME NETWORK(three numbers) HOST...
  local name=$1 net=$2 i=0
  shift 2
  ip -n $c link add $name type bridge 2> "$work/why" || skip "no bridges here: $(tail -1 "$work/why")"
  ip -n $c addr add $net.254/24 dev $name
  ip -n $c link set $name up
  for h in "$@"; do
    i=$((i + 1))
    ip link add ${name}x netns $h type veth peer name $name$i netns $c 2> "$work/why" ||
      skip "no virtual interfaces here: $(tail -1 "$work/why")"
    ip -n $c link set $name$i master $name up
    ip -n $h addr add $net.$i/24 dev ${name}x
    ip -n $h link set ${name}x up
  done
}
# As containers have it: first of all interfaces, one address on both hosts, and no way out.
for h in $a $b; do
  ip -n $h link add own0 type veth peer name own1
  ip -n $h addr add 172.17.0.1/16 dev own0
  ip -n $h link set own0 up; ip -n $h link set own1 up
done
case $case in
  two) switch one 10.78.1 $a $b; switch two 10.78.2 $a $b; first=10.78.1.1 second=10.78.1.2 ;;
  *)
    switch one 10.78.1 $a; switch two 10.78.2 $b
    ip netns exec $c sysctl -qw net.ipv4.ip_forward=1
    first=10.78.1.1 second=10.78.2.1
    ip -n $a route add 10.78.2.0/24 via 10.78.1.254
    ip -n $b route add 10.78.1.0/24 via 10.78.2.254 ;;
esac
# Carriers come up a moment later.
for _ in $(seq 50); do
  for h in $a $b; do ip -n $h -br link; done | grep -q "^[ot][a-z0-9]*@.* \(DOWN\|LOWERLAYERDOWN\)" || break
  sleep 0.1
done

cat > "$work/agent" << END
#!/bin/sh
while [ "\${1#-}" != "\$1" ]; do shift; done
case \$1 in $first) ns=$a ;; *) ns=$b ;; esac
shift
exec ip netns exec \$ns unshare -u sh -c "hostname \$ns; \$*"
END
chmod +x "$work/agent"
export KASANE_TRANSPORT=ucx KASANE_JOB_KEY=networks$$
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
unset KASANE_RANKS KASANE_MPI UCX_TLS UCX_NET_DEVICES
run() {
  timeout --kill-after=5 60 ip netns exec $a unshare -u sh -c "hostname $a; \
    exec mpirun.openmpi --oversubscribe --bind-to none --mca plm_rsh_agent $work/agent \
    --host $first:1,$second:1 -n 2 \
    --mca oob_tcp_if_include 10.78.0.0/16 --mca btl_tcp_if_include 10.78.0.0/16 \
    --mca pml ob1 --mca btl tcp,self -x KASANE_TRANSPORT -x KASANE_JOB_KEY -x KASANE_STATS $*" \
    > "$work/out" 2>&1
}
# The program's processes in a host.
ranks_in() {
  for p in $(ip netns pids $1); do
    [ "$(readlink /proc/$p/exe)" = "$(readlink -f $program)" ] && echo $p
  done
}

check_two() {
  run "$program -n 24 --repeat 1000000" &   # until it is ended below
  local job=$! rank= before= same=0
  # Until what listens has been the same for a second: Open MPI tries out networks when it starts.
  for _ in $(seq 200); do
    rank=$(ranks_in $a | head -1)
    listening=$([ -n "$rank" ] && ports $rank)
    [ -n "$listening" ] && [ "$listening" = "$before" ] && same=$((same + 1)) || same=0
    [ $same = 10 ] && break
    before=$listening
    sleep 0.1
  done
  [ $same = 10 ] || fail "UCX listens nowhere"
  for at in $listening; do [ "${at%:*}" = 10.78.1.1 ] || fail "a rank listens at $at, too"; done
  for who in $c $a; do
    ip netns exec $who python3 "$work/strangers.py" silent $listening ||
      fail "a stranger in $who was answered"
  done
  ip netns exec $b python3 "$work/strangers.py" garbage $listening || fail "garbage could not be sent"
  [ -d /proc/$rank ] || fail "garbage ended the job"
  kill $rank
  wait $job && fail "the job went on without a rank"
  run "$program -n 18" || fail "exit status $? of the job"
  grep -q verified "$work/out" || fail "the program does not say that it is right"
  [ "$(grep -c "UCX neither authenticates nor encrypts between hosts" "$work/out")" = 1 ] || fail "not warned"
  local why="10.78.1.0/24 is the fastest of 2 networks of all hosts"
  grep -q "between hosts: onex (10.78.1.1/24, 10000 Mb/s), because $why" "$work/out" || fail "not said"
}

check_routed() {
  run "$program -n 18" || fail "exit status $? of the job"
  grep -q "because routes lead from it to the other hosts" "$work/out" || fail "not said"
}

# ADDRESS:PORT of each socket on which the process listens, except the sockets that it got from mpirun and
# those that Open MPI made, which are bound to no address.
ports() { ip netns exec $a python3 "$work/strangers.py" ports $1; }
cat > "$work/strangers.py" << 'END'
import os, re, socket, struct, sys, time
what, rest = sys.argv[1], sys.argv[2:]
if what == 'ports':
    links = []
    for fd in os.listdir(f'/proc/{rest[0]}/fd'):
        try: links.append(os.readlink(f'/proc/{rest[0]}/fd/{fd}'))
        except OSError: pass   # closed meanwhile
    for line in open(f'/proc/{rest[0]}/net/tcp').read().splitlines()[1:]:
        words = line.split()
        address, port = words[1].split(':')
        if words[3] == '0A' and f'socket:[{words[9]}]' in links and address != '00000000':
            print(socket.inet_ntoa(bytes.fromhex(address)[::-1]) + ':' + str(int(port, 16)))
    sys.exit(0)
at = [(a.split(':')[0], int(a.split(':')[1])) for a in rest]
if what == 'silent':
    sockets = [socket.socket() for _ in at]
    for s, to in zip(sockets, at):
        s.setblocking(False)
        s.connect_ex(to)
    time.sleep(1)
    # Neither open nor refused: still trying.
    sys.exit(any(s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) != 0 or s.connect_ex(a) == 0
                 for s, a in zip(sockets, at) if s.connect_ex(a) not in (114, 115)))
kept = []
for to in at:
    for i in range(60):
        s = socket.create_connection(to, timeout=5)
        if i % 6 == 0: s.sendall(b'abc')                                        # half of a first word
        elif i % 6 == 1: s.sendall(os.urandom(4096))
        elif i % 6 == 2: s.sendall(b'GET / HTTP/1.0\r\n\r\n' * 100)
        elif i % 6 == 3:   # closed by a reset
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
        elif i % 6 == 4: kept.append(s)                                         # says nothing
        if i % 6 in (1, 2, 3, 5): s.close()
        else: kept.append(s)
time.sleep(0.5)
END
export KASANE_STATS=1
check_$case
echo "as it should be"
