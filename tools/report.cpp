// SPDX-License-Identifier: Apache-2.0
#include "report.h"

#include <fmt/format.h>

#include <array>
#include <cstdio>
#include <string>

#include "base/text_table.h"

namespace kasane::tools {

void Report::section(std::string_view title, std::string_view key) {
  text_ += fmt::format("{}\n", title);
  key_ = key;
  json_[key_] = Json::object();
}

void Report::line(std::string_view name, std::string_view text, const Json& stated) {
  static const TextTable kLines({0, -24, 0});
  text_ += key_.empty() ? fmt::format("{} {}\n", name, text)
                        : kLines.line(std::array{std::string(" "), std::string(name), std::string(text)});
  facts(stated);
}

void Report::facts(const Json& stated) { (key_.empty() ? json_ : json_[key_]).update(stated); }

void Report::print_text() const { std::fputs(text_.c_str(), stdout); }

}  // namespace kasane::tools
