// SPDX-License-Identifier: Apache-2.0
// `kasane run --malloc space`: what C code allocates with malloc on a thread is found, and freed, by threads
// on other ranks; what libc allocates for itself stays in the process.
#include <gtest/gtest.h>
#include <malloc.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <kasane/kasane.hpp>
#include <string>
#include <vector>

#include "lists.h"

namespace {

/// Has the address a place in global memory? A get from elsewhere is refused.
bool is_global(const void* p) {
  char byte = 0;
  return kasane_get(&byte, p, 1) == 0;
}

TEST(Malloc, ListsAreMadeHereAndTakenApartThere) {
  EXPECT_EQ(kasane::run([] {
              constexpr int kLists = 40;
              std::vector<cell*> lists(kLists);
              kasane::parallel_for(
                  0, kLists,
                  [&](int i) {
                    lists[static_cast<std::size_t>(i)] = make_list(i, 100);
                    kasane::this_thread::yield();
                  },
                  1);
              std::vector<long> sums(kLists);
              kasane::parallel_for(
                  0, kLists,
                  [&](int i) {
                    sums[static_cast<std::size_t>(i)] =
                        sum_and_free(lists[static_cast<std::size_t>(kLists - 1 - i)]);
                  },
                  1);
              long all = 0;
              for (const long sum : sums) all += sum;
              return all;
            }),
            40 * 4950 + 100 * 780);
}

TEST(Malloc, GlobalOnThreadsAndInMain) {
  void* outside = std::calloc(1, 100);
  EXPECT_TRUE(is_global(outside));
  std::free(outside);
  EXPECT_TRUE(kasane::run([] {
    void* p = std::calloc(1, 100);
    bool good = is_global(p) && malloc_usable_size(p) >= 100;
    std::free(p);
    void* q = aligned(4096, 10'000);
    good = good && is_global(q);
    std::free(q);
    char* text = repeated("kasane ", 3000);  // grows by realloc, beyond what small objects are
    good = good && is_global(text) && std::strlen(text) == 21'000 &&
           std::strncmp(text + 20'993, "kasane ", 7) == 0;
    std::free(text);
    // libc's own: the buffer of a file, and what strdup returns.
    char* copy = ::strdup("of libc");
    good = good && !is_global(copy) && malloc_usable_size(copy) >= 8;
    std::free(copy);
    if (FILE* file = std::fopen("/dev/null", "w")) {
      good = good && !is_global(file);
      std::fprintf(file, "%s", "text");
      std::fclose(file);
    }
    return good;
  }));
}

TEST(Malloc, StringsAndVectorsAreShared) {
  EXPECT_TRUE(kasane::run([] {
    std::vector<std::string> texts(200);
    kasane::parallel_for(
        0, 200,
        [&](int i) {
          texts[static_cast<std::size_t>(i)] =
              std::string(static_cast<std::size_t>(i) * 7, 'x') + std::to_string(i);
        },
        5);
    bool good = true;
    for (std::size_t i = 0; i < 200; ++i)
      good = good && texts[i] == std::string(i * 7, 'x') + std::to_string(i);
    kasane::parallel_for(
        0, 200,
        [&](int i) { texts[static_cast<std::size_t>(199 - i)] += "and more, from another rank perhaps"; }, 5);
    for (std::size_t i = 0; i < 200; ++i)
      good = good && texts[i].size() == i * 7 + std::to_string(i).size() + 35;
    return good;
  }));
}

}  // namespace
