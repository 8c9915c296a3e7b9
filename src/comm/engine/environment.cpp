// SPDX-License-Identifier: Apache-2.0
#include "comm/engine/environment.h"

namespace kasane::comm {
namespace {

constexpr std::uint64_t kMostExecutors = 64, kMostThreads = 1 << 20;

const char* text(Mode mode) { return mode == Mode::direct ? "direct" : mode == Mode::offload ? "offload" : "automatic"; }

}  // namespace

EngineSettings::EngineSettings(const EngineOptions& o) : issue(text(o.mode)), executors(o.executors), completer(o.separate_completer), busy_threads(o.busy_threads) {}

EngineOptions EngineSettings::set_in(EngineOptions o) const {
  o.mode = issue == "direct" ? Mode::direct : issue == "offload" ? Mode::offload : Mode::automatic;
  o.executors = static_cast<std::uint32_t>(executors);
  o.separate_completer = completer;
  o.busy_threads = static_cast<std::uint32_t>(busy_threads);
  return o;
}

OptionTable& add_engine_settings(OptionTable& table, EngineSettings& settings) {
  return table
      .choice("", "KASANE_ISSUE", settings.issue, {"direct", "offload", "automatic"}, "who issues operations that go over a network")
      .count("", "KASANE_EXECUTORS", settings.executors, "with KASANE_ISSUE=offload: threads that issue", {1, kMostExecutors})
      .flag("", "KASANE_COMPLETER", settings.completer, "with KASANE_ISSUE=offload: a thread of its own completes")
      .count("", "KASANE_BUSY_THREADS", settings.busy_threads, "with KASANE_ISSUE=automatic: threads of this host that want a core to themselves; 0: not known, hence direct", {0, kMostThreads});
}

Result<EngineOptions> engine_options_from_environment(const EngineOptions& options) {
  EngineSettings settings(options);
  OptionTable table;
  add_engine_settings(table, settings);
  KASANE_TRY(table.read_environment());
  return settings.set_in(options);
}

}  // namespace kasane::comm
