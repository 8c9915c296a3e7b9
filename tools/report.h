// SPDX-License-Identifier: Apache-2.0
// The report of kasane info, as lines for readers and as JSON: each line has its facts beside it, so that
// both have the same content.
//
//   report.section("machine", "machine");
//   report.line("memory", "7945 MiB", {{"memory_bytes", 8330000000}});
//
// prints "  memory                   7945 MiB", and has "machine": {"memory_bytes": 8330000000} in JSON.
//
// Keys are lower-case words joined by _, with the unit at their end; a value that is unknown or unlimited is
// null.
// Thread safety: one thread.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"

namespace kasane::tools {

class Report {
 public:
  /// Begins a section with this title, and in JSON the object of this key.
  void section(std::string_view title, std::string_view key);
  /// A line, and the facts (an object) that it states, which become members of the section's. An empty name
  /// continues the line before.
  void line(std::string_view name, std::string_view text, const Json& facts = Json::object());
  /// Adds facts that other lines state in words.
  void facts(const Json& facts);

  void print_text() const;
  [[nodiscard]] const Json& json() const noexcept { return json_; }

 private:
  std::string text_;
  Json json_ = Json::object();
  std::string key_;  ///< of the section; empty: none yet
};

}  // namespace kasane::tools
