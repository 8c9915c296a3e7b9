# SPDX-License-Identifier: Apache-2.0
# The few commands of the house; CMake does the work (CMakePresets.json). `make help` lists them.
#   PRESET=release|debug|asan|tsan   which build (results in build/PRESET)
#   JOBS=N                           compilers and tests at a time
#   CI=1                             warnings are errors
#   PREFIX=/usr/local                where make install puts it
#   FAULTS=1000 SEED=1               of make chaos
#   TIME=60                          seconds of each fuzzer of make fuzz
#   PYTHONS=found                    of make wheel, beside the system's: 3.10 to 3.13 if found, or names
PRESET ?= release
JOBS   ?= $(shell nproc)
CI     ?= 0
PREFIX ?= /usr/local
FAULTS ?= 1000
SEED   ?= 1
TIME   ?= 60
PYTHONS ?= found

ifeq ($(CI),1)
CONFIGURE := -DKASANE_WERROR=ON
endif

# What install and demo do not need.
PROGRAMS_OFF = -DKASANE_BUILD_TESTS=OFF -DKASANE_BUILD_BENCH=OFF -DKASANE_BUILD_EXAMPLES=OFF

# What make coverage builds with gcov beside the libraries: tests that contain the layers themselves, and
# programs of users with most of the public headers. Other programs are release's, with coverage's library.
COVERED_PROGRAMS ?= kasane_command containers_test containers_kinds algorithm_test array_test api_test \
  graph_test graph stress_drf stress_relocate stress_sim armci_calls_openmpi armci_oracle_openmpi comm_test \
  collectives_test dsm_test engine_test mpi_test mpi_engine_test mpi_contract_test pages_test \
  sched_multi_test session_fork_test session_program ucx_test
COVERED_UNITS ?= (base|comm|comm_[a-z]+|dsm|gas|mem|mpi|runtime|sched|topo|traps|ult|ult_sync)/ \
  checkpoint/checkpoint_(file|faults) fuzz/ containers/containers_(test|kinds)/ algorithm/ \
  arrays/array_test api/api_test graph/graph_test apps/graph/ armci/(calls|oracle|errors)/openmpi pages/ \
  stress/stress_(sim|drf/|relocate) ucx/ucx_test
COVERED_JOBS ?= acp anywhere api arrays atomics attach checkpoint cluster comm_session containers deadlock \
  examples fairness globals heap held_mutex hosts launch malloc misses mixing moving numa pmix polling \
  preload private_memory programs python races settings signals spread start stats stress system_calls team \
  tiers trace trust
space := $(subst ,, )

# Our own sources, for format and tidy.
SOURCES = $(shell git ls-files '*.h' '*.hpp' '*.cpp' '*.c')

.PHONY: build install deb wheel test test-long test-rare test-numa test-cpus demo demo-graph docs site \
  soak chaos fuzz coverage nwchem format format-check tidy help dependencies

build: dependencies ## build everything of PRESET
	cmake --preset $(PRESET) $(CONFIGURE)
	cmake --build build/$(PRESET) -j $(JOBS)

install: ## what make built of release, under PREFIX (/usr/local): library, headers, command
	@[ -e build/release/build.ninja ] || cmake --preset release $(PROGRAMS_OFF)
	cmake --build build/release -j $(JOBS) --target kasane_installed
	for part in runtime devel apps pmix openmpi mpich ga-openmpi ga-mpich; do \
	  cmake --install build/release --prefix "$(PREFIX)" --component $$part || exit; \
	done

