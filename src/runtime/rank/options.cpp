// SPDX-License-Identifier: Apache-2.0
#include "runtime/rank/options.h"

#include "base/environment.h"
#include "mem/engines.h"

namespace kasane::runtime {
namespace {

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

OptionTable checks(Options& o) {
  OptionTable items;
  items
      .flag("races", "", o.check_races,
            "Report words that two ranks change with no fence between; a job with races ends with status 66. "
            "Slower.")
      .flag("globals", "", o.check_globals,
            "Report at the end the thread_local variables of the program that threads have changed: they are "
            "a worker's, not a thread's.")
      .flag("mixing", "", o.check_mixing,
            "Report places where loads and stores and direct access meet with no fence between. Slower.")
      .flag("polling", "", o.check_polling,
            "Report threads that read a plain word of another rank's again and again, for 2 s, with no call "
            "that would let them see its change.")
      .flag("threads", "", o.check_threads,
            "Report at the end, with --threads spread, how many OS threads of the program have run on each "
            "rank, what they have waited for, and their calls that were made on other ranks.")
      .flag("heap", "", o.check_heap,
            "Detect writes beside allocations of global memory when these are freed, and report at the end "
            "what was not freed.");
  return items;
}

OptionTable debug_items(Options& o) {
  OptionTable items;
  items
      .choice("relocate", "", o.relocation_off, "auto", "off",
              "Move a page to the rank that alone uses it, or only where the program says so (kasane::own, "
              "give).")
      .choice("classification", "", o.classification, "off", "on",
              "At an edge between ranks drop everything that is cached, or only the pages that other ranks "
              "have changed.")
      .choice("common-stacks", "", o.common_stacks, "off", "on",
              "Where all ranks are on one host: move a stolen thread's stack as between hosts, or let the "
              "ranks share the memory of stacks.")
      .bytes("post-buffer", "", o.post_buffer_bytes,
             "Posts that a rank keeps for another one before it sends them (kasane::post_group). Among more "
             "than 64 ranks less, down to 16K.",
             {4 << 10, 1 << 20})
      .bytes("spare", "", o.spare_bytes,
             "The part of a rank's share of --dram that is kept free: pages leave when less is free, until "
             "twice that is. 0: a 16th.")
      .count("trace-events", "", o.trace_events,
             "Events that --trace keeps of a thread, 32 bytes each; later events are only counted.",
             {1, kGiB})
      .count("deadlock", "", o.deadlock_s,
             "Seconds after which a job whose threads are all blocked reports what each waits for, and ends "
             "with "
             "status 67. 0: it waits for ever.",
             {0, kGiB})
      .count("seed", "", o.seed, "Seed of the random order in which workers look for work.");
  comm::add_session_items(items, o.session);
  return items;
}

void add_threads(OptionTable& table, Options& o) {
  table.heading("Ranks and threads")
      .count("-n,--ranks", "KASANE_RANKS", o.ranks, "Processes of the job; each is a coherence domain.")
      .count("--workers", "KASANE_WORKERS", o.workers,
             "Workers of each rank: OS threads that run user-level threads. 0: usable cores / ranks, at "
             "least 1.",
             {0, 1024})
      .text("--bind", "KASANE_BIND", o.bind,
            "Where threads run. none: the kernel decides. core: each worker on a core of its own, and the "
            "threads that serve a rank on the cores without a worker; for a job that has its cores to "
            "itself. numa, package: each rank on the cores of one, with its memory there. Or the cores of "
            "workers: 0-3,8.")
      .choice("--map", "KASANE_MAP", o.bind_scattered, "compact", "scatter",
              "With --bind: ranks and workers that are neighbours are near each other, or spread over the "
              "NUMA nodes.")
      .flag("--show-binding", "KASANE_SHOW_BINDING", o.show_binding,
            "Print where each worker runs and where its rank's memory comes from, as the kernel says.")
      .choice("--main", "KASANE_MAIN", o.main_in_every_rank, "first", "all",
              "Which ranks run the program's main: the first, or all (MPI style).")
      .choice(
          "--threads", "KASANE_THREADS", o.threads_spread, "here", "spread",
          "Where the program's OS threads run (std::thread, pthread_create): on the rank of their creator, "
          "or spread over the ranks.")
      .flag("--tag-output", "KASANE_TAG_OUTPUT", o.tag_output, "Put the rank before every line of output.");
}

void add_memory(OptionTable& table, Options& o) {
  table.heading("Memory")
      .bytes("--space", "KASANE_SPACE", o.space_bytes,
             "Size of the global address space; ranks x space is 64T at most. 0: " + bytes_text(kUsualSpace) +
                 ", or for many ranks the most that is possible.",
             {0, kMaxAddressBytes})
      .bytes("--dram", "KASANE_DRAM", o.dram_bytes,
             "DRAM of each host for global memory, shared by its ranks; what exceeds it goes to the spill "
             "files. 0: three quarters of the machine's memory or of the control group's, or with --spill "
             "none no limit.")
      .text("--spill", "KASANE_SPILL", o.spill,
            "Directories of the files for what exceeds --dram, DIR or DIR:DIR…. auto: $TMPDIR or /var/tmp, "
            "created when first needed. none: nothing is spilled.")
      .bytes("--stack", "KASANE_STACK", o.stack_bytes, "Stack of a user-level thread, a multiple of 64K.",
             {64 << 10, 64 << 20})
      .count("--slots", "KASANE_SLOTS", o.slots,
             "Stacks of a rank, which bound the threads that are alive at once; 16 times as many may have "
             "ended and wait to be joined. 0: as many as an eighth of the space holds, at most 65536.",
             {0, 1 << 22})
      .bytes("--main-stack", "KASANE_MAIN_STACK", o.main_stack_bytes,
             "Stack of main, and of the first thread of each run; both lie in the space.", {64 << 10, kGiB})
      .choice("--globals", "KASANE_GLOBALS", o.globals_shared, "private", "shared",
              "Whether each rank has variables of its own (those of file and namespace scope, and static "
              "ones), or all ranks share the program's. With --main all each has its own.")
      .names("--globals-of", "KASANE_GLOBALS_OF", o.globals_of,
             "Libraries of the program, as ldd names them, whose variables are shared like the program's: "
             "--globals-of libmine.so,libyours.so.")
      .names(
          "--code-of", "KASANE_CODE_OF", o.code_of,
          "Libraries that only compute, such as a BLAS, as ldd names them: while a load or store there waits "
          "for a network or SSD the worker runs other threads, as in the program's own code. Not for "
          "libraries that hold locks, or keep something in thread_local variables, while they use the "
          "program's data.")
      .choice("--new", "KASANE_NEW", o.new_in_space, "local", "space",
              "Where the program's operator new allocates: in each rank's own heap, or in the space.")
      .choice("--malloc", "KASANE_MALLOC", o.malloc_in_space, "local", "space",
              "Where the program's malloc allocates: in each rank's own heap, or in the space.");
}

void add_coherence(OptionTable& table, Options& o) {
  table.heading("Coherence")
      .choice("--faults", "KASANE_FAULTS", o.faults, mem::engine_choices(),
              "How the runtime notices accesses to absent memory. auto: the best way that the kernel allows. "
              "uffd: userfaultfd. mprotect: signals. uffd-thread: userfaultfd served by a thread, so that "
              "system calls wait for such memory, too; slower, and needs privileges.");
}

void add_reports(OptionTable& table, Options& o) {
  table.heading("Reports")
      .flag("--stats", "KASANE_STATS", o.statistics, o.statistics_every_ns,
            "Print a table of counters for each rank at the end, and where the time went: by cause, and by "
            "function and line. With a time (--stats=10s) also print at such intervals what the job has "
            "done meanwhile: threads, faults, bytes fetched, put, spilled and read back. On standard error.")
      .choice("--progress", "KASANE_PROGRESS", o.progress, {"auto", "on", "off"},
              "Show on standard error the progress of a checkpoint that is written or read. auto: on a "
              "terminal.")
      .text("--trace", "KASANE_TRACE", o.trace,
            "File to which the job writes when each worker stole, faulted, fetched, put, fenced and idled, "
            "for Perfetto or chrome://tracing.")
      .choice("--log", "KASANE_LOG", o.log_level, {"trace", "debug", "info", "warning", "error", "off"},
              "Least severe messages that are printed.");
}

}  // namespace

OptionTable option_table(Options& o) {
  OptionTable table;
  add_threads(table, o);
  add_memory(table, o);
  add_coherence(table, o);
  comm::add_session_options(table, o.session);
  add_reports(table, o);
  table.heading("Checks and settings for developers")
      .list(
          "--check", "KASANE_CHECK", checks(o),
          "Detect errors of the program. races: words that two ranks change with no fence between. mixing: "
          "loads and stores and direct access with no fence between. polling: threads that wait for a plain "
          "word to change. heap: writes beside allocations, and what is not freed. globals: thread_local "
          "variables that threads change. threads: what the program's OS threads wait for, and their calls "
          "on "
          "other ranks.")
      .list("--debug", "KASANE_DEBUG", debug_items(o),
            "Settings for developers of Kasane, listed in docs/guide/options.md.");
  comm::add_engine_settings(table, o.engine);
  table.text("", "KASANE_JOB_KEY", o.job_key,
             "Under mpirun: a text that no other job has, the same on all ranks, for their stack guards. "
             "kasane run draws one.");
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
  for (const std::string& sentence : option_table(options).unknown_variables("KASANE_"))
    text += "kasane: warning: " + sentence + "\n";
  return text;
}

std::string spill_directories(const std::string& spill) {
  if (spill == "none") return {};
  if (spill != "auto") return spill;
  const char* temporary = variable("TMPDIR");
  return temporary != nullptr && *temporary != '\0' ? temporary : "/var/tmp";
}

}  // namespace kasane::runtime
