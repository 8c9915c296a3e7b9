// SPDX-License-Identifier: Apache-2.0
#include "comm/engine/environment.h"

#include <string>

#include "base/options.h"

namespace kasane::comm {
namespace {

constexpr std::uint64_t kMostExecutors = 64, kMostThreads = 1 << 20;

const char* text(Mode mode) { return mode == Mode::direct ? "direct" : mode == Mode::offload ? "offload" : "automatic"; }

}  // namespace

Result<EngineOptions> engine_options_from_environment(const EngineOptions& options) {
  EngineOptions o = options;
  std::string mode = text(o.mode);
  std::uint64_t executors = o.executors, busy_threads = o.busy_threads;
  OptionTable table;
  table
      .choice("", "KASANE_ISSUE", mode, {"direct", "offload", "automatic"}, "who issues operations that go over a network")
      .count("", "KASANE_EXECUTORS", executors, "offload: threads that issue", {1, kMostExecutors})
      .flag("", "KASANE_COMPLETER", o.separate_completer, "offload: a thread of its own completes")
      .count("", "KASANE_BUSY_THREADS", busy_threads, "automatic: threads of this host that want a core to themselves", {0, kMostThreads});
  KASANE_TRY(table.read_environment());
  o.mode = mode == "direct" ? Mode::direct : mode == "offload" ? Mode::offload : Mode::automatic;
  o.executors = static_cast<std::uint32_t>(executors);
  o.busy_threads = static_cast<std::uint32_t>(busy_threads);
  return o;
}

}  // namespace kasane::comm
