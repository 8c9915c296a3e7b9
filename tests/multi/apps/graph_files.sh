#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# graph on files and standard input; and what it says to what it cannot do: a message, and status 2.
# Usage: graph_files.sh KASANE GRAPH RANKS
. "$(dirname "$0")/files.sh"

finds() {   # PATTERN ARGUMENTS…: status 0, and the JSON has the pattern
  local pattern=$1
  shift
  run "$@" --json result.json || complain "exit status $?: $*"
  grep -Eq -- "$pattern" result.json || complain "no '$pattern' in the result of: $*"
}
refuses() {   # TEXT ARGUMENTS…: status 2, and says TEXT
  local text=$1
  shift
  run "$@"
  [ $? -eq 2 ] || complain "not status 2: $*"
  grep -q -- "$text" err.log || complain "no '$text' from: $*"
}

printf 'bash libc6\nlibc6 gcc\nbash readline\nreadline libc6\napart alone\n' > packages.names
finds '"reached": 4' bfs packages.names --root 0
finds '"root": "bash"' bfs packages.names --root 0
finds '"components": 2' cc packages.names
finds '"first": "libc6"' pr packages.names
finds '"triangles": 1' tc packages.names
finds '"reached": 1\b' bfs packages.names --directed --root 2

printf '0 1 5\n1 2 5\n0 2 20\n' > small.wel
finds '"longest": 10' sssp small.wel --root 0
for suffix in wsg graph mtx gr wel tuples; do
  finds '"edges": 3' sssp small.wel --write "again.$suffix"
  finds '"longest": 10' sssp "again.$suffix" --root 0
done
: > empty.el
printf '5 6\n3 3\n6 5\n' > odd.el   # an edge twice, a loop, and vertices without edges
for kernel in bfs sssp cc pr tc bc; do
  finds '"vertices": 0' $kernel empty.el
  finds '"loops": 1' $kernel odd.el --root 0
  finds '"duplicates": 1' $kernel odd.el
done
finds '"reached": 1\b' bfs odd.el --root 0
finds '"components": 6' cc odd.el
printf '0 1\n1 2\n' | timeout 50 "$kasane" run -n "$ranks" -- "$program" cc - > out.log 2> err.log ||
  complain "standard input"
grep -q 'components' out.log || complain "standard input"
mkfifo pipe
printf '0 1\n1 2\n' > pipe & finds '"vertices": 3' bfs pipe --format .el
finds '"reached": 4' bfs packages.names --root 0 --result parents
[ "$(sort parents | tr '\n' ' ')" = 'bash bash gcc libc6 libc6 bash readline bash ' ] || complain "--result"

printf '0 1\n1 x\n' > wrong.el
refuses 'wrong.el:2: a vertex is no number' bfs wrong.el
printf '4294967296 1\n' > far.el;     refuses 'far.el:1: vertex 4294967296 is not below' bfs far.el
printf '0 1 2\n1 2 -3\n' > less.wel;  refuses 'less.wel:2: a weight is negative' sssp less.wel
head -c 40 again.wsg > cut.wsg;      refuses 'cut.wsg: its size of 40 bytes is not that' bfs cut.wsg
cp "$program" foreign.mtx;             refuses 'foreign.mtx:1: it does not begin with' bfs foreign.mtx
printf '0 4000000000\n' > sparse.el;  refuses 'sparse.el needs [0-9]* bytes' bfs sparse.el
mkdir folder.el;                     refuses 'folder.el: Is a directory' bfs folder.el
refuses 'cannot write nowhere/r: No such file' bfs small.wel --result nowhere/r
refuses 'omit --result' tc small.wel --result r
refuses 'grid 65535 needs [0-9]* bytes' bfs --grid 65535
refuses 'scale 40 needs [0-9]* bytes' bfs --scale 40
refuses 'No such file' bfs none.el
refuses 'none of .el' bfs small.txt
refuses 'there is no vertex 9' bfs small.wel --root 9
refuses 'directed' tc small.wel --directed
refuses 'needs [0-9]* bytes' bfs --scale 31 --edge-factor 1024
refuses 'give one of' bfs
refuses 'give one of' bfs small.wel --scale 5
refuses 'no sequential elision' bfs small.wel --serial

