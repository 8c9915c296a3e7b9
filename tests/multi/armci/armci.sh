#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs programs of ARMCI and of Global Arrays on Kasane's libarmci. Exit status 77: the case cannot run here.
# Usage: armci.sh calls|waits|oracle|more|ga|paging|dram|engines|errors|names MPI RANKS KASANE PROGRAMS
# PROGRAMS: the folder of the programs armci_NAME_MPI.
set -uo pipefail
set=$1 mpi=$2 ranks=$3 kasane=$4 programs=$5
here=$(cd "$(dirname "$0")" && pwd)
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
unset KASANE_RANKS KASANE_FAULTS KASANE_DRAM KASANE_TRANSPORT LD_LIBRARY_PATH LIBRARY_PATH LD_RUN_PATH
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
out=$scratch/out

fail() { echo "armci: FAILED: $*" >&2; head -60 "$out" >&2; exit 1; }

# passes TEXT FLAGS… -- PROGRAM ARGUMENTS…: by kasane run
passes() {
  local text=$1
  shift
  timeout 250 "$kasane" run -n "$ranks" "$@" >"$out" 2>&1 || fail "status $?: $*"
  grep -q "^$text: passed on $ranks processes" "$out" || fail "not passed: $*"
  echo "$*: passed"
}

# ends TEXT PROGRAM ARGUMENTS…: not with 0, within seconds; what it prints has the text.
ends() {
  local text=$1
  shift
  timeout 30 "$kasane" run -n "$ranks" -- "$@" >"$out" 2>&1 && fail "status 0: $*"
  local status=$?
  grep -q -- "$text" "$out" || fail "status $status, but no '$text': $*"
  echo "$*: ended"
}

# build_ga [FLAGS…]: the GA programs are linked as their users do, and then with the variables of kasane info.
build_ga() {
  local libraries="-lga-$mpi -lscalapack-$mpi -llapack -lblas -larmci-$mpi -lgfortran -lm"
  [ -f /usr/include/ga.h ] && command -v mpicc.$mpi mpif90.$mpi >/dev/null || exit 77
  eval "$("$kasane" info --ga "$mpi")" || fail "kasane info --ga"
  mpicc.$mpi -O2 "$here/ga_c.c" -o "$scratch/ga_c" $libraries >"$out" 2>&1 || fail "linking ga_c"
  # Another line, with a folder of the system's, as ga-config prints it. (The arrays by which memory is
  # indexed have 2 elements in mafdecls.fh: no loop over them may be optimised for that.)
  mpif90.$mpi "$@" -cpp -fdefault-integer-8 -fno-aggressive-loop-optimizations -I/usr/include \
    "$here/ga_fortran.f90" -o "$scratch/ga_fortran" -L/usr/lib/x86_64-linux-gnu $libraries \
    >"$out" 2>&1 || fail "linking ga_fortran"
  unset COMPILER_PATH LIBRARY_PATH LD_RUN_PATH LD_LIBRARY_PATH
  readelf -d "$scratch/ga_c" "$scratch/ga_fortran" >"$out"
  [ "$(grep -c "NEEDED.*libarmci-$mpi.so" "$out")" = 2 ] || fail "linked with another ARMCI"
}

# The least budget that there is, and eight times as much of data, in MiB a process.
dram=$((5 * ranks))M data=40
out_of_core() {
  passes paging --dram $dram "$@" -- "$programs/armci_paging_$mpi" $data
  passes oracle --dram $dram "$@" -- "$programs/armci_oracle_$mpi" 11 5 $data
}
# Matrices of three and four times n x n.
ga_out_of_core() {
  local n=$((ranks > 2 ? 2200 : ranks > 1 ? 1600 : 1150))
  passes ga --dram $dram "$@" -- "$scratch/ga_c" $n
  passes ga --dram $dram "$@" -- "$scratch/ga_fortran"
}

