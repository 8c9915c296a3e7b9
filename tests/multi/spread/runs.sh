#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs programs whose threads are on all ranks (--threads spread) again and again beside the same programs
# without Kasane, and counts. It is no test of CTest, since it takes hours:
#
#   runs.sh BUILD [RUNS [CONFIGURATION…]]        BUILD: build/release; RUNS: 20
#
# Configurations, with the ranks that each has:
#   shm/1 shm/2 shm/4 ucx/2 ucx/4 mpi/2 mpi/4    default: all of these and dram/2
#   dram/2 dram/4    data larger than DRAM: the least budget that there is, about a quarter
#   hosts/2          on two hosts, which are network namespaces: as root, with ip(8) and Open MPI
#
# Prints for each program and configuration how many runs were right, how many ended with status 0 and
# another result (wrong), and how many with another status or after LIMIT seconds (ended; default: 120).
# Outputs of the last two kinds are kept in the folder that the last line names. Status 1 if there was any.
# ONLY: a regular expression of programs. SOURCES: a folder with pigz and xz that were built from source with
# Kasane (docs/guide/threads.md), and without it as pigz-plain and xz-plain: these instead of installed ones.
set -u
build=$(realpath "${1:?a build folder}") runs=${2:-20}
shift $(($# < 2 ? $# : 2))
[ $# = 0 ] && set -- shm/1 shm/2 shm/4 ucx/2 ucx/4 mpi/2 mpi/4 dram/2
here=$(dirname "$(realpath "$0")")
kasane=$build/bin/kasane examples=$build/examples limit=${LIMIT:-120} sources=${SOURCES:-}
folder=$(mktemp -d) failed=0
mkdir "$folder/kept"

sizes() {  # PROGRAM small|large
  case $1/$2 in
    lu/small) echo -n 96 -t ;;
    lu/large) echo -n 1792 ;;
    fft/small) echo -t ;;
    fft/large) echo -m 1024 ;;
    radix/small) echo -n 20000 -r 5 -p 13 -v ;;
    radix/large) echo -n 6000000 -r 5 ;;
    grid/small) echo -s 1 ;;
    grid/large) echo -l 10 -s 1 ;;
    nbody/small) echo -n 777 -p 13 -v ;;
    nbody/large) echo -n 20000 -s 1 ;;
    queues/small) echo -n 200 -p 13 -v ;;
    queues/large) echo -n 3000 -i 100 ;;
  esac
}
packs() {
  case $1 in
    pigz) echo pigz -n -p 4 -c ;;
    pbzip2) echo pbzip2 -p4 -b3 -1 -c ;;
    xz) echo xz -0 -T4 --block-size=500000 -c ;;
    zstd) echo zstd -q -T4 -B600KB -c ;;
  esac
}
result_of() { [ "$2" = macros ] && grep "^$1: " || cat; }

# start PROGRAM KIND CONFIGURATION > output
start() {
  local program=$1 kind=$2 network=${3%/*} ranks=${3#*/} command=()
  case $kind in
    macros) command=("$examples/${program}_spread" $arguments) ;;
    gtest) command=("$build/bin/spread_programs_test" --gtest_brief=1 --gtest_filter=-*Thousand*) ;;
    installed) command=($(packs "$program") "$folder/input") ;;
    source) command=($(packs "$program") "$folder/input") command[0]=$sources/$program ;;
  esac
  if [ "$network" = hosts ]; then
    bash "$here/../cluster/cluster.sh" openmpi $((ranks / 2)) ucx \
      env KASANE_THREADS=spread KASANE_MALLOC=space \
      LD_PRELOAD="$build/lib/kasane/libkasane_malloc.so" "${command[@]}"
    return
  fi
  local options=(-n "$ranks")
  case $network in
    ucx | mpi) options+=(--transport "$network") ;;
    dram) options+=(--dram $((ranks * 4864))K --spill /dev/shm) ;;
  esac
  [ "$kind" = installed ] && options+=(--preload) || options+=(--threads spread --malloc space)
  timeout --kill-after=5 "$limit" "$kasane" run "${options[@]}" -- "${command[@]}"
}

# count PROGRAM KIND CONFIGURATION
count() {
  local program=$1 kind=$2 configuration=$3 right=0 wrong=0 ended=0 arguments=
  local out=$folder/out wanted=$folder/wanted status
  case $kind in
    macros)
      [ "${configuration%/*}" = dram ] && arguments=$(sizes "$program" large) ||
        arguments=$(sizes "$program" small)
      "$examples/${program}_posix" $arguments | result_of "$program" "$kind" > "$wanted" ;;
    gtest) : > "$wanted" ;;
    installed) $(packs "$program") "$folder/input" > "$wanted" ;;
    source) "$sources/$program-plain" $(packs "$program" | cut -d" " -f2-) "$folder/input" > "$wanted" ;;
  esac
  for run in $(seq "$runs"); do
    start "$program" "$kind" "$configuration" > "$out" 2> "$out.messages"
    status=$?
    result_of "$program" "$kind" < "$out" > "$out.result"
    [ "$kind" = gtest ] && : > "$out.result"
    if [ $status != 0 ]; then
      ended=$((ended + 1))
    elif cmp -s "$wanted" "$out.result"; then
      right=$((right + 1))
      continue
    else
      wrong=$((wrong + 1))
    fi
    { echo "status $status"; cat "$out.messages"; tail -c 100000 "$out"; } \
      > "$folder/kept/$program-${configuration/\//-}-$run"
    failed=1
  done
  printf '%-10s %-8s %6d %6d %6d\n' "$program" "$configuration" $right $wrong $ended
}

seq -f 'line %.0f of what is packed' 400000 > "$folder/input"
printf '%-10s %-8s %6s %6s %6s\n' program where right wrong ended
for configuration; do
  for program in lu fft radix grid nbody queues programs pigz pbzip2 xz zstd; do
    [[ $program =~ ${ONLY:-.} ]] || continue
    kind=macros
    case $program in
      programs) kind=gtest ;;  # words are counted, a pipeline, a tree of tasks
      pigz | pbzip2 | xz | zstd) kind=installed ;;
    esac
    if [ $kind = installed ] && [ -n "$sources" ]; then
      kind=source
      [ -x "$sources/$program" ] || continue
    elif [ $kind = installed ]; then
      command -v $program > /dev/null || continue
      case $configuration in */1 | mpi/* | hosts/*) continue ;; esac
    fi
    count $program $kind "$configuration"
  done
done
rm -f "$folder"/input "$folder"/out* "$folder"/wanted
[ $failed = 0 ] && rm -r "$folder" || echo "kept: $folder/kept"
exit $failed
