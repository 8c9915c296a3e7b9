// SPDX-License-Identifier: Apache-2.0
// What it costs to change 64 bytes that two ranks share, under a mutex or as a synchronized_value, where each
// rank has changes of its own between two of these: to a word in each of PAGES pages of the other one. The
// ranks take turns, so every change comes after one of the other rank.
//   kasane run -n 2 --workers 1 -- player-lock mutex|value PAGES CHANGES
// Prints one JSON object: the mean time from one change to the next in each of ten rounds, in µs.
#include <kasane/kasane.hpp>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <vector>

namespace {

struct Shared {
  std::uint64_t next = 0, changes = 0;
  std::uint64_t rest[6] = {};
};
struct UnderMutex {
  kasane::mutex mutex;
  Shared shared;
};

/// Does it if it is this rank's turn.
bool change(Shared& s, std::uint64_t rank) {
  if (s.next != rank) return false;
  s.next = 1 - rank;
  ++s.changes;
  return true;
}

/// One thread on each rank. try_change(rank): false if it was not its turn.
template <class F>
void take_turns(std::uint64_t* words, std::size_t pages, unsigned changes, const F& try_change) {
  constexpr std::size_t kPageWords = 65536 / 8;
  std::vector<kasane::thread> threads;
  for (std::uint64_t rank = 0; rank < 2; ++rank) {
    threads.emplace_back(kasane::near{words + rank * kPageWords}, [=] {
      for (unsigned done = 0; done < changes;) {
        if (!try_change(rank)) continue;
        ++done;
        for (std::size_t p = 0; p < pages; ++p) {
          volatile std::uint64_t& word = words[(2 * p + 1 - rank) * kPageWords];
          word = word + 1;
        }
      }
    });
  }
  for (kasane::thread& t : threads) t.join();
}

}  // namespace

int main(int argc, char** argv) {
  const bool by_value = argc > 1 && std::strcmp(argv[1], "value") == 0;
  const std::size_t pages = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 0;
  const unsigned changes = argc > 3 ? static_cast<unsigned>(std::atoi(argv[3])) : 1000;
  std::vector<double> us;
  bool verified = true;
  for (int round = 0; round <= 10; ++round) {
    const double each = kasane::run([=, &verified] {
      auto* const words = static_cast<std::uint64_t*>(
          kasane::allocate(2 * (pages + 1) * 65536, 65536, kasane::placement::cyclic));
      const auto value = std::make_unique<kasane::synchronized_value<Shared>>();
      const auto guarded = std::make_unique<UnderMutex>();
      const auto begin = std::chrono::steady_clock::now();
      if (by_value) {
        take_turns(words, pages, changes, [&v = *value](std::uint64_t rank) {
          return kasane::apply([rank](Shared& s) { return change(s, rank); }, v);
        });
      } else {
        take_turns(words, pages, changes, [&g = *guarded](std::uint64_t rank) {
          const std::lock_guard lock(g.mutex);
          return change(g.shared, rank);
        });
      }
      const double passed =
          std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
      const std::uint64_t done =
          by_value ? kasane::apply([](Shared& s) { return s.changes; }, *value) : guarded->shared.changes;
      verified = verified && done == 2 * changes;
      kasane::deallocate(words);
      return passed / (2 * changes);
    });
    if (round > 0) us.push_back(each);  // the first one warms up
  }
  std::printf("{\"verified\": %s, \"us\": [", verified ? "true" : "false");
  for (std::size_t i = 0; i < us.size(); ++i) std::printf("%s%.3f", i == 0 ? "" : ", ", us[i]);
  std::puts("]}");
  return verified ? 0 : 1;
}
