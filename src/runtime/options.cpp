// SPDX-License-Identifier: Apache-2.0
#include "runtime/options.h"

#include "base/environment.h"
#include "mem/engines.h"

namespace kasane::runtime {

OptionTable option_table(Options& o) {
  OptionTable table;
  table.heading("Ranks and threads")
      .count("-n,--ranks", "KASANE_RANKS", o.ranks, "processes of the job, each a coherence domain")
      .count("--workers", "KASANE_WORKERS", o.workers, "workers (OS threads that run user-level threads) of each rank; 0: usable cores / ranks, at least 1", {0, 1024})
      .choice("--bind", "KASANE_BIND", o.bind_to_cores, "none", "core", "where threads run: wherever the kernel lets them, or each worker on a core of its own, the ranks of a host one after another, and what serves a rank (reading from and writing to SSD) on cores that no worker has, if there are any; for a job that has its cores to itself")
      .choice("--main", "KASANE_MAIN", o.main_in_every_rank, "first", "all", "which ranks run the program's main: the first, or all (MPI style)")
      .flag("--tag-output", "KASANE_TAG_OUTPUT", o.tag_output, "put the rank before every line of output")
      .count("--seed", "KASANE_SEED", o.seed, "of the random order in which workers look for work")
      .heading("Memory")
      .bytes("--space", "KASANE_SPACE", o.space_bytes, "size of the global address space; ranks x space may be 64T at most; 0: " + bytes_text(kUsualSpace) + ", or less where ranks are so many", {0, kMaxAddressBytes})
      .bytes("--dram", "KASANE_DRAM", o.dram_bytes, "DRAM of each host for allocations of global memory, shared by its ranks; what is above it goes to the spill files; 0: three quarters of the machine's or the control group's, or with --spill none no limit")
      .bytes("--spare", "KASANE_SPARE", o.spare_bytes, "how much of a rank's share of --dram is kept free, so that nobody waits: pages leave as soon as less is, until twice that is; 0: a 16th")
      .text("--spill", "KASANE_SPILL", o.spill, "directories of the files for what does not fit into --dram, DIR or DIR:DIR…; auto: $TMPDIR or /var/tmp, made when first needed; none: nothing is spilled")
      .bytes("--stack", "KASANE_STACK", o.stack_bytes, "stack of a user-level thread, a multiple of 64K", {64 << 10, 64 << 20})
      .count("--slots", "KASANE_SLOTS", o.slots,
             "stacks a rank has, so threads that may be alive at once (16 times as many may have ended and wait to be joined); 0: as many as an eighth of the space holds, at most 65536", {0, 1 << 22})
      .bytes("--main-stack", "KASANE_MAIN_STACK", o.main_stack_bytes, "stack of main, which lies in the space", {64 << 10, 1ull << 30})
      .choice("--new", "KASANE_NEW", o.new_in_space, "local", "space", "where operator new on a user-level thread takes memory: each rank's own heap, or the space")
      .choice("--malloc", "KASANE_MALLOC", o.malloc_in_space, "local", "space", "where the program's malloc on a user-level thread takes memory: each rank's own heap, or the space")
      .heading("Coherence")
      .choice("--faults", "KASANE_FAULTS", o.faults, mem::engine_choices(), "how accesses to absent memory are noticed: the best that the kernel allows, userfaultfd, mprotect, or userfaultfd by a thread, so that system calls wait for such memory, too (slower; needs privileges)")
      .choice("--relocate", "KASANE_RELOCATE", o.relocation_off, "auto", "off", "move a page to the rank that alone uses it, or only where the program says so (kasane::own, give)")
      .choice("--classification", "KASANE_CLASSIFICATION", o.classification, "off", "on", "at an edge between ranks drop the pages that others have changed, or everything that is cached")
      .choice("--common-stacks", "KASANE_COMMON_STACKS", o.common_stacks, "off", "on", "where all ranks are on one host, let them share the memory of threads' stacks, so that a stolen thread's stays where it is, or move it as between hosts")
      .bytes("--write-buffer", "KASANE_WRITE_BUFFER", o.write_buffer_bytes, "changed memory of other ranks' pages that a rank keeps for its next release; beyond it the oldest is sent ahead; 0: nothing is", {0, 1ull << 40})
      .heading("What a job says")
      .flag("--stats", "KASANE_STATS", o.statistics, "print a table of counters for each rank at the end")
      .duration("--stats-every", "KASANE_STATS_EVERY", o.statistics_every_ns, "say on standard error at such intervals, 10s for instance, what the job has done since: threads, faults, bytes fetched, put, spilled and read back; 0: never", {0, 86'400'000'000'000})
      .choice("--progress", "KASANE_PROGRESS", o.progress, {"auto", "on", "off"},
              "show on standard error how far a checkpoint is that is written or read: on a terminal, always, never")
      .text("--trace", "KASANE_TRACE", o.trace, "write when each worker stole, faulted, fetched, put, fenced and idled to this file, for Perfetto or chrome://tracing")
      .count("--trace-events", "KASANE_TRACE_EVENTS", o.trace_events, "events that --trace keeps of a thread, 32 bytes each; later ones are counted and lost", {1, 1 << 30})
      .choice("--log", "KASANE_LOG", o.log_level, {"trace", "debug", "info", "warning", "error", "off"}, "least severe messages printed")
      .heading("Checks")
      .flag("--heap-check", "KASANE_HEAP_CHECK", o.heap_check, "notice writes beside allocations of global memory when they are freed, and tell at the end what was not freed")
      .flag("--check-mixing", "KASANE_CHECK_MIXING", o.check_mixing, "report where loads and stores and direct access meet without a fence between; slower")
      .flag("--check-races", "KASANE_CHECK_RACES", o.check_races, "report words that two ranks changed with no fence between, and end with status 66 if there were any; slower");
  comm::add_session_options(table, o.session);
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
