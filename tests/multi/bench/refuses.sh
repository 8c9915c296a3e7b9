#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# refuses.sh KASANE GRAPH: what kasane bench triad and bfs say to words that they do not know (status 2),
# and to files that are given: kernels without one are left out, peers that disagree or fail are told (status
# 1).
set -u
kasane=$1 graph=$2
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
bad=0
complain() { echo "FAILED: $*"; cat out.log err.log; bad=1; }
ends() {   # STATUS TEXT ARGUMENTS…
  local status=$1 text=$2
  shift 2
  timeout 50 "$kasane" bench "$@" > out.log 2> err.log
  [ $? -eq "$status" ] || complain "not status $status: $*"
  cat out.log err.log | grep -q -- "$text" || complain "no '$text' from: $*"
}

for suite in triad bfs; do
  for jobs in 0x1 1x 2 axb 1x2x3 1x0; do ends 2 "$jobs is not RANKSxWORKERS" $suite --jobs "$jobs"; done
done
ends 2 'sizes' triad --sizes 0
ends 2 'kernels' bfs --kernels dfs
ends 2 'scale' bfs --scale 32
ends 2 'neither .sg nor .wsg' bfs graph.txt
ends 2 'No such file' bfs none.sg
ends 2 'gapbs' bfs --gapbs none

printf '0 1\n1 2\n2 3\n5 6\n' > small.el
timeout 20 "$graph" bfs small.el --write small.sg > out.log 2> err.log || complain "small.sg"
ends 0 'sssp is left out: no .wsg' bfs small.sg --kernels bfs,sssp --only kasane --jobs 1x1 --repetitions 1
grep -q '^bfs *kasane, 1 x 1' out.log || complain "no row of a given file"
printf 'not a graph' > broken.sg
ends 1 'broken.sg' bfs broken.sg --only kasane --jobs 1x1 --repetitions 1

# A peer that says what is not so, and one that fails: told, and the status says so.
mkdir lies fails
cat > lies/bfs <<'END'
#!/bin/sh
for i in $(seq 64); do echo "Trial Time: 0.001"; done
echo "BFS Tree has 3 nodes and"
END
printf '#!/bin/sh\nexit 3\n' > fails/bfs
chmod +x lies/bfs fails/bfs
for peer in lies fails; do
  ends 1 'bfs' bfs small.sg --only kasane,gapbs --gapbs $peer --jobs 1x1 --repetitions 1
done
ends 1 'gapbs, 1 thread 3' bfs small.sg --only kasane,gapbs --gapbs lies --jobs 1x1 --repetitions 1

# Nothing stays behind a run that is ended.
mkdir here
timeout -s TERM 5 "$kasane" bench bfs --scale 16 --only kasane --repetitions 1000 --dir here \
  > out.log 2> err.log
[ $? -eq 124 ] || complain "it has ended by itself"
[ -z "$(ls here)" ] || complain "left behind: $(ls here)"
exit $bad
