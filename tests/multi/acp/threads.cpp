// SPDX-License-Identifier: Apache-2.0
// Threads that may move, more than there are workers, call acp.h from C++, while rank 0's main waits.
#include <kasane/acp.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <kasane/kasane.hpp>
#include <vector>

namespace {

constexpr int kThreads = 24, kTimes = 200;

void expect(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "threads: %s\n", what);
  std::exit(1);
}

/// What one of them does, with an element of its own.
void work(int thread, acp_vector_t vector, acp_list_t list, acp_map_t map) {
  const int ranks = acp_procs();
  for (int i = 0; i < kTimes; ++i) {
    const acp_ga_t x = acp_malloc(64, (thread + i) % ranks);
    const std::uint64_t value = static_cast<std::uint64_t>(thread) << 32 | static_cast<unsigned>(i);
    kasane::put(kasane::global_ptr<std::uint64_t>(reinterpret_cast<std::uint64_t*>(x)), value);
    acp_push_back_vector(vector, x);
    acp_push_back_list(list, x, (thread + i / 3) % ranks);
    if (i % 2 == 0) acp_pop_front_list(list);
    expect(acp_insert_map(map, {{x, 8}, {x, 8}}) == 1, "the key was there");
    if (i % 2 == 0) acp_remove_map(map, {x, 8});
    acp_complete(acp_copy(x + 8, x, 8, ACP_HANDLE_NULL));
    if (i % 16 == 0) kasane::this_thread::yield();
    acp_free(x);
  }
}

}  // namespace

int main(int argc, char** argv) {
  expect(acp_init(&argc, &argv) == 0, "acp_init");
  if (acp_rank() == 0) {
    std::vector<int> all;
    for (int r = 0; r < acp_procs(); ++r) all.push_back(r);
    const acp_vector_t vector = acp_create_vector(0, 8, acp_procs() - 1);
    const acp_list_t list = acp_create_list(8, 0);
    const acp_map_t map = acp_create_map(acp_procs(), all.data(), 64, 0);
    kasane::run([&] {
      std::vector<kasane::thread> threads;
      for (int t = 0; t < kThreads; ++t)
        threads.emplace_back(kasane::at{static_cast<std::uint32_t>(t % acp_procs())},
                             [=] { work(t, vector, list, map); });
      for (auto& t : threads) t.join();
    });
    expect(acp_size_vector(vector) == kThreads * kTimes, "elements of the vector");
    expect(acp_size_list(list) == kThreads * kTimes / 2, "elements of the list");
    expect(acp_size_map(map) == kThreads * kTimes / 2, "entries of the map");
    acp_destroy_vector(vector);
    acp_destroy_list(list);
    acp_destroy_map(map);
  }
  acp_finalize();
}
