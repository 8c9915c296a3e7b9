# SPDX-License-Identifier: Apache-2.0
# The cases of scripts/test_cpus.sh, for tests/guest/init.sh: the programs of programs.txt, which check
# themselves.
has() { grep -qw "$1" /proc/cpuinfo; }
registers=''
for one in sse4_2 xsave xsavec avx avx2 avx512f; do
  ! has $one || registers="$registers $one"
done
echo "guest: $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1):$registers"
while read -r ranks program arguments; do
  case $ranks in
    '' | '#') continue ;;
    x*) has xsave || continue ;;
  esac
  ranks=${ranks#x}
  case $ranks in
    # by its path, since a test of a death starts itself anew
    0) run_case "$program" "/bin/$program" $arguments ;;
    *) run_case "${program}_$ranks" kasane run -n "$ranks" -- $program $arguments ;;
  esac </dev/null
done </programs.txt
