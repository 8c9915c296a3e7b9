// SPDX-License-Identifier: Apache-2.0
// Variables that a library reads from the environment while it starts, and that programs started by the job
// must not inherit.
//
// Thread safety: as setenv(): at start, before other threads read the environment.
#pragma once

#include <cstdlib>
#include <string>
#include <vector>

namespace kasane::comm {

/// The destructor unsets what set() has set. Variables of the user keep their values.
class Settings {
 public:
  Settings() = default;
  Settings(const Settings&) = delete;
  Settings& operator=(const Settings&) = delete;
  ~Settings() {
    for (const char* name : names_) ::unsetenv(name);
  }
  /// name: a literal.
  void set(const char* name, const std::string& value) {
    if (std::getenv(name) != nullptr) return;
    ::setenv(name, value.c_str(), 1);
    names_.push_back(name);
  }

 private:
  std::vector<const char*> names_;
};

}  // namespace kasane::comm
