#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What `make demo-graph` shows: how far every package of Debian is from libc6, by what depends on what. The
# program reads the list of packages, searches the graph on two ranks, and checks the tree that it finds.
# Usage: demo_graph.sh [BUILD]. DEMO_ROOT names another package.
set -eu
cd "$(dirname "$0")/.."

build=${1:-build/release}
kasane=$build/bin/kasane
graph=$build/apps/graph
root=${DEMO_ROOT:-libc6}
limit=300   # seconds until it counts as hung

say() { printf '%s\n' "$*"; }
fail() { say "demo-graph: FAILED: $*" >&2; exit 1; }

for program in "$kasane" "$graph"; do
  [ -x "$program" ] || fail "$program is missing: run make demo-graph"
done
scratch=$(mktemp -d "${TMPDIR:-/tmp}/kasane-demo.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

say "How far every package is from $root: the steps from a package to one that it depends on, and so on"
timeout --foreground "$limit" "$kasane" run -n 2 -- "$graph" bfs --debian --directed --reverse --root "$root" \
  --distances --plot "$scratch/rows.json" --json "$scratch/report" >"$scratch/log" 2>&1 || {
  status=$?
  cat "$scratch/log" >&2
  fail "status $status"
}

# figure NAME: the number, or text, of this name in the report.
figure() { sed -n "s/^ *\"$1\": \"\{0,1\}\([^\"]*[^\",]\)\"\{0,1\},*$/\1/p" "$scratch/report" | head -n 1; }

say "   $(figure vertices) packages and names that are depended on, $(figure edges) dependencies"
awk -v load="$(figure seconds_load)" -v build="$(figure seconds_build)" -v search="$(figure seconds)" 'BEGIN {
  printf "   read in %.2f s, built in %.3f s, searched in %.4f s on two ranks\n", load, build, search }'
say
sed -n 's/^ *"distance_\([0-9]*\)": \([0-9]*\),*$/\1 \2/p' "$scratch/report" >"$scratch/distances"
awk '{ at[NR] = $1; n[NR] = $2; if ($2 > most) most = $2 }
  END {
    printf "   distance   packages\n"
    for (i = 1; i <= NR; ++i) {
      bar = ""
      for (k = 0; k < 50 * n[i] / most; ++k) bar = bar "#"
      printf "   %8d %10d   %s\n", at[i], n[i], bar
    }
  }' "$scratch/distances"
printf '   %8s %10d   they depend on nothing that leads to %s\n\n' none "$(figure not_reached)" "$root"
say "   The farthest, with their distance:"
figure farthest | sed 's/, /,\n/g' | sed 's/,$//; s/^/     /'
say "   From the first of them, each needs the next:"
figure way | sed 's/, /\n/g' | sed 's/^/     /'
if "$kasane" plot "$scratch/rows.json" --output "$build/demo-graph.png" >"$scratch/plot" 2>&1; then
  say "   As a picture: $build/demo-graph.png"
else
  say "   No picture: $(cat "$scratch/plot")"
fi
say
say "demo-graph: the tree is right"
