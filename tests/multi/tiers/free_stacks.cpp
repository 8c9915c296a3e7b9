// SPDX-License-Identifier: Apache-2.0
// free_stacks THREADS MIB: so many threads that are all there at once, each with 40 KiB of its stack in use.
// When they have ended, MIB of data a rank are swept, more than the budget: what their stacks had is room for
// it again. And once more. Says how many stacks gave their frames back; status 1: a word of the data or of a
// stack is wrong.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <kasane/kasane.hpp>
#include <vector>

namespace {

constexpr std::size_t kDeep = 40 * 1024, kStep = 512;

std::uint64_t value(std::size_t i) { return i * 0x9E3779B97F4A7C15u; }

[[gnu::noinline]] std::uint64_t use_stack(std::size_t thread, kasane::mutex* end) {
  volatile std::uint64_t words[kDeep / 8];
  for (std::size_t i = 0; i < kDeep / 8; i += kStep / 8) words[i] = value(thread + i);
  end->lock();
  end->unlock();
  std::uint64_t wrong = 0;
  for (std::size_t i = 0; i < kDeep / 8; i += kStep / 8) wrong += words[i] != value(thread + i) ? 1 : 0;
  return wrong;
}

std::uint64_t use_many_stacks(std::size_t threads) {
  kasane::mutex end;
  std::vector<std::uint64_t> wrong(threads);
  std::vector<kasane::thread> all;
  all.reserve(threads);
  end.lock();
  for (std::size_t i = 0; i < threads; ++i)
    all.emplace_back([i, end = &end, out = &wrong[i]] { *out = use_stack(i, end); });
  end.unlock();
  std::uint64_t bad = 0;
  for (kasane::thread& thread : all) thread.join();
  for (const std::uint64_t n : wrong) bad += n;
  return bad;
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t threads = argc == 3 ? std::strtoull(argv[1], nullptr, 10) : 0,
                    mib = argc == 3 ? std::strtoull(argv[2], nullptr, 10) : 0;
  if (threads == 0 || mib == 0) {
    std::fprintf(stderr, "usage: free_stacks THREADS MIB\n");
    return 2;
  }
  std::uint64_t bad = 0;
  kasane::run([&] {
    const std::size_t words = kasane::ranks() * (mib << 20) / 8;
    auto* const data = static_cast<std::uint64_t*>(kasane::allocate(words * 8, 64, kasane::placement::block));
    for (int round = 0; round < 2; ++round) {
      bad += use_many_stacks(threads);
      kasane::parallel_for(std::size_t{0}, words, [=](std::size_t i) { data[i] = value(i); });
      bad += kasane::parallel_reduce(
          std::size_t{0}, words, std::uint64_t{0},
          [=](std::size_t i) { return std::uint64_t{data[i] != value(i)}; },
          [](std::uint64_t a, std::uint64_t b) { return a + b; });
    }
    kasane::deallocate(data);
  });
  std::printf("%llu words wrong; %llu stacks gave their frames back\n", static_cast<unsigned long long>(bad),
              static_cast<unsigned long long>(kasane::counter("stacks_trimmed")));
  return bad == 0 ? 0 : 1;
}
