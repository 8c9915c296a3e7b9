#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# figures.sh KASANE CASE: runs a suite of `kasane bench` for a short time in a folder of its own, and prints
# what its rows and its figure hold.
set -u
kasane=$1 case=$2
folder=$(mktemp -d) && cd "$folder" || exit 1
trap 'rm -r "$folder"' EXIT

suite() { "$kasane" bench "$@" --quick --json rows.json; }
# drawn REGEX: what of the figure matches.
drawn() { "$kasane" plot rows.json -o figure.svg >&2 && grep -o "$1" figure.svg; }
once() { sort -u | one_line; }
one_line() { tr '\n' ' '; }
# rows EXPRESSION: in Python, of the rows.
rows() { python3 -c "import json; rows = json.load(open('rows.json')); print($1)"; }

case $case in
containers)
  suite containers --only kasane,kasane-far,kasane-all,std,tbb && drawn 'containers: [a-z]*' | once ;;
triad)
  suite triad &&
    drawn 'kasane, 2 x 1\|stream beside 2 x 1\|threads on node [0-9]*' | once &&
    rows "*sorted({(r['case'], r['ranks']) for r in rows
      if r['value'] > 0 and ('ratio' in r) == (r['system'] == 'kasane')})" ;;
bfs)
  mkdir none && suite bfs --dir . --gapbs none --kernels build,bfs,sssp,cc,pr,tc,bc 2>told &&
    grep -c 'gapbs is left out: none/.* is not there' told && grep 'graph500 is left out' told &&
    drawn 'bfs: [a-z]*' | once && find . -name 'kasane-bench*' | wc -l &&
    rows "*sorted({(r['case'], r['ranks'], r['threads']) for r in rows
      if r['system'] == 'kasane' and r['value'] > 0})" ;;
ga-*)   # under the MPI that it names
  suite ga --only "calls,patches,dgemm,${case#ga-}" &&
    drawn 'ga: [a-z-]*\|arrays = 16MiB of DRAM' | once &&
    rows "[r['limit_bytes'] < 16 << 20 for r in rows if r['system'].startswith('swap')]" ;;
stencil)
  suite stencil && drawn 'kasane, k = 10, 2 ranks' ;;
stencil-budget)   # standard output holds rows only
  "$kasane" bench stencil --quick --ranks 1 --passes 1 --dram 8M --dir /var/tmp --json - >rows.json &&
    rows "*[(r['N'], r['budget_bytes'], 'ratio' in r, r['value'] > 0) for r in rows]" &&
    drawn 'k = 10, 8M DRAM, 1 rank\|[12] grids* = 8MiB of DRAM' | one_line ;;
tier)
  suite tier --only seq-read,random-8,sort && drawn 'tier: [a-z0-9-]*' | one_line ;;
*)
  echo "figures.sh: no case $case" >&2; exit 2 ;;
esac
