#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# cilksort of files against sort(1), byte for byte; and what it says to files that cannot be read or written.
# Usage: cilksort_files.sh KASANE CILKSORT RANKS
. "$(dirname "$0")/files.sh"

same_as_sort() {   # NAME: the file's lines, sorted, are those of sort(1)
  LC_ALL=C sort "$1" > expected
  run --file "$1" --out sorted --leaf 64 || complain "$1: exit status $?"
  cmp expected sorted || complain "$1: differs from LC_ALL=C sort"
}

awk 'BEGIN {
  srand(7)
  for (i = 0; i < 20000; ++i)
    print int(rand() * 1e6) (i % 9 == 0 ? " a longer line with a common beginning " i : "")
}' > words
same_as_sort words
: > empty;                                       same_as_sort empty
printf 'b\na\nno newline at the end' > unended;  same_as_sort unended
printf '\n\n\n' > blank;                         same_as_sort blank
printf 'a\0\na\na\0b\n\xff\n\x01\nabcdefgh\nabcdefgh\0\nabcdefg\n' > bytes; same_as_sort bytes
{ head -c 3000000 /dev/zero | tr '\0' y; echo; echo z; head -c 2500000 /dev/zero | tr '\0' y; echo x; } > long
same_as_sort long

# In place, as sort -o.
LC_ALL=C sort words > expected
cp words same
run --file same --out same || complain "in place: exit status $?"
cmp expected same || complain "in place: differs from sort"

refuses 'cannot read missing: No such file' --file missing --out sorted
refuses 'Is a directory' --file . --out sorted
refuses 'not a regular file' --file /dev/null
refuses 'cannot write nowhere/sorted: No such file' --file words --out nowhere/sorted
[ -w /dev/full ] && refuses 'writing /dev/full: No space left' --file words --out /dev/full
refuses '--out' --out sorted
refuses '--placement' --count 10 --placement somewhere
# Root may read everything: there somebody else tries, if the program can be reached by others.
: > secret; chmod 0 secret; chmod 711 .
other=""
[ "$(id -u)" != 0 ] || other="setpriv --reuid=65534 --regid=65534 --clear-groups"
if $other test -x "$program" && $other test -x "$kasane"; then
  as_other() {
    timeout 50 $other "$kasane" run -n "$ranks" -- "$program" --file secret > out.log 2> err.log
  }
  if as_other; then complain "accepted a file it may not read"; fi
  grep -q 'cannot read secret: Permission denied' err.log || complain "no reason for a file it may not read"
fi

# One JSON object, alone on standard output.
run --file words --json - || complain "--json -: exit status $?"
[ "$(head -c 1 out.log)" = '{' ] && [ "$(tail -n 1 out.log)" = '}' ] ||
  complain "--json -: more than one object"
for key in '"app": "cilksort"' '"verified": true' "\"ranks\": $ranks" '"lines": 20000' '"steals_remote"' \
  '"per_rank"' '"seconds"'; do
  grep -q -- "$key" out.log || complain "--json -: no $key"
done
run --file words --json nowhere/result && complain "wrote JSON to nowhere"
exit $bad
