#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# One case of the install tests. Exit status 77: the case cannot run here.
# Usage: install.sh prefix|make|packages|bare|subproject|symbols|python BUILD-FOLDER SOURCE-FOLDER
set -euo pipefail
case=$1 build=$2 source=$3
here=$(cd "$(dirname "$0")" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
unset KASANE_RANKS LD_LIBRARY_PATH
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

fail() { echo "install: FAILED: $*" >&2; exit 1; }

# expect PATTERN COMMAND...: what the command prints has the pattern, and it ends with 0.
expect() {
  local pattern=$1 output
  shift
  output=$(timeout 60 "$@" 2>&1) || fail "status $?: $*"$'\n'"$output"
  grep -q -- "$pattern" <<<"$output" || fail "no '$pattern' in what $* prints:"$'\n'"$output"
}

# use_it PREFIX: hello in three ways and a program of comm alone, on 1 and 4 ranks, from the package's present
# place.
use_it() {
  local prefix=$1 ranks pc run status output
  local kasane="$prefix/bin/kasane" work="$scratch/work"
  rm -rf "$work"
  "$kasane" --version
  cmake -S "$here/hello" -B "$work" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_BUILD_TYPE=Release \
    -DARRAYS_EXAMPLE="$source/examples/arrays.cpp" -DACP_EXAMPLE="$source/examples/acp_list.c" \
    -DGRAPH_EXAMPLE="$source/examples/graph.cpp" \
    >"$scratch/log" 2>&1 ||
    { cat "$scratch/log"; fail "find_package(Kasane)"; }
  cmake --build "$work" >"$scratch/log" 2>&1 || { cat "$scratch/log"; fail "building with CMake"; }
  pc=$(dirname "$(find "$prefix" -name kasane.pc)")
  export PKG_CONFIG_PATH=$pc
  "$CXX" -std=c++20 "$here/hello/hello.cpp" -o "$work/hello_pc" $(pkg-config --cflags --libs kasane)
  "$CC" -std=c11 "$here/hello/hello.c" -o "$work/hello_c_pc" $(pkg-config --cflags --libs kasane)
  "$CXX" -std=c++20 "$here/hello/hello_containers.cpp" -o "$work/hello_containers_pc" \
    $(pkg-config --cflags --libs kasane)
  "$CXX" -std=c++20 "$here/hello/hello_comm.cpp" -o "$work/hello_comm_pc" \
    $(pkg-config --cflags --libs kasane-comm)
  "$CXX" -std=c++20 "$source/examples/graph.cpp" -o "$work/hello_graph_pc" \
    $(pkg-config --cflags --libs kasane-graph)
  "$CC" -std=c11 "$here/hello/hello_attach.c" -o "$work/hello_attach_pc" \
    $(pkg-config --cflags --libs kasane-attach)
  "$CC" -std=c11 "$source/examples/acp_list.c" -o "$work/acp_list_pc" \
    $(pkg-config --cflags --libs kasane-acp)
  awk '/^```c$/ { inside = 1; next } /^```/ { inside = 0 } inside' "$source/docs/guide/acp.md" >"$work/acp.c"
  "$CC" "$work/acp.c" -o "$work/acp_pc" $(pkg-config --cflags --libs kasane-acp)
  expect "^4000 elements$" "$kasane" run -n 4 --main all -- "$work/acp_pc"
  for program in acp_list acp_list_pc; do
    expect "3000 elements of 3 ranks, 0 of them wrong" "$kasane" run -n 3 --main all -- "$work/$program"
  done
  for program in hello_attach hello_attach_pc; do
    expect "rank 0 is the last (1 ranks)" "$work/$program"
  done
  for mpi in openmpi mpich; do
    [ -n "$(find "$prefix" -name "kasane-mpi-$mpi.so")" ] && command -v mpicc.$mpi >/dev/null || continue
    mpicc.$mpi -DWITH_MPI "$here/hello/hello_attach.c" -o "$work/hello_attach_$mpi" \
      $(pkg-config --cflags --libs kasane-attach)
    expect "rank 2 is the last (3 ranks)" "$kasane" run -n 3 -- "$work/hello_attach_$mpi"
    [ -n "$(find "$prefix" -name "libarmci-$mpi.so")" ] && [ -f /usr/include/ga.h ] || continue
    (eval "$("$kasane" info --ga $mpi)"
      mpicc.$mpi "$here/../armci/ga_c.c" -o "$work/ga_$mpi" -lga-$mpi -lscalapack-$mpi -llapack -lblas \
        -larmci-$mpi -lgfortran -lm &&
        mpicc.$mpi -O3 "$here/../../../apps/ga/dgemm.c" -o "$work/dgemm_$mpi" -lga-$mpi -lscalapack-$mpi \
          -llapack -lblas -larmci-$mpi -lgfortran -lm) || fail "linking a GA program"
    expect "ga: passed on 2 processes" "$kasane" run -n 2 -- "$work/ga_$mpi"
    expect '"verified": true' "$kasane" run -n 2 --dram 12M -- "$work/dgemm_$mpi" -n 1448 -r 1
  done
  for ranks in 1 4; do
    for program in hello hello_pc; do
      expect "hello from a thread that may be anywhere, and from another ($ranks ranks)" \
        "$kasane" run -n $ranks -- "$work/$program"
    done
    for program in hello_containers hello_containers_pc; do
      expect "^a stack of 3 elements; .*bytes.*; .*there is no rank $ranks; 5 ($ranks ranks)$" \
        "$kasane" run -n $ranks -- "$work/$program"
    done
    for program in hello_c hello_c_pc; do
      expect "is 328350 ($ranks ranks)" "$kasane" run -n $ranks -- "$work/$program"
    done
    for program in hello_graph hello_graph_pc; do
      expect "4 of 6 towns are reached, over 2 roads at most, on $ranks ranks" \
        "$kasane" run -n $ranks -- "$work/$program"
    done
    for program in hello_comm hello_comm_pc; do
      expect "1 + … + $ranks = $((ranks * (ranks + 1) / 2))" "$kasane" run -n $ranks -- "$work/$program"
    done
  done
  if [ -e "$work/arrays" ] && pkg-config --exists openblas; then
    "$CXX" -std=c++20 -O2 "$source/examples/arrays.cpp" -o "$work/arrays_pc" \
      $(pkg-config --cflags --libs kasane openblas)
    for ranks in 1 4; do
      for program in arrays arrays_pc; do
        expect "product's error" "$kasane" run -n $ranks -- "$work/$program"
      done
    done
  fi
  for program in hello hello_pc hello_c hello_c_pc; do
    expect "hold between ranks" "$kasane" info "$work/$program"
  done
  expect "(1 ranks)" "$work/hello"
  # Who forgets pkg-config is told.
  "$CC" -std=c11 "$here/hello/hello.c" -o "$work/hello_c_alone" "-I$prefix/include" "-L$pc/.." \
    "-Wl,-rpath,$pc/.." -lkasane
  for run in "" "$kasane run -n 2 --"; do
    status=0
    output=$(timeout 60 $run "$work/hello_c_alone" 2>&1) || status=$?
    [ $status != 0 ] || fail "status 0 of a program without libkasane_start.a: $run"
    grep -q "pkg-config --cflags --libs kasane" <<<"$output" ||
      fail "a program without libkasane_start.a is not told what to do: $run: $output"
  done
  # What is loaded by name is found in the moved prefix, from the command and from the program's library.
  expect "(2 ranks)" "$kasane" run -n 2 --malloc space -- "$work/hello"
  expect "mpi (" "$kasane" info
  for mpi in openmpi mpich; do
    if [ -e "$(find "$prefix" -name "kasane-mpi-$mpi.so")" ] && command -v mpirun.$mpi >/dev/null; then
      expect "(2 ranks)" "$kasane" run -n 2 --transport mpi --mpi $mpi -- "$work/hello"
    fi
  done
  if "$kasane" info | grep -q '^ *ucx  *between'; then
    expect "(2 ranks)" "$kasane" run -n 2 --transport ucx -- "$work/hello"
  fi
  # The program's writable pages hold its own variables, and of ours one page, which begins a page (the
  # results of strtok and its like, src/runtime/process/static_results.h; what ranks share of libstdc++,
  # src/runtime/language/library_calls.h): no copies of libraries' objects.
  local data others
  data=$(size -A "$work/hello_c" | awk '$1 == ".data" || $1 == ".bss" { sum += $2 } END { print sum + 0 }')
  ! readelf -rW "$work/hello_c" | grep R_X86_64_COPY || fail "hello_c has copies of libraries' variables"
  others=$(nm -S -t d "$work/hello_c" |
    awk '$3 ~ /^[bBdD]$/ && $4 !~ /g_shared/ { sum += $2 } END { print sum + 0 }')
  [ "$others" -le 80 ] || fail "hello_c has $others bytes of variables beside the runtime's page"
  [ "$data" -le 8300 ] || fail "hello_c has $data bytes in .data and .bss: more than its own"
}

# use_it_in_strange_places PREFIX: a folder whose name the loader would split; what CMake and the linker say
# of what there is not.
use_it_in_strange_places() {
  local prefix=$1 place libraries say
  for place in "moved place" "moved:place"; do
    mv "$prefix" "$scratch/$place"
    libraries=$(dirname "$(find "$scratch/$place" -name libkasane_start.a)")
    "$CXX" -std=c++20 "$here/hello/hello.cpp" -o "$scratch/hello" "-I$scratch/$place/include" \
      -include kasane/errno.h -fno-inline-atomics -include kasane/atomic_calls.h -fno-plt \
      -mno-direct-extern-access -Wl,-z,now "-L$libraries" -lkasane_start -lkasane
    export LD_LIBRARY_PATH=$scratch/libraries
    ln -s "$libraries" "$LD_LIBRARY_PATH"
    if [ "$place" = "moved place" ]; then
      expect "(2 ranks)" "$scratch/$place/bin/kasane" run -n 2 --malloc space -- "$scratch/hello"
    else
      say=$("$scratch/$place/bin/kasane" run -n 2 --malloc space -- "$scratch/hello" 2>&1) &&
        fail "--malloc space in a folder with a colon"
      grep -q "cannot preload .*colon.*move the installation" <<<"$say" || fail "of a colon: $say"
    fi
    unset LD_LIBRARY_PATH
    rm "$scratch/libraries"
    mv "$scratch/$place" "$prefix"
  done
  # asked_for "WORDS" [NAME]: find_package(Kasane WORDS), what it says.
  asked_for() {
    mkdir -p "$scratch/asked"
    printf '%s\n' 'cmake_minimum_required(VERSION 3.25)' 'project(asked LANGUAGES C CXX)' \
      "find_package(${2:-Kasane} $1)" >"$scratch/asked/CMakeLists.txt"
    cmake -S "$scratch/asked" -B "$scratch/asked/build" -DCMAKE_PREFIX_PATH="$prefix" 2>&1
  }
  local words
  for words in "0.1 REQUIRED COMPONENTS kasane graph" "0.2...<1 REQUIRED COMPONENTS kasane attach" \
    "0.2...<0.3 REQUIRED"; do
    asked_for "$words" >/dev/null || fail "find_package(Kasane $words)"
    asked_for "$words" kasane >/dev/null || fail "find_package(kasane $words)"
  done
  for words in 1.0 "0.3...<1" "0.1...<0.2"; do
    asked_for "$words REQUIRED" >/dev/null && fail "find_package(Kasane $words)"
  done
  say=$(asked_for "REQUIRED COMPONENTS graphs" | tr -s '\n ' ' ') || true
  grep -q "no component graphs, but kasane, attach, acp, comm, graph, blas" <<<"$say" ||
    fail "find_package(Kasane COMPONENTS graphs): $say"
  export PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name kasane.pc)")
  "$CXX" -std=c++20 "$here/hello/hello.cpp" -o "$scratch/hello" $(pkg-config --static --cflags --libs kasane)
  expect "(1 ranks)" "$scratch/hello"
  say=$("$CXX" -static -std=c++20 "$here/hello/hello.cpp" -o "$scratch/hello" \
    $(pkg-config --static --cflags --libs kasane) 2>&1) && fail "-static"
  grep -q "linked dynamically: leave out -static" <<<"$say" || fail "of -static: $say"
}

