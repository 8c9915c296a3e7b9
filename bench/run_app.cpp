// SPDX-License-Identifier: Apache-2.0
#include "run_app.h"

#include <algorithm>
#include <stdexcept>

#include "command_output.h"

namespace kasane::bench {

nlohmann::json run_app(const std::string& command) {
  const std::string text = command_output(command);
  auto object = nlohmann::json::parse(text.substr(text.find('{')));
  if (!object.at("verified").get<bool>()) throw std::runtime_error(command + ": the result is wrong");
  return object;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace kasane::bench
