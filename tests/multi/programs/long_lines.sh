#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# long_lines.sh COMMAND …: its lines, through a pipe that is full, are whole.
"$@" | { sleep 0.3; cat; } | awk '
  length($0) != 20000 && length($0) != 30 { wrong++ }
  { letter = substr($0, 1, 1); rest = $0; gsub(letter, "", rest); if (rest != "") wrong++ }
  END { if (NR != 400 || wrong) { print NR " lines, " wrong " wrong"; exit 1 } }'
