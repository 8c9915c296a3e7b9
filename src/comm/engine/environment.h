// SPDX-License-Identifier: Apache-2.0
// The engine's options as the user of a program sets them:
//
//   KASANE_ISSUE=direct|offload|automatic   who issues operations that go over a network (docs/guide/communication.md)
//   KASANE_EXECUTORS=N                      offload: threads that issue, 1 … 64
//   KASANE_COMPLETER=1                      offload: a thread of its own completes
//   KASANE_BUSY_THREADS=N                   automatic: threads of this host that want a core to themselves; 0: not known, hence direct
//
// Thread safety: as getenv.
#pragma once

#include <cstdint>
#include <string>

#include "base/options.h"
#include "base/result.h"
#include "comm/engine/engine.h"

namespace kasane::comm {

/// Those options as a user writes them.
struct EngineSettings {
  std::string issue;
  std::uint64_t executors;
  bool completer;
  std::uint64_t busy_threads;

  EngineSettings() : EngineSettings(EngineOptions{}) {}
  explicit EngineSettings(const EngineOptions&);
  /// options, with what is set here in its place.
  [[nodiscard]] EngineOptions set_in(EngineOptions options) const;
};

/// Adds their variables, bound to settings, which must outlive the table. They have no flags.
OptionTable& add_engine_settings(OptionTable& table, EngineSettings& settings);

/// What is set there, and options where nothing is. A value that cannot be used is an error that names variable, value and what would be accepted.
Result<EngineOptions> engine_options_from_environment(const EngineOptions& options = {});

}  // namespace kasane::comm
