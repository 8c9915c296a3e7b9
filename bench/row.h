// SPDX-License-Identifier: Apache-2.0
// One line of a benchmark's report: what every suite of `kasane bench` writes.
#pragma once

#include <cstdint>
#include <string>

namespace kasane::bench {

struct Row {
  std::string suite;          ///< "core"
  std::string case_;          ///< "fork-join"; printed as "case"
  std::string system;         ///< "kasane", or the peer's name
  unsigned ranks;
  unsigned threads;           ///< OS threads that work, over all ranks
  std::uint64_t bytes;        ///< size of the operation, 0 where it has none
  double value;               ///< median of the repetitions
  std::string unit;
  unsigned repetitions;
};

}  // namespace kasane::bench
