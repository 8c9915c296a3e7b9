#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# fails.sh REGEX COMMAND…: the command ends with a status that is not 0 and not a time-out's, and its output
# has a line that matches REGEX.
regex=$1
shift
output=$("$@" 2>&1)
status=$?
echo "$output"
if [ "$status" -eq 0 ]; then
  echo "status 0"
  exit 1
fi
echo "$output" | grep -Eq "$regex" || { echo "no line matches: $regex"; exit 1; }
