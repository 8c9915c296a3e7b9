#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# trust.sh CASE KASANE PROGRAM: see each case. PROGRAM is tests/multi/launch's.
set -u
readonly kasane=$2 program=$3
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
unset ${!KASANE_*} ${!OMPI_*} ${!PMI_*} ${!PMIX_*} ${!SLURM_*}

fail() {
  printf 'trust: %s\n' "$@" >&2
  exit 1
}
# expect TEXT COMMAND…: its output, both kinds, contains TEXT.
expect() {
  local text=$1 output
  shift
  output=$(timeout 20 "$@" 2>&1 < /dev/null)
  [[ $output == *"$text"* ]] || fail "'$*' did not say '$text' but:" "$output"
}

# A set-user-id program is one rank with the defaults, whatever the variables say. It does not become another
# number of ranks, nor a rank of an MPI (whose modules would be loaded). It does not execute itself again, and
# writes no file that the variables name.
set_user_id() {
  [[ $(id -u) == 0 ]] || { echo "needs root"; exit 77; }
  command -v setpriv > /dev/null || { echo "needs setpriv"; exit 77; }
  chmod 755 "$folder"
  local as_nobody=(setpriv --reuid 65534 --regid 65534 --clear-groups)
  install -m 4755 "$(command -v id)" id
  [[ $("${as_nobody[@]}" ./id -u) == 0 ]] || { echo "$folder does not allow set-user-id programs"; exit 77; }
  install -m 4755 "$program" program
  local kasane_variables=(KASANE_RANKS=4 KASANE_TAG_OUTPUT=1 KASANE_TRACE="$folder/trace"
    KASANE_SPACE=nonsense)
  expect "hello from rank 0 of 1" "${as_nobody[@]}" env "${kasane_variables[@]}" ./program hello
  local mpi
  for mpi in "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2" "PMI_RANK=1 PMI_SIZE=2" \
    "PMIX_RANK=1 SLURM_NTASKS=2" "SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=1"; do
    expect "hello from rank 0 of 1" \
      "${as_nobody[@]}" env $mpi KASANE_MPI=openmpi KASANE_TRACE="$folder/trace" ./program hello
  done
  [[ ! -e trace ]] || fail "it wrote the file that KASANE_TRACE names"
  # Started by its owner the same file reads them.
  expect "[0] hello from rank 0 of 4" env KASANE_RANKS=4 KASANE_TAG_OUTPUT=1 ./program hello
}

# srun without an MPI's launcher starts processes that know nothing of each other. They are refused, but not
# in a batch script, nor where the user asks for ranks.
srun() {
  local task=(SLURM_JOB_ID=1 SLURM_NTASKS=2 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=1)
  expect "srun started 2 tasks, of which this is task 1" env "${task[@]}" "$program" hello
  env "${task[@]}" "$program" hello > /dev/null 2>&1 && fail "the status of the refusal is 0"
  expect "hello from rank 0 of 1" env "${task[@]}" KASANE_RANKS=1 "$program" hello
  expect "hello from rank 0 of 2" env "${task[@]}" "$kasane" run -n 2 -- "$program" hello
  expect "hello from rank 0 of 1" env SLURM_JOB_ID=1 SLURM_NTASKS=2 SLURM_PROCID=0 "$program" hello
}

# `kasane run --transport mpi` takes an mpirun for what it says it is, whatever its name: Open MPI 5 has no
# mpirun.openmpi.
which_mpirun() {
  # fake FOLDER NAME VERSION: FOLDER/NAME says VERSION if asked, else how it was called.
  fake() {
    mkdir -p "$1"
    printf '#!/bin/sh\n[ "$1" = --version ] && { printf "%%s\\n" "%s"; exit; }\necho "%s: $*"\n' \
      "$3" "$2" > "$1/$2"
    chmod 755 "$1/$2"
  }
  fake open5 mpirun "mpirun (Open MPI) 5.0.3"
  fake open4 orterun "orterun (OpenRTE) 4.1.4"
  fake hydra mpiexec "HYDRA build details: Version: 4.1.2"
  fake other mpirun "Another MPI, version 1"
  fake other mpirun.openmpi "wrapper of nothing"
  local run=("$kasane" run -n 3 --transport mpi)
  local none="an mpirun of Open MPI or MPICH in the PATH, and there is none"
  expect "mpirun: --oversubscribe --bind-to none -n 3 $program hello" \
    env PATH="$folder/open5" "${run[@]}" -- "$program" hello
  expect "orterun: --oversubscribe --bind-to none -n 3 $program hello" \
    env PATH="$folder/open4" "${run[@]}" -- "$program" hello
  expect "mpiexec: -bind-to none -n 3 /bin/sh -c " env PATH="$folder/hydra" "${run[@]}" -- "$program" hello
  expect "mpiexec: -bind-to none -n 3" \
    env PATH="$folder/open5:$folder/hydra" "${run[@]}" --mpi mpich -- "$program" hello
  expect "an mpirun of Open MPI in the PATH, and there is none" \
    env PATH="$folder/hydra" "${run[@]}" --mpi openmpi -- "$program" hello
  expect "$none" env PATH="$folder/other" "${run[@]}" -- "$program" hello
  expect "$none" env PATH="$folder/nothing" "${run[@]}" -- "$program" hello
}

# A link that another user has put where all may write is not followed.
links() {
  [[ $(id -u) == 0 ]] || { echo "needs root"; exit 77; }
  mkdir -m 1777 all
  echo mine > own
  ln -s "$folder/own" all/trace && chown -h 65534 all/trace
  expect "--trace: creating $folder/all/trace" \
    "$kasane" run -n 2 --trace "$folder/all/trace" -- "$program" hello
  [[ $(cat own) == mine ]] || fail "--trace wrote through a link of another user"
}

"$1"
