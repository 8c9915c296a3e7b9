#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Starts the program that attaches in each case of a set, by kasane run and by its MPI's mpirun. Without an
# MPI it gets several ranks by kasane run alone.
# Usage: attach.sh cases|engines|ends|network RANKS KASANE PROGRAM
set -uo pipefail
set=$1 ranks=$2 kasane=$3 program=$4
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
unset KASANE_RANKS KASANE_FAULTS KASANE_DRAM KASANE_TRANSPORT
out=$(mktemp)
trap 'rm -f "$out"' EXIT
case $program in *openmpi) mpi=openmpi ;; *mpich) mpi=mpich ;; *) mpi= ;; esac
start=()
[ -n "$mpi" ] || start=(env PATH=/nowhere)   # where an mpirun is not

fail() { echo "attach: FAILED: $*" >&2; head -60 "$out" >&2; exit 1; }

# passes CASE FLAGS…: the program in this case, started by kasane run.
passes() {
  local name=$1
  shift
  timeout 100 "${start[@]}" "$kasane" run -n "$ranks" "$@" -- "$program" "$name" >"$out" 2>&1 ||
    fail "status $?: $name $*"
  grep -q "^attach: $name passed" "$out" || [ "$name" = refused ] || fail "$name $*: not passed"
  echo "$name $*: passed"
}

# ends CASE STATUS TEXT: it ends by itself, with that status (a pattern), and what it prints has the text. For
# root /dev/shm is the case's own, and empty afterwards.
ends() {
  local status
  timeout 60 "${own_shm[@]}" '
    kasane=$1 ranks=$2 program=$3 name=$4 own_shm=$5
    shift 5
    timeout 30 "$@" "$kasane" run -n "$ranks" -- "$program" "$name"
    status=$?
    [ -n "$own_shm" ] || exit $status
    for _ in 1 2 3 4 5 6 7 8 9 10; do   # ranks that mpirun has killed may still be leaving
      [ -z "$(ls /dev/shm)" ] && exit $status
      sleep 0.3
    done
    echo "left in /dev/shm: $(ls /dev/shm)"
    exit 99' sh "$kasane" "$ranks" "$program" "$1" "${own_shm[3]:-}" "${start[@]}" >"$out" 2>&1
  status=$?
  [[ " $status " =~ $2 ]] || fail "$1: status $status"
  [ -z "$3" ] || grep -q -- "$3" "$out" || fail "$1: no '$3'"
  echo "$1: ended with $status"
}
own_shm=(sh -c)
if [ "$(id -u)" = 0 ] && unshare -m mount -t tmpfs none /dev/shm 2>/dev/null; then
  own_shm=(unshare -m sh -c 'mount -t tmpfs none /dev/shm || exit 98; exec sh -c "$0" "$@"')
fi

dram=$((ranks > 2 ? 32 : 16))M
case $set in
  cases)
    for name in memory again threads system; do passes $name; done
    [ -z "$mpi" ] && [ "$ranks" = 1 ] || passes refused
    [ -z "$mpi$([ "$ranks" = 1 ] && echo alone)" ] || passes finalize
    passes out_of_core --dram $dram --stats=20ms
    grep -q '; a second: .* spilled' "$out" || fail "--stats=20ms said nothing meanwhile"
    if [ -n "$mpi" ]; then
      for name in mpi parts; do passes $name; done
      # plain mpirun
      timeout 60 mpirun.$mpi $([ $mpi = openmpi ] && echo --oversubscribe) -n "$ranks" "$program" memory \
        >"$out" 2>&1 || fail "mpirun.$mpi"
      grep -q "^attach: memory passed" "$out" || fail "mpirun.$mpi"
    fi ;;
  engines)
    for faults in uffd mprotect uffd-thread; do
      "$kasane" info | grep -q "^ *$faults  *available" || continue
      passes memory --faults $faults --dram $((2 * ${dram%M}))M
      passes out_of_core --faults $faults --dram $dram
      passes system --faults $faults --dram $((2 * ${dram%M}))M
      [ -z "$mpi" ] || passes mpi --faults $faults --dram $((2 * ${dram%M}))M
    done ;;
  ends)
    # What a launcher says of a signal is its own: 128 + signal, the signal, or of another rank that it ended.
    ends wild ' (139|11|9|15) ' 'global memory until this process detached'
    ends left ' (1|3|9|15) ' ''  # 1: of a rank that has noticed
    ends killed ' (137|9|15) ' ''
    # exit() without an end of the MPI is an error to launchers, which may end ranks that are still there
    ends exit ' ([01]|9|15) ' '' ;;
  network)
    "$kasane" info | grep -q '^ *ucx  *between' || exit 77
    for flags in "--transport ucx" "--debug hosts=2"; do
      for name in memory parts threads mpi; do passes $name $flags; done
    done ;;
  *) fail "unknown set $set" ;;
esac
