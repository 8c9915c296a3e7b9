// SPDX-License-Identifier: Apache-2.0
#include "runtime/options.h"

#include "base/environment.h"
#include "mem/engines.h"

namespace kasane::runtime {

namespace {

OptionTable checks(Options& o) {
  OptionTable items;
  items.flag("races", "", o.check_races, "report words that two ranks changed with no fence between, and end with status 66 if there were any; slower")
      .flag("mixing", "", o.check_mixing, "report where loads and stores and direct access meet without a fence between; slower")
      .flag("heap", "", o.check_heap, "notice writes beside allocations of global memory when they are freed, and tell at the end what was not freed");
  return items;
}

OptionTable debug_items(Options& o) {
  OptionTable items;
  items.choice("relocate", "", o.relocation_off, "auto", "off", "move a page to the rank that alone uses it, or only where the program says so (kasane::own, give)")
      .choice("classification", "", o.classification, "off", "on", "at an edge between ranks drop everything that is cached, or only the pages that others have changed")
      .choice("common-stacks", "", o.common_stacks, "off", "on", "where all ranks are on one host: move a stolen thread's stack as between hosts, or let the ranks share the memory of stacks")
      .bytes("write-buffer", "", o.write_buffer_bytes, "changed memory of other ranks' pages that a rank keeps for its next release; beyond it the oldest is sent ahead; 0: nothing is", {0, 1ull << 40})
      .bytes("spare", "", o.spare_bytes, "how much of a rank's share of --dram is kept free: pages leave as soon as less is, until twice that is; 0: a 16th")
      .count("trace-events", "", o.trace_events, "events that --trace keeps of a thread, 32 bytes each; later ones are counted and lost", {1, 1 << 30})
      .count("seed", "", o.seed, "of the random order in which workers look for work");
  comm::add_session_items(items, o.session);
  return items;
}

}  // namespace

OptionTable option_table(Options& o) {
  OptionTable table;
  table.heading("Ranks and threads")
      .count("-n,--ranks", "KASANE_RANKS", o.ranks, "processes of the job, each a coherence domain")
      .count("--workers", "KASANE_WORKERS", o.workers, "workers (OS threads that run user-level threads) of each rank; 0: usable cores / ranks, at least 1", {0, 1024})
      .choice("--bind", "KASANE_BIND", o.bind_to_cores, "none", "core", "where threads run: wherever the kernel lets them, or each worker on a core of its own, the ranks of a host one after another, and what serves a rank (reading from and writing to SSD) on cores that no worker has, if there are any; for a job that has its cores to itself")
      .choice("--main", "KASANE_MAIN", o.main_in_every_rank, "first", "all", "which ranks run the program's main: the first, or all (MPI style)")
      .flag("--tag-output", "KASANE_TAG_OUTPUT", o.tag_output, "put the rank before every line of output")
      .heading("Memory")
      .bytes("--space", "KASANE_SPACE", o.space_bytes, "size of the global address space; ranks x space may be 64T at most; 0: " + bytes_text(kUsualSpace) + ", or less where ranks are so many", {0, kMaxAddressBytes})
      .bytes("--dram", "KASANE_DRAM", o.dram_bytes, "DRAM of each host for allocations of global memory, shared by its ranks; what is above it goes to the spill files; 0: three quarters of the machine's or the control group's, or with --spill none no limit")
      .text("--spill", "KASANE_SPILL", o.spill, "directories of the files for what does not fit into --dram, DIR or DIR:DIR…; auto: $TMPDIR or /var/tmp, made when first needed; none: nothing is spilled")
      .bytes("--stack", "KASANE_STACK", o.stack_bytes, "stack of a user-level thread, a multiple of 64K", {64 << 10, 64 << 20})
      .count("--slots", "KASANE_SLOTS", o.slots,
             "stacks a rank has, so threads that may be alive at once (16 times as many may have ended and wait to be joined); 0: as many as an eighth of the space holds, at most 65536", {0, 1 << 22})
      .bytes("--main-stack", "KASANE_MAIN_STACK", o.main_stack_bytes, "stack of main, which lies in the space", {64 << 10, 1ull << 30})
      .choice("--new", "KASANE_NEW", o.new_in_space, "local", "space", "where operator new on a user-level thread takes memory: each rank's own heap, or the space")
      .choice("--malloc", "KASANE_MALLOC", o.malloc_in_space, "local", "space", "where the program's malloc on a user-level thread takes memory: each rank's own heap, or the space")
      .heading("Coherence")
      .choice("--faults", "KASANE_FAULTS", o.faults, mem::engine_choices(), "how accesses to absent memory are noticed: the best that the kernel allows, userfaultfd, mprotect, or userfaultfd by a thread, so that system calls wait for such memory, too (slower; needs privileges)");
  comm::add_session_options(table, o.session)
      .heading("What a job says")
      .flag("--stats", "KASANE_STATS", o.statistics, o.statistics_every_ns, "print a table of counters for each rank at the end; with a time (--stats=10s) also say at such intervals what the job has done since: threads, faults, bytes fetched, put, spilled and read back; on standard error")
      .choice("--progress", "KASANE_PROGRESS", o.progress, {"auto", "on", "off"},
              "show on standard error how far a checkpoint is that is written or read: on a terminal, always, never")
      .text("--trace", "KASANE_TRACE", o.trace, "write when each worker stole, faulted, fetched, put, fenced and idled to this file, for Perfetto or chrome://tracing")
      .choice("--log", "KASANE_LOG", o.log_level, {"trace", "debug", "info", "warning", "error", "off"}, "least severe messages printed")
      .heading("Checks and settings for developers")
      .list("--check", "KASANE_CHECK", checks(o), "look for errors of the program: races (words that two ranks changed with no fence between), mixing (of loads and stores with direct access) and heap (writes beside allocations, and what was not freed)")
      .list("--debug", "KASANE_DEBUG", debug_items(o), "settings for developers of Kasane; docs/guide/options.md lists them");
  comm::add_engine_settings(table, o.engine);
  table.text("", "KASANE_JOB_KEY", o.job_key, "under mpirun: what no other job has, the same on all ranks, for their stack guards; kasane run draws one");
  return table;
}

Result<Options> options_from_environment() {
  Options options;
  auto table = option_table(options);
  KASANE_TRY(table.read_environment());
  return options;
}

std::string unknown_variables_text(Options options) {
  if (options.log_level == "error" || options.log_level == "off") return {};
  std::string text;
  for (const std::string& sentence : option_table(options).unknown_variables("KASANE_")) text += "kasane: warning: " + sentence + "\n";
  return text;
}

std::string spill_directories(const std::string& spill) {
  if (spill == "none") return {};
  if (spill != "auto") return spill;
  const char* temporary = variable("TMPDIR");
  return temporary != nullptr && *temporary != '\0' ? temporary : "/var/tmp";
}

}  // namespace kasane::runtime
