// SPDX-License-Identifier: Apache-2.0
// A thread needs more stack than it has, in the way that the argument names. The other threads' stacks keep
// what is on them; the job ends with a message instead of a wrong result.
#include <alloca.h>

#include <cstdio>
#include <cstring>
#include <kasane/kasane.hpp>
#include <string_view>
#include <vector>

namespace {

constexpr int kSmall = 2000;

/// Uses the end of a large array that is farthest from the caller's frame, and nothing else of it.
template <int kBytes>
[[gnu::noinline]] void use_far_end() {
  volatile char large[kBytes];
  for (int i = 0; i < kSmall; ++i) large[i] = 2;
  static_cast<void>(large[0]);
}

[[gnu::noinline]] void use_alloca(std::size_t bytes) {
  auto* const large = static_cast<volatile char*>(alloca(bytes));
  for (int i = 0; i < kSmall; ++i) large[i] = 2;
}

[[gnu::noinline]] int descend(int n) {
  volatile char frame[200];
  frame[0] = static_cast<char>(n);
  return n == 0 ? frame[0] : descend(n - 1) + frame[0];
}

/// A frame of more than a page at each level, of which little is used.
[[gnu::noinline]] int descend_in_strides(int n) {
  volatile char frame[9000];
  frame[0] = static_cast<char>(n);
  return n == 0 ? frame[0] : descend_in_strides(n - 1) + frame[0];
}

void overflow(std::string_view way) {
  if (way == "array") use_far_end<100'000>();
  if (way == "large_array") use_far_end<1'000'000>();
  if (way == "alloca") use_alloca(150'000);
  if (way == "recursion") static_cast<void>(descend(1000));
  if (way == "strides") static_cast<void>(descend_in_strides(20));
}

}  // namespace

int main(int argc, char** argv) {
  const char* const way = argc > 1 ? argv[1] : "array";
  int changed = 0;
  kasane::run([&] {
    if (argc > 2 && std::string_view(argv[2]) == "first") return overflow(way);
    constexpr std::size_t kNeighbours = 20;
    kasane::latch go(1);
    std::vector<kasane::thread> neighbours;
    std::vector<int> wrong(kNeighbours);
    for (std::size_t k = 0; k < kNeighbours; ++k) {
      neighbours.emplace_back([&go, wrong = &wrong[k]] {
        volatile char mine[50'000];
        for (auto& c : mine) c = 1;
        go.wait();
        for (const auto& c : mine) *wrong += c != 1 ? 1 : 0;
      });
    }
    kasane::thread([way] { overflow(way); }).join();
    go.count_down();
    for (auto& n : neighbours) n.join();
    for (const int n : wrong) changed += n;
  });
  std::printf("bytes changed on other threads' stacks: %d\n", changed);
  return changed != 0 ? 1 : 0;
}
