#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# read_input.sh COMMAND…: with 300 lines in a pipe, and in a file, as its standard input.
set -eu
lines=$(mktemp)
trap 'rm -f "$lines"' EXIT
seq 0 299 >"$lines"
"$@" <"$lines"
cat "$lines" | "$@"