case $set in
  calls) passes calls -- "$programs/armci_calls_$mpi" ;;
  waits)
    [ "$(nproc)" -gt 1 ] || exit 77
    for how in alone together; do passes calls -- "$programs/armci_calls_$mpi" $how; done ;;
  oracle) for seed in 1 2; do passes oracle -- "$programs/armci_oracle_$mpi" $seed 12; done ;;
  more)
    for seed in 3 4 5 6; do passes oracle -- "$programs/armci_oracle_$mpi" $seed 60; done
    passes oracle --dram $dram -- "$programs/armci_oracle_$mpi" 7 30
    for seed in 12 13; do passes oracle --dram $dram -- "$programs/armci_oracle_$mpi" $seed 10 $data; done
    if "$kasane" info | grep -q '^ *ucx  *between'; then
      passes oracle --transport ucx -- "$programs/armci_oracle_$mpi" 8 30
      passes calls --transport ucx -- "$programs/armci_calls_$mpi"
      passes oracle --transport ucx --dram $dram -- "$programs/armci_oracle_$mpi" 14 5 $data
    fi ;;
  ga)
    build_ga
    for program in ga_c ga_fortran; do
      passes ga -- "$scratch/$program"
      timeout 100 mpirun.$mpi $([ $mpi = openmpi ] && echo --oversubscribe) -n "$ranks" "$scratch/$program" \
        >"$out" 2>&1 || fail "mpirun.$mpi $program"
      grep -q "^ga: passed on $ranks processes" "$out" || fail "mpirun.$mpi $program: not passed"
    done ;;
  paging)
    out_of_core
    passes calls --dram $dram -- "$programs/armci_calls_$mpi" ;;
  dram)
    build_ga -DSIZE=$((ranks > 2 ? 2600 : ranks > 1 ? 1850 : 1300))
    ga_out_of_core ;;
  engines)
    build_ga -DSIZE=1850
    for faults in uffd-thread uffd mprotect; do
      "$kasane" info | grep -q "^ *$faults  *available" || continue
      out_of_core --faults $faults
      ga_out_of_core --faults $faults
    done ;;
  errors)
    ends "ARMCI_Put with process 1 at 0x1234560" "$programs/armci_calls_$mpi" wild
    ends "ARMCI_Barrier before ARMCI_Init or after ARMCI_Finalize" "$programs/armci_calls_$mpi" ended
    for none in or mpi; do   # parts of a message that names the MPIs
      "$kasane" info --ga $none >"$out" 2>&1 && fail "info --ga $none"
      grep -q "takes the MPI of the program.*not $none" "$out" || fail "not said: info --ga $none"
    done
    peer=/usr/lib/x86_64-linux-gnu/libarmci-$mpi.a
    [ -f $peer ] && command -v mpicc.$mpi >/dev/null || exit 0
    eval "$("$kasane" info --ga "$mpi")" || fail "kasane info --ga"
    mpicc.$mpi "$here/calls.c" -o "$scratch/both" $peer -Wl,--no-as-needed -larmci-$mpi >"$out" 2>&1 ||
      fail "linking with both"
    unset COMPILER_PATH LIBRARY_PATH LD_RUN_PATH LD_LIBRARY_PATH
    ends "has an ARMCI, too" "$scratch/both" ;;
  names)   # every function that the peer defines
    [ -f /usr/lib/x86_64-linux-gnu/libarmci-$mpi.a ] || exit 77
    functions() { awk 'NF == 3 && $2 ~ /[TW]/ { print $3 }' | grep -E '^(P?ARMCIX?_|p?armci_)' | sort -u; }
    nm /usr/lib/x86_64-linux-gnu/libarmci-$mpi.a 2>/dev/null | functions >"$scratch/peer"
    library=$(eval "$("$kasane" info --ga "$mpi")" && echo "${LD_RUN_PATH%%:*}/libarmci-$mpi.so")
    nm -D --defined-only "$library" | functions >"$scratch/ours"
    comm -23 "$scratch/peer" "$scratch/ours" >"$out"
    [ ! -s "$out" ] && [ "$(wc -l <"$scratch/peer")" -gt 150 ] || fail "functions that are missing"
    nm -D --defined-only "$library" | grep -c ' W ARMCI_' >"$out"
    for name in ARMCI_Init_mpi_comm ARMCI_GroupFence armci_group_comm; do
      grep -q "^$name$" "$scratch/ours" || fail "$name is missing"
    done ;;
  *) fail "unknown set $set" ;;
esac
