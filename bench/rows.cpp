// SPDX-License-Identifier: Apache-2.0
#include "rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <stdexcept>
#include <tuple>

#include "base/json.h"
#include "base/text_table.h"
#include "median.h"

namespace kasane::bench {

std::vector<Row> medians(const std::vector<Row>& rows) {
  std::vector<Row> kept;
  std::vector<std::vector<double>> values;
  for (const Row& row : rows) {
    const auto same = [&](const Row& k) {
      return std::tie(k.case_, k.system, k.ranks, k.threads, k.bytes, k.unit) ==
             std::tie(row.case_, row.system, row.ranks, row.threads, row.bytes, row.unit);
    };
    const auto found = std::find_if(kept.begin(), kept.end(), same);
    const auto i = static_cast<std::size_t>(found - kept.begin());
    if (found == kept.end()) {
      kept.push_back(row);
      values.emplace_back();
    } else {
      kept[i].repetitions += row.repetitions;
    }
    values[i].push_back(row.value);
  }
  for (std::size_t i = 0; i < kept.size(); ++i) kept[i].value = median(values[i]);
  return kept;
}

void print(const std::vector<Row>& rows) {
  const TextTable table({-20, -24, 5, 7, 8, 12, -4});
  std::fputs(
      table.line(std::array<std::string, 7>{"case", "system", "ranks", "threads", "bytes", "median", "unit"})
          .c_str(),
      stdout);
  for (const Row& row : rows) {
    const std::array<std::string, 7> cells{row.case_,
                                           row.system,
                                           std::to_string(row.ranks),
                                           std::to_string(row.threads),
                                           std::to_string(row.bytes),
                                           fmt::format("{:.3f}", row.value),
                                           row.unit};
    std::fputs(table.line(cells).c_str(), stdout);
  }
}

std::FILE* table_file(const std::string& json) { return json == "-" ? stderr : stdout; }

void write(const std::string& path, const std::vector<Row>& rows) {
  if (path.empty()) return;
  Json list = Json::array();
  for (const Row& row : rows) {
    Json json;
    json["suite"] = row.suite;
    json["case"] = row.case_;
    json["system"] = row.system;
    json["ranks"] = row.ranks;
    json["threads"] = row.threads;
    json["bytes"] = row.bytes;
    json["value"] = row.value;
    json["unit"] = row.unit;
    json["repetitions"] = row.repetitions;
    for (const auto& [name, figure] : row.more)
      std::visit([&json, &name = name](const auto& value) { json[name] = value; }, figure);
    list.push_back(std::move(json));
  }
  if (const auto written = write_json_file(path, list); !written)
    throw std::runtime_error(written.error().message);
}

std::string own_folder() { return std::filesystem::canonical("/proc/self/exe").parent_path().string(); }

std::string kasane_command() {
  const std::string built = own_folder() + "/../../bin/kasane";
  return std::filesystem::exists(built) ? built : own_folder() + "/" KASANE_COMMAND_FROM_HELPERS;
}

std::string apps_folder() { return own_folder() + "/apps"; }

int or_told(const std::string& name, const std::function<int()>& body) {
  try {
    return body();
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s: %s\n", name.c_str(), e.what());
    return 1;
  }
}

}  // namespace kasane::bench
