#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Ranks that a launcher with PMIx starts, without an MPI: pmix.sh CASE KASANE PROGRAM FIB    (PROGRAM:
# tests/multi/launch). The launcher is Open MPI's mpirun, whose own variables the ranks do not get: to them it
# is one like Slurm's or PRRTE's.
set -u
case=$1 kasane=$2 program=$3 fib=$4
unset KASANE_RANKS KASANE_MPI
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "$1"; cat "$work/out" "$work/err" 2> /dev/null; exit 1; }
unnamed=(env -u OMPI_COMM_WORLD_RANK -u OMPI_COMM_WORLD_SIZE -u PMI_RANK)
# run STATUS RANKS COMMAND…: what it prints goes to out and err. STATUS: a number, or "bad" for any but 0
run() {
  local wanted=$1 ranks=$2 status
  shift 2
  timeout -k 5 100 mpirun.openmpi --oversubscribe --bind-to none -n "$ranks" "$@" \
    > "$work/out" 2> "$work/err" < /dev/null
  status=$?
  case $wanted in
    bad) [ $status != 0 ] && [ $status != 124 ] ;;
    *) [ $status = "$wanted" ] ;;
  esac || fail "status $status, not $wanted: $*"
}
says() { grep -Eq -- "$1" "$work/out" "$work/err" || fail "does not say: $1"; }

case $case in
  result)
    for ranks in 1 2 4; do
      run 0 $ranks "${unnamed[@]}" "$fib" -n 16 --repeat 2 --serial
      says "$ranks ranks?[ ,]"
      [ ! -s "$work/err" ] || fail "says something"
    done
    # under mpirun's own variables, too, when asked for; and no MPI is loaded
    KASANE_MPI=pmix LD_DEBUG=files LD_DEBUG_OUTPUT="$work/files" run 0 2 "$fib" -n 16 --repeat 2 --serial
    says '2 ranks'
    cat "$work"/files.* > "$work/files"
    grep -q 'libpmix' "$work/files" || fail "libpmix is not loaded"
    grep -q 'fib.*libmpi\.so\|kasane-mpi' "$work/files" && fail "an MPI is loaded"
    # what a rank starts is no rank
    run 0 2 "${unnamed[@]}" "$program" hello ;;
  ends)
    run 3 2 "${unnamed[@]}" "$program" return3
    run 7 2 "${unnamed[@]}" "$program" exit7
    run bad 2 "${unnamed[@]}" "$program" segv
    KASANE_MAIN=all run bad 2 "${unnamed[@]}" "$program" kill 1 ;;
  refused)
    KASANE_TRANSPORT=mpi run bad 2 "${unnamed[@]}" "$fib" -n 4
    says 'no MPI joins the ranks'
    "$kasane" run -n 2 --transport mpi --mpi pmix -- "$fib" -n 4 > "$work/out" 2> "$work/err" &&
      fail "kasane run starts ranks by PMIx"
    says '^kasane: --mpi pmix is for ranks that srun or prterun starts' ;;
esac
