// SPDX-License-Identifier: Apache-2.0
#include "run_app.h"

#include <nlohmann/json.hpp>
#include <stdexcept>

#include "command_output.h"

namespace kasane::bench {

std::vector<double> run_app(const std::string& command, const std::vector<std::string>& figures) {
  const std::string text = command_output(command);
  std::vector<double> values;
  try {
    const auto object = nlohmann::json::parse(text.substr(text.find('{')));
    if (!object.at("verified").get<bool>()) throw std::runtime_error("the result is wrong");
    for (const std::string& path : figures) {
      const auto& found = object.at(nlohmann::json::json_pointer(path));
      for (const auto& one : found) values.push_back(one.get<double>());  // a number is a list of itself
    }
  } catch (const std::exception& e) {
    throw std::runtime_error(command + ": " + e.what());
  }
  return values;
}

}  // namespace kasane::bench
