#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# kmers of files against an oracle of ours and, where it is installed, jellyfish, byte for byte; its unitigs;
# and what it says to files that are wrong.
# Usage: kmers_files.sh KASANE KMERS RANKS
. "$(dirname "$0")/files.sh"
count() { run --quiet "$@"; }

same_as() {   # EXPECTED ARGUMENTS…: the histogram is that file
  local expected=$1
  shift
  count "$@" || complain "$*: exit status $?"
  cmp "$expected" out.log || complain "$*: another histogram than $expected"
  grep -q '^verified$' err.log || complain "$*: not verified"
}
same_as_jellyfish() {   # K FILE
  command -v jellyfish > /dev/null || return
  jellyfish count -C -m "$1" -s 1M -o counts.jf "$2" && jellyfish histo counts.jf > expected.jf
  same_as expected.jf -k "$1" "$2"
}

# Two sequences of many lines with repeats, lower case and Ns.
awk 'BEGIN {
  srand(5)
  for (s = 0; s < 2; ++s) {
    print ">sequence " s
    for (line = 0; line < 120; ++line) {
      text = ""
      for (i = 0; i < 60; ++i) text = text substr("ACGT", 1 + int(rand() * 4), 1)
      if (line % 40 == 7) text = repeated
      if (line == 3) repeated = text
      if (line % 50 == 9) text = tolower(text)
      if (line % 30 == 11) text = substr(text, 1, 20) "N" substr(text, 22)
      print text
    }
  }
}' > two.fa
for k in 3 5 21 31; do
  python3 "$here/kmers_oracle.py" $k two.fa > expected.$k || complain "the oracle for $k"
  same_as expected.$k -k $k two.fa --serial
  same_as_jellyfish $k two.fa
done

# The same text in other clothes.
sed 's/$/\r/' two.fa > crlf.fa;                                            same_as expected.21 crlf.fa
{ head -c 5000 two.fa | gzip; tail -c +5001 two.fa | gzip; } > two.fa.gz;  same_as expected.21 two.fa.gz
awk '/^>/ { printf "%s%s\n", (NR == 1 ? "" : "\n"), $0; next } { printf "%s", $0 }' two.fa > unended.fa
same_as expected.21 unended.fa
same_as_jellyfish 21 crlf.fa
awk '/^>/ { next } { print "@" NR "\n" $0 "\n+\n@" substr($0, 2) }' two.fa > reads.fq  # qualities like names
awk '/^>/ { next } { print ">" NR "\n" $0 }' two.fa > reads.fa
python3 "$here/kmers_oracle.py" 21 reads.fa > expected.reads
same_as expected.reads reads.fq
same_as_jellyfish 21 reads.fq
awk '/^>/ { next } { print "@\n" substr($0, 1, 25) "\n" substr($0, 26) "\n+x\n" substr($0, 1, 40) "\n" \
  substr($0, 41) }' two.fa > lines.fq
same_as expected.reads lines.fq
"$kasane" run -n "$ranks" -- "$program" --quiet - < reads.fq > out.log 2> err.log || complain "standard input"
cmp expected.reads out.log || complain "standard input: another histogram"
cat two.fa reads.fa > both.fa
python3 "$here/kmers_oracle.py" 21 both.fa > expected.both
same_as expected.both two.fa reads.fq
: > empty; : > expected.empty;                                             same_as expected.empty empty
{ echo '>many'; head -c 30000 /dev/zero | tr '\0' a; echo; } > many.fa
same_as_jellyfish 21 many.fa
python3 "$here/kmers_oracle.py" 21 many.fa > expected.many;                same_as expected.many many.fa

# The genome of E. coli, if it is installed: its beginning.
genome=/usr/share/doc/bowtie/examples/genomes/NC_008253.fna.gz
if [ -r $genome ]; then
  gzip -dc $genome | head -n 4000 > coli.fa
  same_as_jellyfish 21 coli.fa
fi

# Reads are the same on any number of ranks, and written as they are counted.
count two.fa --coverage 20 --errors 0.02 --write-reads simulated.fq --seed 3 || complain "reads"
mv out.log expected.simulated
same_as expected.simulated simulated.fq
cp simulated.fq mine.fq
"$kasane" run -n 3 -- "$program" --quiet two.fa --coverage 20 --errors 0.02 --write-reads simulated.fq \
  --seed 3 > out.log 2> err.log || complain "reads on three ranks"
