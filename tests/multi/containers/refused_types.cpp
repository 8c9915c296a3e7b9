// SPDX-License-Identifier: Apache-2.0
// Types that containers refuse, with a reason: this file does not compile.
#include <array>
#include <cstdint>
#include <kasane/containers/deque.hpp>
#include <kasane/containers/list.hpp>
#include <kasane/containers/unordered_map.hpp>
#include <kasane/containers/vector.hpp>
#include <string>

struct Padded {
  std::uint8_t a;
  std::uint32_t b;
  friend bool operator==(const Padded&, const Padded&) = default;
};

void refused() {
  kasane::unordered_map<std::uint64_t, std::array<char, 233>> too_large;
  kasane::unordered_map<std::uint64_t, std::string> values;
  kasane::vector<std::string> vector;
  kasane::deque<std::string> deque;
  kasane::list<std::string> list;
  kasane::unordered_map<Padded, int>().find({});
}
