// SPDX-License-Identifier: Apache-2.0
// With --main all: the mains of all ranks change containers of rank 0's at once, with no thread of Kasane.
// They get the handles through the file that the argument names, and wait for each other in the map.
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <kasane/containers/deque.hpp>
#include <kasane/containers/list.hpp>
#include <kasane/containers/unordered_map.hpp>
#include <kasane/containers/vector.hpp>
#include <kasane/kasane.hpp>
#include <optional>
#include <string>

namespace {

constexpr std::uint64_t kEach = 500;

struct Handles {
  kasane::unordered_map<std::uint64_t, std::uint64_t>::handle map;
  kasane::unordered_set<std::uint64_t>::handle set;
  kasane::vector<std::uint64_t>::handle vector;
  kasane::deque<std::uint64_t>::handle deque;
  kasane::list<std::uint64_t>::handle list;
};
/// Of rank 0.
struct Owners {
  kasane::unordered_map<std::uint64_t, std::uint64_t> map;
  kasane::unordered_set<std::uint64_t> set;
  kasane::vector<std::uint64_t> vector;
  kasane::deque<std::uint64_t> deque;
  kasane::list<std::uint64_t> list;
};

std::uint64_t change(const Handles& h) {
  std::uint64_t w = 0;
  for (std::uint64_t i = 0; i < kEach; ++i) {
    const std::uint64_t x = kasane::rank() * kEach + i;
    h.map.add(i % 7, 1);
    w += !h.map.insert(1000 + x, x) || !h.set.insert(x);
    w += h.vector.get(h.vector.push_back(x)) != x;
    h.deque.push_back(x);
    w += *h.list.push_back(x, kasane::rank()) != x;
  }
  return w;
}

std::uint64_t look(const Handles& h) {
  const std::uint64_t n = kasane::ranks() * kEach;
  std::uint64_t w = h.map.size() < n + 8 || h.set.size() != n || h.vector.size() != n;
  std::uint64_t sum = 0;
  for (std::uint64_t k = 0; k < 7; ++k) sum += h.map.find(k).value_or(0);
  for (std::uint64_t x = 0; x < n; ++x) w += h.map.find(1000 + x) != x || !h.set.contains(x);
  for (std::uint64_t i = 0; i < kEach; ++i) w += !h.deque.try_pop_front() || !h.list.pop_back();
  return w + (sum != n);
}

/// Of all ranks; which is one that has not been met.
void meet(const Handles& h, std::uint64_t which) {
  h.map.add(which, 1);
  while (h.map.find(which) != kasane::ranks()) ::usleep(1000);
}

void tell(const Handles& h, const std::string& path) {
  std::ofstream(path + ".new", std::ios::binary).write(reinterpret_cast<const char*>(&h), sizeof h);
  std::rename((path + ".new").c_str(), path.c_str());
}
Handles told(const std::string& path) {
  Handles h;
  for (;; ::usleep(1000))
    if (std::ifstream file(path, std::ios::binary); file.read(reinterpret_cast<char*>(&h), sizeof h))
      return h;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 99;
  const bool first = kasane::rank() == 0;
  std::optional<Owners> owners;
  Handles h;
  if (first) {
    owners.emplace();
    h = {owners->map, owners->set, owners->vector, owners->deque, owners->list};
    tell(h, argv[1]);
  } else {
    h = told(argv[1]);
  }
  std::uint64_t wrong = change(h);
  meet(h, 10);
  if (first) std::remove(argv[1]);
  wrong += look(h);
  meet(h, 11);
  if (first) wrong += !owners->deque.empty() || !owners->list.empty();
  std::printf("rank %u: %s\n", kasane::rank(), wrong == 0 ? "ok" : "FAILED");
  h.map.add(12, 1);
  while (first && h.map.find(12) != kasane::ranks()) ::usleep(1000);  // then its containers end
  return wrong == 0 ? 0 : 1;
}
