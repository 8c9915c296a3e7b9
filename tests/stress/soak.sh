#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs cilksort and nqueens again and again over 4 ranks of 2 workers. The first failure or hang ends the
# test, which names the round.
# soak.sh KASANE_COMMAND APPS_FOLDER [ROUNDS [SECONDS_PER_RUN]]
set -eu
kasane=$1
apps=$2
rounds=${3:-300}
limit=${4:-60}
round=1
while [ "$round" -le "$rounds" ]; do
  for program in "cilksort --count 20000" "nqueens"; do
    # shellcheck disable=SC2086  # the arguments are words
    if ! timeout -k 5 "$limit" "$kasane" run -n 4 --workers 2 -- "$apps"/$program >soak.log 2>&1; then
      echo "soak: round $round of $rounds: $program failed or took longer than $limit s; its output:" >&2
      cat soak.log >&2
      exit 1
    fi
  done
  [ $((round % 10)) -ne 0 ] || echo "soak: $round of $rounds rounds"
  round=$((round + 1))
done
rm -f soak.log
