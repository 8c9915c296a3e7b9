// SPDX-License-Identifier: Apache-2.0
// What ranks do together where there are more of them than a word has bits: thefts, meetings, copies of a
// page at all ranks, moves that recall its location from all, a lock of all. Says how many threads were
// stolen and how often ranks were woken for nothing while one computes. Ends with 1 if anything is wrong.
#include <kasane/global_ptr.hpp>
#include <kasane/kasane.hpp>
#include <kasane/team.hpp>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <vector>

namespace {

std::uint64_t wrong = 0;

void expect(bool right, const char* what) {
  if (right) return;
  ++wrong;
  std::printf("WRONG: %s\n", what);
}

void compute(std::chrono::microseconds time) {
  const auto end = std::chrono::steady_clock::now() + time;
  while (std::chrono::steady_clock::now() < end) {
  }
}

std::uint64_t tree(unsigned depth) {
  if (depth == 0) {
    compute(std::chrono::microseconds(50));
    return 1;
  }
  std::uint64_t left = 0, right = 0;
  kasane::parallel_invoke([&] { left = tree(depth - 1); }, [&] { right = tree(depth - 1); });
  return left + right;
}

/// Words of all ranks in few pages: each member changes its own and reads those of others.
void meetings(std::uint32_t ranks) {
  constexpr std::uint64_t kSteps = 4;
  const kasane::unique_array<std::uint64_t> words(
      static_cast<std::uint64_t*>(kasane::allocate_zeroed(ranks * 8, 64)));
  const kasane::unique_array<std::uint64_t> bad(static_cast<std::uint64_t*>(kasane::allocate_zeroed(8, 64)));
  kasane::team([words = words.get(), bad = bad.get(), ranks](kasane::member& me) {
    for (std::uint64_t step = 1; step <= kSteps; ++step) {
      words[me.index()] = step * 1000 + me.index();
      me.wait();
      for (const std::size_t other :
           {(me.index() + 1) % ranks, (me.index() + ranks / 2) % ranks, std::size_t{0}})
        if (words[other] != step * 1000 + other)
          kasane::fetch_add(kasane::global_ptr<std::uint64_t>(bad), 1u);
      me.wait();
    }
  });
  expect(*bad.get() == 0, "a member saw another's word of another step");
}

/// All have a copy of a page and know where it is; then it moves, and its new owner changes it.
void recalls(std::uint32_t ranks) {
  const kasane::unique_array<std::uint64_t> page(
      static_cast<std::uint64_t*>(kasane::allocate_zeroed(kasane::page_small, kasane::page_small)));
  const kasane::unique_array<std::uint64_t> bad(static_cast<std::uint64_t*>(kasane::allocate_zeroed(8, 64)));
  kasane::team([page = page.get(), bad = bad.get(), ranks](kasane::member& me) {
    for (const std::uint32_t owner : {ranks - 1, ranks / 2, 1u}) {
      if (me.rank() == owner) {
        kasane::own(page, kasane::page_small / 8);
        page[owner % 64] += 7;
      }
      me.wait();
      const std::uint64_t direct = kasane::get(kasane::global_ptr<std::uint64_t>(page + owner % 64));
      if (page[owner % 64] % 7 != 0 || page[owner % 64] == 0 || direct != page[owner % 64])
        kasane::fetch_add(kasane::global_ptr<std::uint64_t>(bad), 1u);
      me.wait();
    }
  });
  expect(*bad.get() == 0, "a member saw an old page");
}

void lock_of_all(std::uint32_t ranks) {
  kasane::mutex mutex;
  std::uint64_t sum = 0;
  kasane::team([&mutex, &sum](kasane::member& me) {
    mutex.lock();
    sum += me.index() + 1;
    mutex.unlock();
  });
  expect(sum == std::uint64_t{ranks} * (ranks + 1) / 2, "a lock of all ranks");
}

}  // namespace

int main() {
  const std::uint32_t ranks = kasane::ranks();
  kasane::run([&] {
    const std::uint64_t before = kasane::counter("steals_remote");
    expect(tree(11) == 2048, "a tree of threads");
    const std::uint64_t stolen = kasane::counter("steals_remote") - before;
    expect(stolen != 0, "no thread was stolen");
    meetings(ranks);
    recalls(ranks);
    lock_of_all(ranks);
    compute(std::chrono::milliseconds(200));  // until all sleep
    const std::uint64_t slept = kasane::counter("sleeps");
    compute(std::chrono::milliseconds(500));
    const std::uint64_t woken = kasane::counter("sleeps") - slept;
    expect(woken <= ranks / 4, "ranks were woken for nothing");
    std::printf("%u ranks: %llu wrong; %llu threads stolen, %llu wake-ups for nothing in 500 ms\n", ranks,
                static_cast<unsigned long long>(wrong), static_cast<unsigned long long>(stolen),
                static_cast<unsigned long long>(woken));
  });
  return wrong == 0 ? 0 : 1;
}