cmp mine.fq simulated.fq || complain "other reads on three ranks"
[ "$(wc -l < simulated.fq)" = $((4 * 2880)) ] || complain "$(wc -l < simulated.fq) lines of reads"

# Unitigs: of the sequences, of many branches, of a circle, of reads with errors.
unitigs() {   # K LEAST FILE ARGUMENTS…
  local k=$1 least=$2 file=$3
  shift 3
  count -k "$k" "$file" --unitigs unitigs.fa --least "$least" "$@" ||
    complain "unitigs of $file: exit status $?"
  python3 "$here/kmers_oracle.py" "$k" "$file" unitigs.fa "$least" || complain "unitigs of $file, k = $k"
}
unitigs 21 1 two.fa --check
unitigs 5 1 two.fa
unitigs 7 2 two.fa
{ echo '>circle'; sed -n 2,8p two.fa | tr -d '\n'; sed -n 2p two.fa; } > circle.fa
unitigs 31 1 circle.fa --check
grep -q circular unitigs.fa || complain "no circle"
{ awk 'NR % 4 == 1 { print ">" NR } NR % 4 == 2' simulated.fq; } > simulated.fa
unitigs 15 3 simulated.fa
count two.fa --coverage 30 --unitigs unitigs.fa --check || complain "unitigs of reads without errors"

# The spectrum.
count two.fa --plot rows.json --histogram file || complain "the rows of a plot"
cmp expected.21 file || complain "--histogram: another one"
[ -s out.log ] && complain "--histogram: something on standard output"
python3 -c 'import json
rows = json.load(open("rows.json"))
assert {"suite", "case", "system", "value", "unit", "multiplicity"} <= set(rows[0]), rows[0]
assert {r["multiplicity"]: r["value"] for r in rows}[1] == int(open("file").readline().split()[1])' ||
  complain "the rows of a plot"
count two.fa --json - --coverage 2 || complain "--json -: exit status $?"
python3 -c 'import json
j = json.load(open("out.log"))
assert j["app"] == "kmers" and j["verified"] and j["result"]["distinct"] > 0, j' || complain "--json -"

refuses 'cannot read missing: No such file' missing
refuses 'Is a directory' .
printf 'ACGT\n' > plain;                         refuses 'plain, line 1: neither FASTA' plain
printf '@a\nACGT\nACGT\n@b\n' > no_plus;         refuses 'no_plus, line 4: .* expected +' no_plus
printf '@a\nACGT\n+\nIII' > short;               refuses 'short, line 4: the file ends within' short
printf '@a\nACGT\n+\nIIIII\n' > long;            refuses 'long, line 4: 5 qualities for 4 bases' long
printf '@a\nACGT\n+\nIIII\n>b\nACGT\n' > mixed;  refuses "mixed, line 5: expected a record's name" mixed
head -c $(($(stat -c %s two.fa.gz) - 9)) two.fa.gz > cut.gz
refuses 'cut.gz: the compressed data ends too early' cut.gz
{ head -c 100 two.fa.gz; head -c 400 two.fa; tail -c +500 two.fa.gz; } > broken.gz
refuses 'broken.gz: damaged' broken.gz
timeout 100 "$kasane" run -n "$ranks" --space 64M -- "$program" --quiet --random 6000000 > out.log 2> err.log
[ $? = 1 ] || complain "no memory: not exit status 1"
grep -q 'kmers: .*rank .* has no .* bytes' err.log || complain "no reason where memory does not suffice"
refuses 'even' -k 20 two.fa
refuses '-k' -k 33 two.fa
printf '>a\nACGT\n' > tiny.fa;                   refuses 'fewer than a read' tiny.fa --coverage 1
refuses 'coverage' two.fa --errors 0.1
refuses 'without --errors' two.fa --coverage 2 --errors 0.1 --check
refuses 'only once' - --repeat 2
refuses 'cannot write nowhere/u: No such file' two.fa --unitigs nowhere/u
[ -w /dev/full ] && refuses 'writing /dev/full: No space left' two.fa --unitigs /dev/full
exit $bad
