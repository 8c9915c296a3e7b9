#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds NWChem from Debian's source package against Debian's Global Arrays, links it with an installed
# Kasane's libarmci and, of the same objects, with armci-mpi, and runs tests of NWChem's own on both.
# usage: nwchem.sh [OPTION]... [FOLDER]
#   FOLDER          where it is built, 3 GB (default: build/nwchem). Each step that was done there is kept
#   --prefix DIR    where Kasane is installed (default: that of the kasane in the PATH)
#   --mpi NAME      openmpi (default) or mpich
#   --modules LIST  of NWChem (default: what the tests need; 'all' with TCE takes some hours more)
#   --tests LIST    folders of NWChem's QA/tests (default: 32 of less than a minute; '' for none)
#   --ranks N       of each test (default: 2)
#   --jobs N        compilers at a time (default: the processors)
#   OPTIMIZE=-O1    in the environment: of what NWChem optimizes, in place of -O2
# It installs nothing: what it needs of Debian it names. Status 1: a test on Kasane went otherwise than on
# armci-mpi.
set -euo pipefail

mpi=openmpi ranks=2 jobs=$(nproc) prefix=''
modules='nwdft driver mp2_grad ccsd rimp2'
tests='h2o_opt c2h4 autosym h2mp2 h2o hess_h2o prop_h2o geom_zmatrix rimp2_ne rimp2_he small_intchk'
tests="$tests tagcheck testtab h2o_dk h2s_finite startag dft_he2+ dft_meta dft_bsse vectors_rotate"
tests="$tests sad_ch3hf h2o_diag_to_cg h2o_cg_opt h2o_cg_opt_ub3lyp dft_ozone scf_feco5 dft_li2freq be auh2o"
tests="$tests h2o-b3lyp-disp mp2_scs_n2 n2_ccsd"
limit=600   # seconds until a test counts as hung

say() { echo "== $(date +%T) $*"; }
. "$(dirname "$0")/nwchem_options.sh"
take_options 'prefix mpi modules tests ranks jobs' "$@"
case $mpi in openmpi|mpich) ;; *) fail "--mpi takes openmpi or mpich, not $mpi" ;; esac
kasane=${prefix:+$prefix/bin/}kasane
command -v "$kasane" >/dev/null || fail "there is no $kasane: make install PREFIX=DIR, then --prefix DIR"
variables=$("$kasane" info --ga "$mpi") || fail "this Kasane has no libarmci for $mpi"

# What Debian's package of NWChem is built with, as far as these modules need it, and its basis sets.
architecture=$(dpkg-architecture -qDEB_HOST_MULTIARCH 2>/dev/null) || fail "apt-get install dpkg-dev"
missing=''
is_there() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }
for package in csh gfortran make patch perl libarmci-mpi-dev libglobalarrays-dev "lib$mpi-dev" \
  "libscalapack-$mpi-dev" nwchem-data; do
  is_there "$package" || missing+=" $package"
done
for library in blas lapack; do   # of whichever package
  [ -e "/usr/lib/$architecture/lib$library.so" ] || missing+=" lib$library-dev"
done
command -v "mpirun.$mpi" >/dev/null || missing+=" ${mpi/openmpi/openmpi-bin}"
[ -z "$missing" ] || fail "apt-get install --no-install-recommends$missing"

# The source package, by a list of sources in FOLDER that names the system's own archive.
mkdir -p "$folder/apt/lists/partial" "$folder/download"
source=$folder/$mpi
if [ ! -e "$source/src/config/makefile.h" ]; then
  if ! ls "$folder"/download/nwchem_*.dsc >/dev/null 2>&1; then
    say "Debian's source package of nwchem (190 MB)"
    system=$(. /etc/os-release && echo "$ID")   # debian, ubuntu: so are their keyrings and Origins named
    target="[signed-by=/usr/share/keyrings/$system-archive-keyring.gpg] "'$(REPO_URI) $(RELEASE) $(COMPONENT)'
    apt-get indextargets --format "deb-src $target" 'Created-By: Packages' "Origin: ${system^}" | sort -u \
      >"$folder/apt/sources.list"
    apt=(apt-get -qq -o "Dir::Etc::SourceList=$folder/apt/sources.list" -o Dir::Etc::SourceParts=/dev/null
         -o "Dir::State::Lists=$folder/apt/lists" -o APT::Sandbox::User=)
    (cd "$folder/download" && "${apt[@]}" update && "${apt[@]}" source --download-only nwchem) \
      >"$folder/log" 2>&1 ||
      { tail -5 "$folder/log" >&2; fail "no source from the archive; lay its files into $folder/download"; }
  fi
  rm -rf "$source.new"
  dpkg-source --no-check -x "$folder"/download/nwchem_*.dsc "$source.new" >"$folder/log" 2>&1 ||
    { tail -5 "$folder/log" >&2; fail "dpkg-source"; }
  # Compilers side by side; no gigabytes of what a debugger reads; each question to the shell is asked once.
  sed -E -i -e '/^ *MAKEFLAGS = -j 1 --no-print-directory/d' -e 's/-g -O2/-O2/' \
    -e 's/^( *[A-Za-z_0-9]+) *=( *\$\(shell)/\1 :=\2/' "$source.new/src/config/makefile.h"
  mv "$source.new" "$source"