deb: ## Debian packages of what make install installs, and of Python's, in build/release/deb
	@scripts/install-dependencies.sh --packages
	@[ -e build/release/build.ninja ] || cmake --preset release $(PROGRAMS_OFF)
	cmake --build build/release -j $(JOBS) --target kasane_deb
	@ls -1 build/release/deb/*.deb

wheel: dependencies ## a wheel in build/wheel that needs no compiler and no prefix, for all PYTHONS
	@[ -e build/release/build.ninja ] || cmake --preset release $(PROGRAMS_OFF)
	cmake --build build/release -j $(JOBS) --target kasane_installed kasane_python
	/usr/bin/python3 python/wheel.py build/release build/release/python/kasane/_core.*.so build/wheel $(PYTHONS)

test: ## unit and simulator tests and programs of one rank under tsan, then the quick tests of release
	scripts/test.sh quick $(JOBS) $(CI)

test-long: ## the same under asan, then the long tests: all ranks, networks, fault engines and sizes
	scripts/test.sh long $(JOBS) $(CI)

test-rare: ## what repeats under the second MPI what the long tests do under the first
	scripts/test.sh rare $(JOBS) $(CI)

test-numa: build ## memory of NUMA nodes, in an emulated machine that has three: 2 minutes
	scripts/test_numa.sh build/$(PRESET)

test-cpus: build ## programs on emulated processors: without AVX, with AVX2, with all that QEMU has: 8 minutes
	scripts/test_cpus.sh build/$(PRESET)

demo: ## build two programs and sort: a word list, 10 M keys on ranks and workers, and more than memory holds
	@scripts/install-dependencies.sh
	@[ -e build/release/build.ninja ] || cmake --preset release $(PROGRAMS_OFF)
	cmake --build build/release -j $(JOBS) --target kasane_command cilksort
	scripts/demo.sh build/release

demo-graph: ## build a program and search: how far every package of Debian is from libc6
	@scripts/install-dependencies.sh
	@[ -e build/release/build.ninja ] || cmake --preset release $(PROGRAMS_OFF)
	cmake --build build/release -j $(JOBS) --target kasane_command graph
	scripts/demo_graph.sh build/release

soak: build ## cilksort and nqueens 300 times on 4 ranks x 2 workers: minutes
	cmake --build build/$(PRESET) --target soak

chaos: ## programs while ranks are killed and stopped, the disk fills, messages wait: FAULTS=1000 SEED=1
	nice -n 10 python3 scripts/chaos.py build/$(PRESET) --faults $(FAULTS) --seed $(SEED)

fuzz: ## what reads strangers' bytes, by libFuzzer (clang 19): TIME=60 seconds each
	@scripts/install-dependencies.sh --fuzz
	cmake --preset fuzz
	cmake --build build/fuzz -j $(JOBS) --target kasane_fuzzers
	scripts/fuzz.sh $(TIME)

coverage: dependencies ## which lines of src and include the quick tests run: the bar is 85 %
	cmake --preset release
	cmake --build build/release -j $(JOBS) --target kasane_quick_tests
	cmake --preset coverage
	cmake --build build/coverage -j $(JOBS) --target kasane_libraries kasane_sanitized_tests $(COVERED_PROGRAMS)
	find build/coverage -name '*.gcda' -delete
	-KASANE_GLOBALS=private ctest --test-dir build/coverage -j $(JOBS) -LE 'long|rare' \
	  -R '^($(subst $(space),|,$(strip $(COVERED_UNITS))))'
	-LD_LIBRARY_PATH=$(CURDIR)/build/coverage/lib \
	  ctest --test-dir build/release -j $(JOBS) -LE 'long|rare' \
	  -R '^($(subst $(space),|,$(strip $(COVERED_JOBS))))/'
	scripts/coverage.py build/coverage --least 85

nwchem: ## Debian's NWChem on PREFIX's libarmci and on armci-mpi, tests of its own on both: hours of compiling
	scripts/nwchem.sh --prefix "$(PREFIX)" --jobs $(JOBS) build/nwchem

site: ## pages of guide, design and the reference of the headers, with a search, in build/site/index.html
	@scripts/install-dependencies.sh --site
	/usr/bin/python3 docs/site/site.py build/site

docs: ## write docs/guide/options.md from the table of options
	cmake --build build/$(PRESET) -j $(JOBS) --target kasane_command
	build/$(PRESET)/bin/kasane run --help-markdown >docs/guide/options.md

format: ## rewrite the sources by .clang-format
	@scripts/install-dependencies.sh --tests
	clang-format-19 -i $(SOURCES)

format-check: ## fail if a source differs from .clang-format (make test does this, too)
	@scripts/install-dependencies.sh --tests
	@clang-format-19 --dry-run -Werror $(SOURCES)

tidy: dependencies ## clang-tidy over every source of PRESET's build
	@scripts/install-dependencies.sh --tools
	cmake --preset $(PRESET) -B build/tidy -DKASANE_QUICK_BUILD=OFF
	scripts/tidy.sh build/tidy $(JOBS)

dependencies:
	@scripts/install-dependencies.sh --tests

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(firstword $(MAKEFILE_LIST)) | expand -t 16
