// SPDX-License-Identifier: Apache-2.0
#include "run_app.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <stdexcept>

namespace kasane::bench {

nlohmann::json run_app(const std::string& command) {
  std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen(command.c_str(), "r"), ::pclose);
  if (!pipe) throw std::runtime_error("cannot run " + command);
  std::string text;
  std::array<char, 4096> part;
  while (const std::size_t n = std::fread(part.data(), 1, part.size(), pipe.get())) text.append(part.data(), n);
  if (::pclose(pipe.release()) != 0) throw std::runtime_error(command + " failed");
  auto object = nlohmann::json::parse(text.substr(text.find('{')));
  if (!object.at("verified").get<bool>()) throw std::runtime_error(command + ": the result is wrong");
  return object;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace kasane::bench