skip() { echo "install: SKIPPED: $*"; exit 77; }

make_packages() {
  command -v dpkg-deb >/dev/null || skip "no dpkg-deb"
  cpack --config "$build/PackageInstalled.cmake" -B "$scratch/packages" >"$scratch/log" 2>&1 ||
    { tail -20 "$scratch/log"; fail cpack; }
}

case $case in
  bare)
    # A system on which nothing is but Debian: apt brings what the packages say that they need.
    [ "$(id -u)" = 0 ] || skip "a bare root needs root"
    command -v debootstrap >/dev/null || skip "no debootstrap"
    make_packages
    root="$scratch/root"
    timeout 240 debootstrap --variant=minbase bookworm "$root" >"$scratch/log" 2>&1 ||
      skip "debootstrap: $(tail -1 "$scratch/log")"
    mkdir "$root/try"
    cp "$scratch"/packages/kasane_*.deb "$scratch"/packages/libkasane-dev_*.deb "$here"/hello/* "$root/try"
    cp /etc/resolv.conf "$root/etc/" 2>/dev/null || true
    cp -r /etc/apt/apt.conf.d/. "$root/etc/apt/apt.conf.d/" 2>/dev/null || true
    cat >"$root/try/try.sh" <<'END'
set -e
cd /try
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends ./kasane_*.deb ./libkasane-dev_*.deb \
  g++ cmake make pkg-config >/dev/null
cmake -S . -B build >/dev/null && cmake --build build >/dev/null
g++ -std=c++20 hello.cpp -o hello_pc $(pkg-config --cflags --libs kasane)
cc -std=c11 hello.c -o hello_c_pc $(pkg-config --cflags --libs kasane)
for ranks in 1 4; do
  for program in build/hello build/hello_c build/hello_comm ./hello_pc ./hello_c_pc; do
    kasane run -n $ranks -- $program
  done
done
END
    timeout 400 unshare -m sh -c "mount -t proc proc '$root/proc' && mount --rbind /sys '$root/sys' && \
      mkdir -p '$root/dev/shm' && mount -t tmpfs none '$root/dev/shm' && chroot '$root' sh /try/try.sh" \
      >"$scratch/out" 2>&1 || { tail -20 "$scratch/out"; fail "in the bare root"; }
    grep -v "^debconf\|^W:" "$scratch/out"
    [ "$(grep -c '(4 ranks)' "$scratch/out")" = 4 ] && [ "$(grep -c '(1 ranks)' "$scratch/out")" = 4 ] ||
      fail "not all programs ran" ;;
  prefix)
    # hello is the README's.
    awk '/^```cpp/ { inside = 1; next } /^```/ { inside = 0 } inside' "$source/README.md" |
      cmp - "$here/hello/hello.cpp" || fail "README.md has another hello"
    for component in runtime devel apps pmix openmpi mpich ga-openmpi ga-mpich; do
      cmake --install "$build" --prefix "$scratch/first" --component $component >"$scratch/log" ||
        fail "cmake --install"
    done
    # What the README leads to is there.
    documents=$(dirname "$(find "$scratch/first" -name README.md)")
    for link in $(grep -o '](\([^)#]*\)' "$documents/README.md" | cut -c 3-); do
      case $link in *:*) ;; *) [ -e "$documents/$link" ] || fail "README.md: no $link in the prefix" ;; esac
    done
    # Manuals, and completions where each shell looks.
    for page in man/man1/kasane{,-run,-info,-bench,-plot}.1 bash-completion/completions/kasane \
      zsh/{site-functions,vendor-completions}/_kasane fish/vendor_completions.d/kasane.fish; do
      [ -s "$scratch/first/share/$page" ] || fail "no share/$page in the prefix"
    done
    # Every application is installed, and known by its name.
    for app in $(find "$build/apps" -maxdepth 1 -type f -executable -printf '%f\n'); do
      expect "^Usage: $app" "$scratch/first/bin/kasane" run -- "$app" --help
    done
    expect "value: 55" "$scratch/first/bin/kasane" run -n 2 -- fib -n 10
    use_it_in_strange_places "$scratch/first"
    mv "$scratch/first" "$scratch/moved"
    use_it "$scratch/moved" ;;
  make)
    # make install, to a place with a space.
    [ "$build" = "$source/build/release" ] || skip "make install installs build/release"
    make -C "$source" install "PREFIX=$scratch/a b" >"$scratch/log" 2>&1 ||
      { tail -20 "$scratch/log"; fail "make install"; }
    [ -x "$scratch/a b/bin/kasane" ] && [ ! -e "$scratch/a" ] || fail "make install PREFIX='/a b'"
    expect "value: 55" "$scratch/a b/bin/kasane" run -n 2 -- fib -n 10
    export PKG_CONFIG_PATH=$(dirname "$(find "$scratch/a b" -name kasane.pc)")
    eval "\"$CXX\" -std=c++20 \"$here/hello/hello.cpp\" -o \"$scratch/hello\" \
      $(pkg-config --cflags --libs kasane)"   # which puts \ before each space
    expect "(2 ranks)" "$scratch/a b/bin/kasane" run -n 2 -- "$scratch/hello" ;;
  packages)
    make_packages
    for package in kasane libkasane-dev kasane-apps kasane-openmpi kasane-mpich kasane-ga-openmpi \
      kasane-ga-mpich; do
      file=$(find "$scratch/packages" -maxdepth 1 -name "${package}_*.deb")
      case $package in *mpi*) [ -n "$file" ] || continue ;; esac   # built where this MPI is
      [ -n "$file" ] || fail "no package $package"
      info=$(dpkg-deb --info "$file")
      grep -E "^ (Package|Depends)" <<<"$info"
      if [ $package = kasane ]; then
        grep -q "Depends:.*libhwloc" <<<"$info" || fail "kasane depends on no libhwloc"
        if grep -q "Depends:.*mpi" <<<"$info"; then fail "kasane depends on an MPI"; fi
      fi
      dpkg -x "$file" "$scratch/root"
    done
    use_it "$scratch/root/usr" ;;
  subproject)
    mkdir "$scratch/parent"
    cat >"$scratch/parent/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.25)
project(parent LANGUAGES C CXX)
add_subdirectory("$source" kasane)
add_executable(hello "$here/hello/hello.cpp")
target_link_libraries(hello PRIVATE kasane::kasane)
END
    # Nothing that only tests and benches need is asked for.
    cmake -S "$scratch/parent" -B "$scratch/build" -DCMAKE_DISABLE_FIND_PACKAGE_GTest=ON \
      -DCMAKE_DISABLE_FIND_PACKAGE_TBB=ON -DCMAKE_DISABLE_FIND_PACKAGE_OpenMP=ON >"$scratch/log" 2>&1 ||
      { cat "$scratch/log"; fail "add_subdirectory"; }
    targets=$(cmake --build "$scratch/build" --target help)
    grep -q "kasane_library" <<<"$targets" || fail "no library in the parent's build"
    if grep -qE "kasane-bench|_test:|example_" <<<"$targets"; then
      fail "tests, benches or examples in the parent's build"
    fi ;;
  python)
    # The Python package as docs/guide/python.md installs it, without a network, against an installed prefix;
    # it says so without one.
    python=$(PATH=/usr/bin:$PATH command -v python3) || skip "no python3"
    "$python" -c "import numpy, pybind11, setuptools, pip, wheel" 2>/dev/null ||
      skip "no NumPy, pybind11, setuptools, wheel or pip"
    "$python" -m venv --system-site-packages "$scratch/ENV" >"$scratch/log" 2>&1 || skip "no python3-venv"
    python="$scratch/ENV/bin/python3"
    cp -r "$source/python" "$scratch/package"
    unset PYTHONPATH
    pip() {
      env PIP_DISABLE_PIP_VERSION_CHECK=1 "$scratch/ENV/bin/pip" install --no-build-isolation --no-deps \
        --no-index "$scratch/package" >"$scratch/log" 2>&1
    }
    if ! pkg-config --exists kasane-attach; then
      pip && fail "pip install without Kasane"
      grep -q "CMAKE_PREFIX_PATH=PREFIX pip install" "$scratch/log" || fail "no word on the prefix"
    fi
    for component in runtime devel openmpi mpich; do
      cmake --install "$build" --prefix "$scratch/prefix" --component $component >"$scratch/log" ||
        fail "cmake --install"
    done
    CMAKE_PREFIX_PATH="$scratch/prefix" pip || { tail -40 "$scratch/log"; fail "pip install"; }
    cd "$scratch"
    program="import kasane, os; a = kasane.full((9, 8), 2.0)
os.write(1, b'%s on %d\\n' % (str(a.sum()).encode(), kasane.ranks()))"  # a line in one piece
    expect "^144.0 on 1$" "$python" -c "$program"
    for mpi in openmpi mpich; do
      [ -n "$(find "$scratch/prefix" -name "kasane-mpi-$mpi.so")" ] && command -v mpirun.$mpi >/dev/null ||
        continue
      expect "^144.0 on 2$" mpirun.$mpi -n 2 "$python" -c "$program"
      expect "^144.0 on 2$" "$scratch/prefix/bin/kasane" run --attach --mpi $mpi -n 2 -- \
        "$python" -c "$program"
    done
    if pkg-config --exists openblas; then
      expect "^7056.0$" "$python" -c "import kasane; a = kasane.full((14, 18), 2.0)
print((a @ kasane.full((18, 7), 2.0)).sum())"
    fi
    for file in __init__.pyi py.typed; do
      [ -n "$(find "$scratch/ENV" -path "*/site-packages/kasane/$file")" ] || fail "no $file"
    done ;;
  symbols)
    library="$build/lib/libkasane.so"
    [ -e "$library" ] || skip "no shared library"
    readelf -d "$library" | grep -q 'SONAME.*libkasane\.so\.[0-9]*\.[0-9]*\]' || fail "no soname"
    shown=$(nm -D --defined-only -C "$library" | cut -d' ' -f3-)
    public='kasane_|kasane::(detail|comm)::|(vtable|typeinfo|typeinfo name) for kasane::comm::'
    public="$public|operator (new|delete)|sigaction\$|(__sysv_)?signal\$"
    public="$public|__cxa_(allocate|free)_(dependent_)?exception\$"
    # lock_calls.cpp
    public="$public|pthread_(mutex|rwlock|spin)_(try|timed|clock|un)?(rd|wr)?lock\$|pthread_create\$"
    public="$public|pthread_cond_((timed|clock)?wait|signal|broadcast)\$|pthread_(once|barrier_wait)\$"
    public="$public|sem_((try|timed|clock)?wait|post|getvalue)\$"
    public="$public|mtx_(try|timed|un)?lock\$|cnd_((timed)?wait|signal|broadcast)\$|call_once\$|thrd_create\$"
    public="$public|dup[23]\$|f?chdir\$|umask\$|(un)?setenv\$|putenv\$|setlocale\$|setrlimit(64)?\$"
    public="$public|s?rand(om)?\$|(init|set)state\$|[dlm]rand48\$|s(rand|eed)48\$|lcong48\$"
    public="$public|strtok\$|(asc|c|local|gm)time\$|inet_ntoa\$"
    public="$public|std::locale::global|put(s|w?char|char_unlocked)\$|(__)?v?w?printf(_chk)?\$"
    public="$public|pthread_key_(create|delete)\$|pthread_[gs]etspecific\$|tss_(create|delete|get|set)\$"
    public="$public|pthread_sigmask\$|sig(procmask|altstack|suspend)\$|ppoll\$|pselect\$|epoll_pwait\$"
    public="$public|posix_spawnp?\$|system\$|popen\$"
    public="$public|setvbuf\$|setbuf(fer)?\$|((quick|pthread|thrd|)_)?exit\$|_Exit\$|__cxa_atexit\$"
    public="$public|std::ios_base::sync_with_stdio"
    # stdio_calls.cpp, stream_openers.cpp
    public="$public|(un)?f?(get|put)w?c(har)?(_unlocked)?\$|f(get|put)w?s(_unlocked)?\$|(get|put)w\$"
    public="$public|f?read(_unlocked)?\$|fwrite(_unlocked)?\$|__(fgets|fread)(_unlocked)?_chk\$"
    public="$public|getline\$|(__)?getdelim\$|__(uflow|overflow)\$|f(seek|tell)o?(64)?\$|f[gs]etpos(64)?\$"
    public="$public|rewind\$|(feof|ferror|clearerr|fileno|fflush)(_unlocked)?\$|f(try|un)?lockfile\$|fwide\$"
    public="$public|__(fpending|fpurge|fbufsize|freading|fwriting)\$|(__)?v?fw?printf(_chk)?\$"
    public="$public|(__isoc(99|23)_)?v?f?w?scanf\$|f(re|d|mem)?open(64)?\$|tmpfile(64)?\$|open_memstream\$"
    public="$public|[fp]close\$|(fd)?opendir\$|readdir(64|_r)?\$|(close|rewind|seek|tell)dir\$|dirfd\$"
    # call_wrappers.cpp
    public="$public|p?(read|write)(v|64)?\$|close\$|lseek(64)?\$|ftruncate\$|fsync\$|dup\$|pipe2?\$|poll\$"
    public="$public|socket(pair)?\$|v?fork\$|epoll_create1?\$|eventfd\$|(timerfd|memfd)_create\$"
    public="$public|close_range\$|closefrom\$|fcntl(64)?\$"
    public="$public|connect\$|bind\$|accept\$|(send|recv)(to|from|msg)?\$|[lf]?stat(64)?\$|access\$|unlink\$"
    public="$public|rename\$|(mk|rm|ch)dir\$|creat\$|open(at)?(64)?\$"
    # waiting_calls.cpp
    public="$public|select\$|epoll_wait\$|accept4\$|__(read|recv|recvfrom|poll)_chk\$|flock\$"
    public="$public|wait(4|pid)?\$|(clock_)?nanosleep\$|u?sleep\$"
    public="$public|__atomic_|syscall\$|__cxa_(atexit|guard_(acquire|release|abort))\$"
    public="$public|std::__exception_ptr::exception_ptr::_M_(addref|release)\(|std::rethrow_exception\("
    # library_calls.cpp, process_calls.cpp
    public="$public|std::locale::(~?locale|operator=|_Impl::(~?_Impl|_M_install_facet)|id::_M_id)\("
    public="$public|std::_Sp_locker::|std::ios_base::xalloc|std::pmr::set_default_resource"
    public="$public|__gnu_debug::_Safe_(sequence_base::_M_get_mutex|(local_)?iterator_base::_M_detach)\("
    public="$public|std::set_(terminate|new_handler)"
    # program_threads.cpp
    public="$public|pthread_((clock|timed|try)?join(_np)?|detach|kill|sigqueue)\$|thrd_(join|detach)\$"
    public="$public|pthread_((test)?cancel|setcancel(state|type)|(mutex_init|barrier_destroy))\$"
    public="$public|(pause|sigwait(info)?|sigtimedwait)\$"
    public="$public|pthread_(getattr_np|getcpuclockid|[gs]et(affinity_np|name_np|schedparam)|setschedprio)\$"
    # mmap and its like are system calls of its own (src/base/memory_calls.cpp).
    if nm -D --undefined-only "$library" | grep -wE "mmap(64)?|munmap|mremap|madvise"; then
      fail "the library calls libc's mmap"
    fi
    strange=$(grep -vE "^($public)" <<<"$shown" || true)
    [ -z "$strange" ] || fail "the library shows: $strange"
    # libkasane_acp.so shows the calls of kasane/acp.h, and all of them.
    acp="$build/lib/libkasane_acp.so"
    [ -e "$acp" ] || fail "no libkasane_acp.so"
    declared=$(grep -ohE '\bacp_[a-z_]+\(' "$source/include/kasane/acp.h" | tr -d '(' | sort -u)
    diff <(nm -D --defined-only "$acp" | cut -d' ' -f3- | sort) - <<<"$declared" ||
      fail "libkasane_acp.so shows other names than acp.h"
    # Every function of the C header is there.
    for name in $(grep -ohE '\bkasane_[a-z_]+\(' "$source/include/kasane/kasane.h" | tr -d '(' | sort -u); do
      grep -qx "$name" <<<"$shown" ||
        grep -qE "inline.*$name\\(|define $name\\(" "$source/include/kasane/kasane.h" ||
        fail "$name is declared and not in the library"
    done ;;
  *) fail "unknown case $case" ;;
esac
echo "install: $case passed"
