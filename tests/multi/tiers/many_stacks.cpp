// SPDX-License-Identifier: Apache-2.0
// many_stacks THREADS MIB: so many threads that are all there at once, each with 40 KiB of its stack in use,
// beside MIB of data a rank, which are swept meanwhile. First they use half of that, and wait; then some at a
// time become deeper, and the next ones only when --stats says that those are counted. Status 1: a word of
// the data or of a stack is wrong.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <kasane/kasane.hpp>
#include <vector>

namespace {

constexpr std::size_t kHalf = 20 * 1024, kStep = 512, kTogether = 16;

std::uint64_t value(std::size_t i) { return i * 0x9E3779B97F4A7C15u; }

/// Uses so much of this thread's stack, then runs `inner`; how many words of it are not as they were.
template <class F>
[[gnu::noinline]] std::uint64_t use_stack(std::size_t thread, const F& inner) {
  volatile std::uint64_t words[kHalf / 8];
  for (std::size_t i = 0; i < kHalf / 8; i += kStep / 8) words[i] = value(thread + i);
  std::uint64_t wrong = inner();
  for (std::size_t i = 0; i < kHalf / 8; i += kStep / 8) wrong += words[i] != value(thread + i) ? 1 : 0;
  return wrong;
}

struct Gate {
  kasane::mutex deeper, end;
};

std::uint64_t counted() {
  std::uint64_t bytes = 0;
  for (unsigned r = 0; r < kasane::ranks(); ++r) bytes += kasane::counter("bytes_of_stacks", r);
  return bytes;
}

/// The pager counts them now and then. It always comes to that, or the test hangs.
void wait_until_counted(std::size_t bytes) {
  while (counted() < bytes) {
    const timespec ms{0, 1'000'000};
    ::nanosleep(&ms, nullptr);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t threads = argc == 3 ? std::strtoull(argv[1], nullptr, 10) : 0,
                    mib = argc == 3 ? std::strtoull(argv[2], nullptr, 10) : 0;
  if (threads == 0 || mib == 0) {
    std::fprintf(stderr, "usage: many_stacks THREADS MIB\n");
    return 2;
  }
  const std::uint64_t wrong = kasane::run([=] {
    const std::size_t words = kasane::ranks() * (mib << 20) / 8;
    auto* const data = static_cast<std::uint64_t*>(kasane::allocate(words * 8, 64, kasane::placement::block));
    kasane::parallel_for(std::size_t{0}, words, [=](std::size_t i) { data[i] = value(i); });
    const auto sweep = [=] {
      return kasane::parallel_reduce(
          std::size_t{0}, words, std::uint64_t{0},
          [=](std::size_t i) { return std::uint64_t{data[i] != value(i)}; },
          [](std::uint64_t a, std::uint64_t b) { return a + b; });
    };
    std::vector<Gate> gates(threads);
    std::vector<std::uint64_t> wrong_of(threads);
    for (Gate& gate : gates) {
      gate.deeper.lock();
      gate.end.lock();
    }
    std::vector<kasane::thread> all;
    all.reserve(threads);
    for (std::size_t i = 0; i < threads; ++i) {
      all.emplace_back([i, gate = &gates[i], out = &wrong_of[i]] {
        *out = use_stack(i, [=] {
          gate->deeper.lock();
          gate->deeper.unlock();
          return use_stack(i, [=] {
            gate->end.lock();
            gate->end.unlock();
            return std::uint64_t{0};
          });
        });
      });
    }
    std::uint64_t bad = sweep();
    for (std::size_t i = 0; i < threads; i += kTogether) {
      const std::size_t end = std::min(i + kTogether, threads);
      for (std::size_t k = i; k < end; ++k) gates[k].deeper.unlock();
      wait_until_counted(kHalf * (threads + end));
    }
    bad += sweep();
    for (Gate& gate : gates) gate.end.unlock();
    for (kasane::thread& thread : all) thread.join();
    for (const std::uint64_t n : wrong_of) bad += n;
    kasane::deallocate(data);
    return bad;
  });
  std::printf("%zu threads at once, %zu MiB a rank, %llu words wrong\n", threads, mib,
              static_cast<unsigned long long>(wrong));
  return wrong == 0 ? 0 : 1;
}