# By name; the distances, and the way to the farthest. Names are taken for numbers where there are none.
finds '"root": "libc6"' bfs packages.names --root libc6
finds '"distance_0": 1,' bfs packages.names --root bash --distances
finds '"way": "gcc, libc6, bash"' bfs packages.names --root bash --directed --distances
finds '"way": "bash, libc6"' bfs packages.names --root libc6 --directed --reverse \
  --distances --plot far.json
finds '"not_reached": 3' bfs packages.names --root libc6 --directed --reverse --distances
grep -q '"distance": 1' far.json || complain "no plot"
refuses 'there is no vertex zsh' bfs packages.names --root zsh
refuses 'reverse' bfs packages.names --reverse
refuses 'for bfs' cc packages.names --distances

# Debian's packages, from a list in this test: versions, alternatives, architectures, fields that go on, a
# package with nothing, one that is only named, fields that look alike.
mkdir bin
cat > list <<'END'
Package: libc6
Version: 2.36
Depends: libgcc-s1

Package: libgcc-s1
Depends: gcc-12-base (= 12.2), libc6 (>= 2.35)

Package: bash
Pre-Depends: libc6 (>= 2.36), libtinfo6
Depends: base-files (>= 2.1.12) | fonts:any,
 debianutils
Suggests: bash-doc
Description: shell
 Depends: nothing

Package: apart

Package: tool
Depends: bash [amd64]
Description-md5: 0
END
printf '#!/bin/sh\n[ "$*" = dumpavail ] && cat "%s/list"\n' "$dir" > bin/apt-cache
chmod +x bin/apt-cache
usual=$PATH
PATH=$dir/bin:$PATH
finds '"vertices": 10' bfs --debian --root libc6          # the five, and those that are named only
finds '"edges": 9,' bfs --debian --directed --root libc6
finds '"duplicates": 0' bfs --debian --directed --root libc6
finds '"distance_2": 1,' bfs --debian --directed --reverse --root libc6 --distances
finds '"way": "tool, bash, libc6"' bfs --debian --directed --reverse --root libc6 --distances
finds '"components": 2' cc --debian
finds '"longest": 2' sssp --debian --directed --reverse --root libc6
: > list
refuses 'knows no package: run apt-get update' bfs --debian
printf '#!/bin/sh\nexit 100\n' > bin/apt-cache
refuses 'dumpavail failed' bfs --debian
mkdir empty only
ln -s "$(PATH=$usual command -v timeout)" only/timeout
PATH=$dir/only; run bfs --debian
status=$?
PATH=$usual
[ $status -eq 2 ] || complain "not status 2 without apt-cache"
grep -q 'needs apt-cache' err.log || complain "no message without apt-cache"

# What files include of each other: beside, from the folder, by the end of the path; what is elsewhere, in a
# comment's line or linked is no edge.
mkdir -p tree/src/deep tree/include/lib
printf '#include "near.h"\n#include <vector>\n  #  include <lib/all.h>\n// #include "far.h"\n' \
  > tree/src/a.cpp
printf '#include "deep/far.h"\n#include "../include/lib/all.h"\r\n' > tree/src/near.h
printf '#include <lib/all.h>\n#include "far.h"\n#include "gone.h"\n' > tree/src/deep/far.h
printf 'int all;\n' > tree/include/lib/all.h
printf '#include "near.h"\n' > tree/notes.txt
ln -s a.cpp tree/src/b.cpp
finds '"vertices": 4' bfs --includes tree --directed
finds '"edges": 5' bfs --includes tree --directed
finds '"loops": 1' bfs --includes tree --directed
finds '"way": "src/deep/far.h, src/near.h, src/a.cpp"' bfs --includes tree --directed --root src/a.cpp \
  --distances
finds '"distance_1": 3' bfs --includes tree --directed --reverse --root include/lib/all.h --distances
refuses 'no C or C++ file under empty' bfs --includes empty
refuses 'none: No such file' bfs --includes none
refuses 'tree/notes.txt: Not a directory' bfs --includes tree/notes.txt
refuses 'give one of' bfs --includes tree --debian
exit $bad
