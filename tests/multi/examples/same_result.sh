#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# same_result.sh NAME WITH_PTHREADS ARGUMENTS COMMAND…: the command ends with status 0 and prints the line
# "NAME: …" that the program WITH_PTHREADS prints with these arguments.
name=$1
wanted=$("$2" $3 | grep "^$name: ")
shift 3
output=$("$@" 2>&1)
status=$?
echo "$output"
[ "$status" -eq 0 ] || { echo "status $status"; exit 1; }
[ -n "$wanted" ] && echo "$output" | grep -Fqx "$wanted" || { echo "with Pthreads: $wanted"; exit 1; }
