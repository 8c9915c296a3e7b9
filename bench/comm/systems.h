// SPDX-License-Identifier: Apache-2.0
// The systems that are compared, by name: how each is started, and over what. A system is here if its player
// was built, beside this program.
//
// Thread safety: values.
#pragma once

#include <string>
#include <vector>

#include "pair.h"

namespace kasane::bench {

/// What lies between the two ranks: the host's memory, or TCP over its loopback, where every issue costs a
/// system call.
enum class Over { memory, tcp };

struct System {
  std::string name;  ///< as in the rows: kasane-shm, raw, openmpi-put …
  std::string description;
  Launch launch;
  bool ours = false;          ///< one of Kasane's
  bool limit = false;         ///< no library, but what the hardware gives
  bool one_sided = false;     ///< data and flag are put into memory: they can share a line
  bool target_works = false;  ///< its one-sided operations need the target's progress
};

/// Everything that this program knows and that is built and installed here, in the order of the report. bin:
/// the folder of the players, with a slash.
[[nodiscard]] std::vector<System> installed_systems(const std::string& bin, Over over);
/// The same over any of them, each once.
[[nodiscard]] std::vector<System> installed_systems(const std::string& bin);
/// The names of all systems, installed or not.
[[nodiscard]] std::vector<std::string> all_system_names();
/// Those of systems whose names are in wanted; all if wanted is empty. Throws std::runtime_error for a name
/// that is not here.
[[nodiscard]] std::vector<System> choose(std::vector<System> systems, const std::vector<std::string>& wanted);

}  // namespace kasane::bench
