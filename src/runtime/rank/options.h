// SPDX-License-Identifier: Apache-2.0
// The options of a job: the one table behind the flags of `kasane run`, the KASANE_* variables and their help
// texts.
#pragma once

#include <cstdint>
#include <string>

#include "base/options.h"
#include "base/result.h"
#include "comm/engine/environment.h"
#include "comm/session/options.h"

namespace kasane::runtime {

#if defined(KASANE_SANITIZER_ADDRESS) || defined(KASANE_SANITIZER_THREAD)
inline constexpr std::uint64_t kUsualSpace = std::uint64_t{32} << 30;  // a sanitizer leaves few addresses
#else
inline constexpr std::uint64_t kUsualSpace = std::uint64_t{1} << 40;
#endif

inline constexpr std::uint64_t kMaxRanks = 1024;
/// V, A, T and every peer's M share 47 bits of address
inline constexpr std::uint64_t kMaxAddressBytes = std::uint64_t{64} << 40;

/// The size of the space where the options give none: kUsualSpace, or for many ranks the most that is
/// possible, in whole GiB.
[[nodiscard]] constexpr std::uint64_t usual_space(std::uint64_t ranks) noexcept {
  const std::uint64_t most = kMaxAddressBytes / ranks >> 30 << 30;
  return most < kUsualSpace ? most : kUsualSpace;
}

struct Options {
  std::uint64_t ranks = 1;
  std::uint64_t workers = 0;  ///< 0: usable cores / ranks, at least 1
  std::string bind = "none";  ///< where threads run (topo/bind_plan.h)
  bool bind_scattered = false;
  bool show_binding = false;
  std::uint64_t space_bytes = 0;  ///< 0: usual_space()
  std::uint64_t numa_pools = 0;   ///< no option: what the rank with the most wants (numa_memory.h)
  /// DRAM for the global memory of a host's ranks; 0: three quarters of what there is, or with spill ==
  /// "none" no limit
  std::uint64_t dram_bytes = 0;
  std::uint64_t spare_bytes = 0;  ///< of a rank's share of dram_bytes, kept free; 0: a 16th
  /// directories of the spill files; auto: $TMPDIR or /var/tmp; none: nothing is spilled
  std::string spill = "auto";
  std::uint64_t stack_bytes = 64 << 10;  ///< of a thread
  std::uint64_t slots = 0;               ///< stacks a rank; 0: 65536, or what an eighth of the space holds
  std::uint64_t main_stack_bytes = 8 << 20;
  bool main_in_every_rank = false;
  bool threads_spread = false;  ///< the program's OS threads go to all ranks (process/bound_threads.h)
  bool new_in_space = true;
  bool globals_shared = true;  ///< the program's variables are global memory (start/program_image.h)
  /// libraries whose variables are, too, "LIB,LIB…" (start/program_libraries.h)
  std::string globals_of;
  /// libraries that only compute, likewise: a thread may leave an access there (rank/program_code.h)
  std::string code_of;
  bool malloc_in_space = false;
  std::string faults = "auto";  ///< the fault engine (mem/engines.h)
  bool relocation_off = false;  ///< pages move only where the program says so
  /// ranks with copies of a page are known, and only these get notices of changes
  bool classification = true;
  /// ranks of one host share the memory of stacks, so that a stolen thread's stack stays in place (stacks.h)
  bool common_stacks = true;
  /// changed bytes that a rank keeps for the next release; 0: all
  std::uint64_t post_buffer_bytes = 64 << 10;  ///< of posts, for each rank and destination (src/posts)
  bool tag_output = false;
  bool statistics = false;
  std::uint64_t statistics_every_ns = 0;  ///< interval of rank 0's lines on the job's progress; 0: none
  std::string progress = "auto";          ///< of checkpoints, on standard error: auto, on, off
  std::string trace;                      ///< the file; empty: nothing is traced
  std::uint64_t trace_events = 1 << 20;   ///< that a thread keeps
  /// look for writes beside allocations, and report what was not freed
  bool check_heap = false;
  bool check_globals = false;     ///< report thread_local variables that threads changed
  bool check_mixing = false;      ///< report data used by both views without a fence between
  bool check_polling = false;     ///< report threads that read a plain word until another rank changes it
  bool check_threads = false;     ///< report what OS threads wait for, and their calls on other ranks
  bool check_races = false;       ///< report words that two ranks changed without a fence between
  std::uint64_t deadlock_s = 10;  ///< all threads blocked for so long: a report, and the job ends; 0: never
  std::uint64_t seed = 1;         ///< of the order in which workers look for victims
  std::string log_level = "warning";
  comm::SessionOptions session;  ///< what runs between ranks
  comm::EngineSettings engine;   ///< and which threads issue operations there
  /// of the stack guards; read before there are options (start/same_image.h); a row here makes it a known
  /// variable
  std::string job_key;
};

/// The rows, bound to the members of `options`, which must outlive the table.
OptionTable option_table(Options& options);

/// Defaults, then KASANE_* variables. An unusable value: an error that names the variable and what it
/// accepts.
Result<Options> options_from_environment();

/// A line about each KASANE_* variable of the environment that no option has; empty with --log error and off.
/// Called in the job's first process.
std::string unknown_variables_text(Options options);

/// The directories of the option --spill: "DIR" or "DIR:DIR…"; empty: none.
std::string spill_directories(const std::string& spill);

}  // namespace kasane::runtime
