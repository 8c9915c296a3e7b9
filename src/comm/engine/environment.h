// SPDX-License-Identifier: Apache-2.0
// The engine's option as the user of a program sets it:
//
//   KASANE_ISSUE=direct|offload   who issues operations that go over a network (docs/guide/communication.md)
//
// Thread safety: as getenv.
#pragma once

#include <string>

#include "base/options.h"
#include "base/result.h"
#include "comm/engine/engine.h"

namespace kasane::comm {

/// The engine's option as a user writes it.
struct EngineSettings {
  std::string issue;

  EngineSettings() : EngineSettings(EngineOptions{}) {}
  explicit EngineSettings(const EngineOptions& o) : issue(o.mode == Mode::direct ? "direct" : "offload") {}
  /// options, with what is set here in its place.
  [[nodiscard]] EngineOptions set_in(EngineOptions options) const;
};

/// Adds the variable, bound to settings, which must outlive the table. It has no flag.
OptionTable& add_engine_settings(OptionTable& table, EngineSettings& settings);

/// options, changed by what the environment sets. A value that cannot be used is an error that names the
/// variable, the value and what would be accepted.
Result<EngineOptions> engine_options_from_environment(const EngineOptions& options = {});

}  // namespace kasane::comm
