# SPDX-License-Identifier: Apache-2.0
# What tests of an application on files begin with: an empty folder of their own, and what they say.
# Usage: NAME_files.sh KASANE PROGRAM RANKS, which sources this first, and ends with: exit $bad
set -u
kasane=$1 program=$2 ranks=$3
here=$(cd "$(dirname "$0")" && pwd)
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
bad=0
run() { timeout 100 "$kasane" run -n "$ranks" -- "$program" "$@" > out.log 2> err.log; }
complain() {
  echo "FAILED: $*"
  if grep -qs "ended by SIGTERM" err.log; then
    echo "(not over after 100 s: it hangs, or the machine has no time for it)"
  fi
  head -c 3000 out.log err.log
  bad=1
}

refuses() {   # TEXT ARGUMENTS…: not status 0, and says TEXT
  local text=$1
  shift
  if run "$@"; then complain "accepted: $*"; fi
  grep -q -- "$text" err.log || complain "no '$text' from: $*"
}
