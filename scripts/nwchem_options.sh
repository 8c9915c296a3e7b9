# SPDX-License-Identifier: Apache-2.0
# What nwchem.sh and nwchem_memory.sh, which read it, have in common.
folder=''
fail() { echo "$(basename "$0" .sh): $*" >&2; exit 2; }

# take_options NAMES ARGUMENT...: each option of NAMES, with its value, into the variable of its name; FOLDER.
take_options() {
  local names=" $1 "
  shift
  while [ $# -gt 0 ]; do
    case $1 in
      --help|-h) awk 'NR < 3 { next } !/^#/ { exit } { sub(/^# ?/, ""); print }' "$0"; exit 0 ;;
      -*)
        [[ $1 == --* && $names == *" ${1#--} "* ]] || fail "no such option: $1 (--help lists them)"
        [ $# -gt 1 ] || fail "$1 takes a value"
        declare -g "${1#--}=$2"
        shift 2 ;;
      *) folder=$1; shift ;;
    esac
  done
  folder=$(realpath -m "${folder:-$(dirname "$0")/../build/nwchem}")
}

# More processes than processors are allowed, and none is bound to one.
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