fi

# The variables of the package's rules. Its Global Arrays has 8-byte integers, BLAS those of 4.
export NWCHEM_TOP=$source NWCHEM_TARGET=LINUX64 NWCHEM_MODULES=$modules NWCHEM_LONG_PATHS=y LARGE_FILES=TRUE
export BLAS_SIZE=4 SCALAPACK_SIZE=4 USE_64TO32=y USE_SCALAPACK=y HAS_BLAS=y FC=gfortran
export BLAS_LIB=-lblas LAPACK_LIB=-llapack BLASOPT='-lblas -llapack' SCALAPACK=-lscalapack-$mpi
export USE_MPI=y USE_MPIF=y USE_MPIF4=y
export MPICC=mpicc.$mpi MPIF77=mpif77.$mpi MPIF90=mpif90.$mpi MPIFC=mpifort.$mpi
export MPI_LIB=/usr/lib/$architecture ARMCI_NETWORK=MPI-PT EXTERNAL_GA_PATH=/usr/lib/$architecture/ga/$mpi
MPI_INCLUDE=$(mpicc.$mpi -show | tr ' ' '\n' | sed -n 's/^-I//p' | head -n 1)
LIBMPI=$(mpifort.$mpi -show | tr ' ' '\n' | grep '^-[lL]' | tr '\n' ' ')
export MPI_INCLUDE LIBMPI
makes=(make -C "$source/src" FDEBUG=-O0 "FOPTIMIZE=${OPTIMIZE:--O2} -fno-aggressive-loop-optimizations")

run_make() {   # LOG TARGET...
  local log=$folder/$1
  shift
  "${makes[@]}" "$@" >"$log" 2>&1 || { tail -20 "$log" >&2; fail "make $*: see $log"; }
}
programs=$source/bin/$NWCHEM_TARGET
if [ "$(cat "$source/built" 2>/dev/null)" != "$modules" ]; then
  say "NWChem's modules $modules: log in $folder/$mpi.log"
  run_make config.log nwchem_config
  [ -e "$source/src/64_to_32" ] || run_make convert.log 64_to_32
  find "$source/src" \( -name include_stamp -o -name dependencies \) -delete
  run_make "$mpi.log" "-j$jobs"
  mv "$programs/nwchem" "$programs/nwchem.armci-mpi"
  echo "$modules" >"$source/built"
fi
say "the same objects with Kasane's libarmci"
(eval "$variables"; run_make link.log nwchem_link)
mv "$programs/nwchem" "$programs/nwchem.kasane"
readelf -d "$programs/nwchem.kasane" | grep -q "NEEDED.*libarmci-$mpi.so" ||
  fail "$programs/nwchem.kasane needs no libarmci-$mpi.so: it was linked with armci-mpi"
say "$programs/nwchem.kasane, and beside it nwchem.armci-mpi"

[ -n "$tests" ] || exit 0
export MPIRUN_PATH=/usr/bin/mpirun.$mpi
results=$folder/results
mkdir -p "$results"
say "tests of NWChem's on $ranks processes: outputs in $results"
cd "$source/QA"
count=0 right=0 wrong=0 running=''
trap '[ -z "$running" ] || kill "$running"' EXIT   # timeout tells the processes of the test
for test in $tests; do
  declare -A verdict=() seconds=()
  name=$(basename "$test")
  for library in kasane armci-mpi; do
    rm -rf testoutputs
    before=$SECONDS
    verdict[$library]='not as the reference'
    NWCHEM_EXECUTABLE=$programs/nwchem.$library timeout "$limit" ./runtests.mpi.unix procs "$ranks" "$test" \
      >"$results/$name.$library.log" 2>&1 </dev/null &
    running=$!
    wait "$running" && verdict[$library]='as the reference' || true
    running=''
    seconds[$library]=$((SECONDS - before))
    cp "testoutputs/$name.out" "$results/$name.$library.out" 2>/dev/null || true
    [ -s "testoutputs/$name.out.nwparse" ] || verdict[$library]='no result'
    cp "testoutputs/$name.out.nwparse" "$results/$name.$library" 2>/dev/null || : >"$results/$name.$library"
  done
  same='as on armci-mpi'
  cmp -s "$results/$name.kasane" "$results/$name.armci-mpi" || same='OTHER than on armci-mpi'
  [ "${verdict[kasane]}" = "${verdict[armci-mpi]}" ] || same="OTHER than on armci-mpi"
  [ "${verdict[kasane]}" != 'no result' ] || same='nothing to compare'
  count=$((count + 1))
  [ "$same" = 'as on armci-mpi' ] || wrong=$((wrong + 1))
  [ "${verdict[kasane]}" != 'as the reference' ] || right=$((right + 1))
  printf '   %-20s %-22s %-24s %3d s, armci-mpi %3d s\n' "$test" "${verdict[kasane]}" "$same" \
    "${seconds[kasane]}" "${seconds[armci-mpi]}"
done
say "$count tests: $right as NWChem's reference, $((count - wrong)) as on armci-mpi"
[ "$wrong" = 0 ]
