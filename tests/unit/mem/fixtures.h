// SPDX-License-Identifier: Apache-2.0
// What the tests of mem share: a space.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "mem/engines.h"
#include "mem/mprotect_engine.h"
#include "mem/space.h"
#include "mem/uffd_engine.h"
#include "support/sanitized.h"

namespace kasane::mem {

inline Space make_space(std::size_t bytes) {
  auto base = reserve_space(bytes);
  if (!base) throw std::runtime_error(base.error().message);
  auto space = Space::create(*base, bytes);
  if (!space) throw std::runtime_error(space.error().message);
  return std::move(*space);
}

/// The engine of that name, with its own limit of mappings.
inline std::unique_ptr<FaultEngine> make_engine(std::string_view name, const Space& space,
                                                std::uint64_t mapping_limit = 0) {
  if (name == "mprotect") return make_mprotect_engine(space, mapping_limit);
  auto made =
      make_uffd_engine(space, name == kUffdThread ? Delivery::thread : Delivery::in_place, mapping_limit);
  if (!made) throw std::runtime_error(made.error().message);
  return std::move(*made);
}

/// The names of the engines that this kernel allows.
inline std::vector<std::string> engines_here() {
  std::vector<std::string> names;
  for (const EngineInfo& e : engines())
    if (e.available) names.emplace_back(e.name);
  return names;
}
inline std::string engine_test_name(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

/// A small, seeded generator; two threads use two of them.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15u + 1) {}
  std::uint64_t below(std::uint64_t n) {
    state_ ^= state_ << 13, state_ ^= state_ >> 7, state_ ^= state_ << 17;
    return (state_ >> 11) % n;
  }

 private:
  std::uint64_t state_;
};

}  // namespace kasane::mem
