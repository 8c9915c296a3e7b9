#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A program that continues from its checkpoint (program.cpp), as a user would start it.
#
#   restart.sh KASANE PROGRAM restart          on 1, 2 and 4 ranks in turn; and what --progress shows
#   restart.sh KASANE PROGRAM room             under a budget, ranks whose views need it in turn get room soon
#   restart.sh KASANE PROGRAM kill ROUNDS      each round kills one rank (SIGKILL) at a random time
#
# SEED=N repeats the times and the ranks. KIB_A_RANK=N: with a budget of so much DRAM a rank, and one worker.
# RANKS=N: on N ranks at most, instead of 4.
set -u
kasane=$1 program=$2 what=$3
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
fail() { echo "FAILED: $*"; cat out err 2> /dev/null; exit 1; }

most=${RANKS:-4}

# run RANKS PROGRAM …: KASANE's, under the budget. It takes the shell's place.
run() {
  local flags=()
  [ -z "${KIB_A_RANK-}" ] || flags=(--workers 1 --dram $(($1 * KIB_A_RANK))K --spill /dev/shm)
  exec "$kasane" run -n "$1" "${flags[@]}" -- "${@:2}"
}

if [ "$what" = restart ]; then
  saved=0
  for ranks in 4 1 2 4 2 1; do
    timeout 60 "$kasane" run -n $ranks -- "$program" c 2 > out 2> err || fail "on $ranks ranks"
    saved=$((saved + 2))
    grep -qx "saved $saved" out || fail "on $ranks ranks: not generation $saved"
    [ ! -s err ] || fail "progress where there is no terminal"
    for others in 1 2 4; do
      timeout 60 "$kasane" run -n $others -- "$program" c check $saved > out 2> err ||
        fail "from $ranks to $others ranks"
      grep -qx "holds $saved" out || fail "from $ranks to $others ranks: another generation"
    done
    [ "$(ls)" = "$(printf '%s\n' c err out)" ] || fail "something is left: $(ls)"
  done
  timeout 60 "$kasane" run -n 2 --progress on -- "$program" c 1 > out 2> err || fail "with --progress on"
  grep -q 'kasane: restore .*/c: 2.29 MiB, 1.* MiB of it in the file, .*/s' err ||
    fail "no rate of the restore"
  grep -q 'kasane: persist .*/c: 2.29 MiB, 1.* MiB of it in the file, .*/s' err ||
    fail "no rate of the persist"
  exit 0
fi

# A view that waited for other ranks' room without end took 2 to 30 s; these take .6 s each where nothing else
# runs.
if [ "$what" = room ]; then
  begin=$SECONDS
  for _ in $(seq 12); do
    (run 3 "$program" c 2) > out 2> err || fail "under a budget"
  done
  [ $((SECONDS - begin)) -le 30 ] || fail "12 runs took $((SECONDS - begin)) s"
  exit 0
fi

seed=${SEED:-$(date +%N | sed 's/^0*//')}
echo "SEED=$seed"
RANDOM=$((seed % 32768))
saved=0 strays=0
for round in $(seq "$4"); do
  ranks=$((RANDOM % (most - 1) + 2)) victim=$((RANDOM % ranks)) wait=$((RANDOM % 400))
  run $ranks "$program" c 1000000 > out 2> err &
  job=$!
  # From the first checkpoint of this run on, each moment is one of saving or shortly before.
  for _ in $(seq 300); do
    grep -q saved out && break
    kill -0 $job 2> /dev/null || fail "round $round: it does not begin"
    sleep 0.1
  done
  sleep "0.$(printf '%03d' $wait)"
  pid=$(pgrep -P $job | sed -n "$((victim + 1))p")
  [ -n "$pid" ] || fail "round $round: no rank $victim of $ranks"
  kill -9 "$pid"
  wait $job && fail "round $round: exit status 0 after a rank was killed"
  saved=$(grep -a saved out | tail -1 | cut -d ' ' -f 2)
  [ ! -e c.kasane-new ] || strays=$((strays + 1))
  (run $((RANDOM % most + 1)) "$program" c check "$saved") > out 2> err ||
    fail "round $round: rank $victim of $ranks killed, $saved generations saved"
  echo "round $round: rank $victim of $ranks killed, $saved saved, the file $(cat out)"
done
[ $strays -le 1 ] || fail "$strays temporary files in $4 rounds"
# What one may have left is taken away by the next checkpoint.
(run 2 "$program" c 1) > out 2> err || fail "the last one"
[ "$(ls)" = "$(printf '%s\n' c err out)" ] || fail "something is left: $(ls)"
