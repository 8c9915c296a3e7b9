// SPDX-License-Identifier: Apache-2.0
// Types that containers refuse, with a reason: this file does not compile, whichever WHAT it is compiled for.
#include <array>
#include <atomic>
#include <cstdint>
#include <kasane/containers/deque.hpp>
#include <kasane/containers/list.hpp>
#include <kasane/containers/unordered_map.hpp>
#include <kasane/containers/vector.hpp>
#include <span>
#include <string>
#include <string_view>

struct Padded {
  std::uint8_t a;
  std::uint32_t b;
  friend bool operator==(const Padded&, const Padded&) = default;
};
struct Stated {
  double x, y;
};
template <>
inline constexpr bool kasane::equal_as_bytes<Stated> = true;
struct Hashed {
  int x;
};
struct Hash {
  std::size_t operator()(const Hashed& h) const { return static_cast<std::size_t>(h.x); }
};

#if WHAT == 0
kasane::unordered_map<std::uint64_t, std::array<char, 257>> refused;
#elif WHAT == 1
kasane::unordered_map<std::uint64_t, std::string> refused;
#elif WHAT == 2
kasane::vector<std::string> refused;
#elif WHAT == 3
kasane::deque<std::string> refused;
#elif WHAT == 4
kasane::list<std::string> refused;
#elif WHAT == 5
kasane::unordered_map<Padded, int> refused;
#elif WHAT == 6
kasane::unordered_set<std::string_view> refused;
#elif WHAT == 7
kasane::unordered_map<std::span<int>, int> refused;
#elif WHAT == 8
kasane::unordered_map<Stated, int> refused;
#elif WHAT == 9
kasane::unordered_map<Hashed, int, Hash> refused;
#elif WHAT == 10
kasane::unordered_map<int, std::atomic<int>> refused;
#elif WHAT == 11
kasane::unordered_map<std::string, int> refused;
#endif
