#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# installed.sh PROGRAM[/paged] KASANE RUN…: what an installed program packs and unpacks on several ranks has
# the bytes that it has alone, in two locales. paged: with several times as much in memory as --dram allows,
# of which a message says that it is slow.
set -eu
program=${1%/*} size=100000 expected='^$'
[ "$1" = "$program" ] || size=400000 expected='the same pages leave DRAM'
shift
folder=$(mktemp -d)
trap 'cat messages; rm -rf "$folder"' EXIT
cd "$folder"
seq -f 'line %.0f of what is packed' $size > input
case $program in
  pigz) pack='pigz -n -p 4 -c' unpack='pigz -d -c' ;;
  pbzip2) pack='pbzip2 -p4 -b3 -1 -c' unpack='pbzip2 -d -p4 -c' ;;
  xz) pack='xz -0 -T4 --block-size=500000 -c' unpack='xz -d -T4 -c' ;;
  zstd) pack='zstd -q -T4 -B600KB -c' unpack='zstd -q -d -c' ;;
esac
$pack input > alone
locale -a | grep -qx en_US.utf8 && other=en_US.UTF-8 || other=C.UTF-8
for locale in C "$other"; do
  export LC_ALL=$locale
  "$@" --preload -- $pack input > packed 2> messages
  cmp alone packed
  "$@" --preload -- $unpack < packed > unpacked 2>> messages
  cmp input unpacked
  if grep -v "$expected" messages > others; then exit 1; fi
done
