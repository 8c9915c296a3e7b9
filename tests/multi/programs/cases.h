// SPDX-License-Identifier: Apache-2.0
// Programs of many small cases: `program NAME…` runs these, without names all. Each case checks itself.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <kasane/kasane.hpp>
#include <utility>
#include <vector>

namespace cases {

struct Case {
  const char* name;
  void (*run)();
};

inline bool failed = false;

inline void expect(bool holds, const char* text, const char* file, int line) {
  if (holds) return;
  std::printf("%s:%d: rank %u: not so: %s\n", file, line, kasane::rank(), text);
  failed = true;
}
template <class A, class B>
void expect_equal(const A& got, const B& want, const char* text, const char* file, int line) {
  if (got == want) return;
  std::printf("%s:%d: rank %u: %s is %lld, not %lld\n", file, line, kasane::rank(), text,
              static_cast<long long>(got), static_cast<long long>(want));
  failed = true;
}

inline void* place(std::uint32_t rank) {
  static void* const places = [] {
    auto** const p = new void*[kasane::ranks()];
    for (std::uint32_t r = 0; r < kasane::ranks(); ++r) p[r] = kasane_allocate_at(8, 8, r);
    return static_cast<void*>(p);
  }();
  return static_cast<void**>(places)[rank % kasane::ranks()];
}
/// The calling thread continues on that rank.
inline void go(std::uint32_t rank) { kasane::this_thread::move_near(place(rank)); }
inline std::uint32_t last() { return kasane::ranks() - 1; }

/// f(i) for each i of [0, n), on threads that begin on all ranks in turn, at the same time.
template <class F>
void on_ranks(int n, const F& f) {
  std::vector<kasane::thread> threads;
  threads.reserve(static_cast<std::size_t>(n));
  for (int i = 0; i < n; ++i)
    threads.emplace_back(kasane::near{place(static_cast<std::uint32_t>(i))}, [&f, i] { f(i); });
  for (kasane::thread& t : threads) t.join();
}

/// f() on another rank, if there is one; the caller continues where it was.
template <class F>
void elsewhere(const F& f) {
  kasane::thread(kasane::near{place(last())}, [&f] { f(); }).join();
}

template <std::size_t N>
int main_of(int argc, char** argv, const Case (&all)[N]) {
  if (argc > 1 && std::strcmp(argv[1], "--list") == 0) {
    for (const Case& c : all) std::puts(c.name);
    return 0;
  }
  int run = 0;
  for (const Case& c : all) {
    bool wanted = argc == 1;
    for (int i = 1; i < argc; ++i) wanted |= std::strcmp(argv[i], c.name) == 0;
    if (!wanted) continue;
    ++run;
    const bool before = std::exchange(failed, false);
    c.run();
    if (failed) std::printf("case %s failed on %u ranks\n", c.name, kasane::ranks());
    failed |= before;
  }
  if (run == 0) std::puts("no such case");
  return failed || run == 0 ? 1 : 0;
}

}  // namespace cases

#define EXPECT(holds) cases::expect(static_cast<bool>(holds), #holds, __FILE__, __LINE__)
#define EXPECT_EQ(got, want) cases::expect_equal((got), (want), #got, __FILE__, __LINE__)
