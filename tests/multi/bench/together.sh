#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# together.sh KASANE README: several suites in one go give their rows and one page that needs no other file,
# and say how far they are; what does not fit is refused. `reproduce` knows the rows of README's table, and
# measures one of them.
set -u
kasane=$1 readme=$2
fail() { echo "together: FAILED: $*" >&2; exit 1; }
folder=$(mktemp -d) && cd "$folder" || exit 1
trap 'rm -rf "$folder"' EXIT

"$kasane" bench all --quick --only eviction,network --out results >said 2>progress ||
  fail "$(cat said progress)"
grep -q '^1/2 eviction: 0 s so far$' progress || fail "$(cat progress)"
grep -q '^2/2 network: .* so far, some .* left$' progress || fail "$(cat progress)"
for suite in eviction network; do
  [ -s results/$suite.json ] || fail "no rows of $suite"
  grep -q "<h2 id=\"$suite\">" results/index.html || fail "the page has no $suite"
done
[ "$(grep -c '<svg' results/index.html)" = 2 ] || fail "not a figure for each suite"
! grep -oE '(src|href)="[^#"][^"]*"|@import|<script' results/index.html || fail "the page needs other files"

"$kasane" bench all --only frobnicate 2>said; [ $? -eq 2 ] || fail "a suite that is none: $(cat said)"
# A suite that fails is named, and the others are measured.
mkdir results/eviction.json.d && rm results/eviction.json && mv results/eviction.json.d results/eviction.json
"$kasane" bench all --quick --only eviction,network --out results >said 2>&1
[ $? -eq 1 ] || fail "a suite that cannot write its rows: $(cat said)"
grep -q '^kasane bench all: failed: eviction (status 1, results/eviction.txt)$' said || fail "$(cat said)"

# A link of another user in a folder where all may write is not followed.
if [ "$(id -u)" = 0 ]; then
  mkdir -m 1777 shared && ln -s "$folder/victim" shared/page.html && chown -h nobody shared/page.html
  "$kasane" plot results/network.json -o shared/page.html 2>said && fail "a link was followed"
  [ ! -e victim ] && grep -q 'Permission denied' said || fail "$(cat said)"
fi

sed -n '/^## Figures/,/^## Where/p' "$readme" | grep '^| [^|]' | sed 's/^| *//; s/ *|$//' >rows
"$kasane" bench reproduce --list | sed 's/^[0-9]*: //' >known
diff rows known >&2 || fail "README's table and together.py's differ"
"$kasane" bench reproduce --only 6 >said 2>progress || fail "$(cat said progress)"
grep -q '^  here:   [0-9.]* s;' said || fail "$(cat said)"
echo "together: $(wc -l <known) figures"
