// SPDX-License-Identifier: Apache-2.0
// Random mixes of every form of the direct view by many threads that spread over the ranks, while they move
// the pages: each thread compares its part of the memory with its oracle; the words and numbers to which all
// add are compared with their sums.
//   kasane run -n RANKS -- direct_stress SEED COUNT ROUNDS
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <kasane/kasane.hpp>
#include <random>
#include <vector>

#include "runtime/rank/runtime.h"

namespace {

using kasane::global_ptr;

constexpr std::size_t kPage = 65536, kPages = 24, kThreads = 24;
constexpr std::size_t kShared = 4096;  // the last bytes: 64 words, then 64 doubles …
constexpr std::size_t kPart = (kPages * kPage - kShared) / kThreads;  // no multiple of a page

struct Sums {
  std::uint64_t words = 0;
  double numbers = 0;
};

struct Thread {
  std::byte* memory;
  std::uint64_t seed;
  std::size_t index;
  std::size_t wrong = 0;
  Sums added{};

  void run(int rounds) {
    std::mt19937_64 random(seed * 1000 + index);
    const auto below = [&](std::uint64_t n) { return random() % n; };
    std::byte* const part = memory + index * kPart;
    const auto global = [&](std::size_t at) { return global_ptr<std::byte>(part + at); };
    std::vector<std::byte> oracle(kPart), got(kPart);
    kasane::put(global(0), oracle.data(), kPart);
    auto* const words = reinterpret_cast<std::int64_t*>(memory + kPages * kPage - kShared);
    auto* const numbers = reinterpret_cast<double*>(words + 64);
    const auto fill = [&](std::byte* to, std::size_t n) {
      for (std::size_t i = 0; i < n; ++i) to[i] = static_cast<std::byte>(random());
    };
    for (int round = 0; round < rounds; ++round) {
      const std::size_t at = below(kPart - 8192), n = 1 + below(below(4) == 0 ? 8192 : 100);
      switch (below(10)) {
        case 0:
          fill(&oracle[at], n);
          kasane::put(global(at), &oracle[at], n);
          break;
        case 1: {  // several, whose buffer is used again
          kasane::pending_group all;
          std::array<std::byte, 300> buffer;
          for (std::size_t k = 0; k < 8; ++k) {
            const std::size_t to = k * (kPart / 8) + at % (kPart / 8 - buffer.size());
            fill(buffer.data(), buffer.size());
            std::copy(buffer.begin(), buffer.end(), &oracle[to]);
            kasane::put_async(global(to), buffer.data(), buffer.size(), all);
          }
          if (below(2) == 0) kasane::this_thread::yield();
          all.wait();
          break;
        }
        case 2: {
          const kasane::patch shape{1 + below(30), 1 + below(60), 100, 40};
          std::vector<std::byte> rows(60 * 40);
          fill(rows.data(), rows.size());
          for (std::size_t r = 0; r < shape.rows; ++r)
            std::copy_n(&rows[r * 40], shape.count, &oracle[at + r * 100]);
          kasane::put_strided(global(at), rows.data(), shape);
          break;
        }
        case 3: {
          const std::size_t from = at % (kPart / 2 - n);
          std::copy_n(&oracle[from], n, &oracle[kPart / 2 + from]);
          kasane::copy(global(kPart / 2 + from), global(from), n);
          break;
        }
        case 4:
          kasane::add(global_ptr<std::int64_t>(words + below(64)), 1);
          ++added.words;
          break;
        case 5:
          kasane::fetch_add(global_ptr<std::int64_t>(words + below(64)), 2);
          added.words += 2;
          break;
        case 6: {
          const std::array<double, 5> x{1, 2, 3, 4, 5};
          kasane::accumulate(global_ptr<double>(numbers + below(60)), x.data(), x.size(), 2.0);
          added.numbers += 30;
          break;
        }
        case 7:
          if (!kasane::runtime::Runtime::current()->own(memory + below(kPages) * kPage, 1)) ++wrong;
          break;
        case 8: {  // reads under way while the thread may move
          std::fill(got.begin(), got.begin() + 4096, std::byte{0});
          kasane::pending a = kasane::get_async(got.data(), global(at), n),
                          b = kasane::get_async(&got[8192], global(at / 2), 1000);
          kasane::this_thread::yield();
          a.wait();
          b.wait();
          wrong += std::memcmp(got.data(), &oracle[at], n) != 0;
          wrong += std::memcmp(&got[8192], &oracle[at / 2], 1000) != 0;
          break;
        }
        default:
          kasane::get(got.data(), global(at), n);
          wrong += std::memcmp(got.data(), &oracle[at], n) != 0;
      }
    }
    kasane::get(got.data(), global(0), kPart);
    wrong += got != oracle;
  }
};

int failures(std::uint64_t seed, int rounds) {
  auto* const memory =
      static_cast<std::byte*>(kasane::allocate(kPages * kPage, kPage, kasane::placement::cyclic));
  const std::vector<std::byte> zeros(kShared);
  const global_ptr<std::byte> shared(memory + kPages * kPage - kShared);
  kasane::put(shared, zeros.data(), kShared);
  std::vector<Thread> threads;
  for (std::size_t i = 0; i < kThreads; ++i) threads.push_back({memory, seed, i});
  kasane::parallel_for(
      std::size_t{0}, kThreads,
      [&](std::size_t i) {
        Thread mine = threads[i];
        mine.run(rounds);
        threads[i] = mine;
      },
      1);
  std::array<std::int64_t, 64> words;
  std::array<double, 64> numbers;
  kasane::get(words.data(), global_ptr<const std::int64_t>(reinterpret_cast<std::int64_t*>(shared.get())),
              64);
  kasane::get(numbers.data(), global_ptr<const double>(reinterpret_cast<double*>(shared.get() + 512)), 64);
  Sums found, expected;
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < 64; ++i) {
    found.words += static_cast<std::uint64_t>(words[i]);
    found.numbers += numbers[i];
  }
  for (const Thread& t : threads) {
    expected.words += t.added.words;
    expected.numbers += t.added.numbers;
    wrong += t.wrong;
  }
  kasane::deallocate(memory);
  if (wrong == 0 && found.words == expected.words && found.numbers == expected.numbers) return 0;
  std::printf("seed %llu: %zu wrong comparisons, words %llu of %llu, numbers %g of %g\n",
              static_cast<unsigned long long>(seed), wrong, static_cast<unsigned long long>(found.words),
              static_cast<unsigned long long>(expected.words), found.numbers, expected.numbers);
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return std::fprintf(stderr, "direct_stress SEED COUNT ROUNDS\n"), 2;
  int bad = 0;
  for (int i = 0; i < std::atoi(argv[2]); ++i) {
    bad += kasane::run([&] {
      return failures(std::strtoull(argv[1], nullptr, 10) + static_cast<std::uint64_t>(i),
                      std::atoi(argv[3]));
    });
  }
  std::uint64_t steals = 0, moved = 0;
  for (std::uint32_t r = 0; r < kasane::ranks(); ++r) {
    steals += kasane::counter("steals_remote", r);
    moved += kasane::counter("pages_moved", r);
  }
  std::printf("%d failures; %llu threads crossed, %llu pages moved\n", bad,
              static_cast<unsigned long long>(steals), static_cast<unsigned long long>(moved));
  return bad != 0;
}
