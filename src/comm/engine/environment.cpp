// SPDX-License-Identifier: Apache-2.0
#include "comm/engine/environment.h"

namespace kasane::comm {

EngineOptions EngineSettings::set_in(EngineOptions o) const {
  o.mode = issue == "offload" ? Mode::offload : Mode::direct;
  return o;
}

OptionTable& add_engine_settings(OptionTable& table, EngineSettings& settings) {
  return table.choice(
      "", "KASANE_ISSUE", settings.issue, {"direct", "offload"},
      "Which threads issue operations over a network: the calling threads, or a thread of the engine.");
}

Result<EngineOptions> engine_options_from_environment(const EngineOptions& options) {
  EngineSettings settings(options);
  OptionTable table;
  add_engine_settings(table, settings);
  KASANE_TRY(table.read_environment());
  return settings.set_in(options);
}

}  // namespace kasane::comm
