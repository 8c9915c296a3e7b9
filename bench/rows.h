// SPDX-License-Identifier: Apache-2.0
// What every suite of `kasane bench` reports: rows, which it prints and writes as the list of JSON objects
// that `kasane plot` draws. Thread safety: one thread. nlohmann-json stays in rows.cpp.
#pragma once

#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <variant>
#include <vector>

namespace kasane::bench {

struct Row {
  std::string suite;   ///< "core"
  std::string case_;   ///< "fork-join"; printed as "case"
  std::string system;  ///< "kasane", or the peer's name
  unsigned ranks;
  unsigned threads;     ///< OS threads that work, over all ranks; 0: as many as ranks
  std::uint64_t bytes;  ///< size of the operation, 0 where it has none
  double value;         ///< median of the repetitions
  std::string unit;
  unsigned repetitions;

  /// Of this suite alone: written behind the others.
  struct Figure {
    std::string name;
    std::variant<double, std::uint64_t, std::string> value;
  };
  std::vector<Figure> more = {};
};

/// Of several runs one after another: of each case the row of its first run, with the median of their values.
[[nodiscard]] std::vector<Row> medians(const std::vector<Row>&);

/// As a table, in their order.
void print(const std::vector<Row>&);
/// Where a table for readers goes: to standard output, unless the rows do (--json -); then to standard error.
[[nodiscard]] std::FILE* table_file(const std::string& json);
/// To the file at path; "-" is standard output, "" nothing. Throws std::runtime_error if that fails.
void write(const std::string& path, const std::vector<Row>&);

/// The folder of the running program, in which the players are.
std::string own_folder();
/// The kasane command that belongs to this suite.
std::string kasane_command();
/// The applications that belong to it.
std::string apps_folder();

/// body's result; 1 for an exception, which is told on standard error as "NAME: what".
int or_told(const std::string& name, const std::function<int()>& body);

}  // namespace kasane::bench
