#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The stencil's checkpoints and picture.
# Usage: stencil_files.sh KASANE STENCIL RANKS
. "$(dirname "$0")/files.sh"

# On to step 12 with this number of ranks, to 25 and 40 with others: the same bits as plain steps.
run -n 200 --steps 12 --checkpoint c --every 5 || complain "the first part"
(ranks=3; run -n 200 --steps 25 -k 4 --checkpoint c --serial) || complain "the second part"
grep -q 'first_step: 12$' out.log || complain "it did not begin at step 12"
run -n 200 --steps 40 -k 1 --checkpoint c --picture p.pgm --serial ||
  complain "the third part"
grep -q 'first_step: 25$' out.log || complain "it did not begin at step 25"
[ "$(head -c 15 p.pgm | tr '\n' ' ')" = 'P5 200 200 255 ' ] || complain "no picture of 200 x 200 points"
[ "$(stat -c %s p.pgm)" = $((15 + 200 * 200)) ] || complain "the picture has $(stat -c %s p.pgm) bytes"
[ "$(tail -c 40000 p.pgm | od -An -v -tu1 -w1 | sort -u | wc -l)" -gt 200 ] ||
  complain "the picture is not grey"

refuses 'c holds the grid after step 40, beyond --steps 39' -n 200 --steps 39 --checkpoint c
run -n 200 --steps 40 --checkpoint c --serial || complain "no step to do"

run -n 201 --steps 50 --checkpoint c && complain "went on from another size"
grep -q 'holds 40804 elements; 41209 were asked for' err.log || complain "no reason for it"
run -n 20 --picture nowhere/p.pgm && complain "a picture in no directory"
grep -q 'cannot write the picture nowhere/p.pgm: No such file' err.log || complain "no reason for it"
run -n 20 --every 5 && complain "--every without --checkpoint"
exit $bad
