// SPDX-License-Identifier: Apache-2.0
// Objects whose pages a chosen rank owns, and threads on each rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <kasane/kasane.hpp>
#include <memory>
#include <new>
#include <utility>
#include <vector>

namespace kasane::test {

/// The tests link gtest's archive, for which the linker copies stdout and its like into the first page of
/// .bss: that page stays private. So the variables of what includes this begin a page.
[[gnu::used]] alignas(4096) static char g_begins_a_page;

/// Whether all ranks have the same variables.
inline bool variables_are_shared() {
  char copy;
  return kasane::ranks() == 1 || kasane_get(&copy, &g_begins_a_page, 1) == 0;
}

template <class T>
struct Freed {
  void operator()(T* p) const {
    p->~T();
    kasane::deallocate(p);
  }
};
template <class T>
using Placed = std::unique_ptr<T, Freed<T>>;

/// A T in a page of this rank's, constructed by the calling thread where it is.
template <class T, class... As>
Placed<T> make_on(std::uint32_t rank, As&&... as) {
  void* memory = kasane::allocate(sizeof(T), alignof(T) < 16 ? 16 : alignof(T), kasane::placement::on(rank));
  return Placed<T>(::new (memory) T(std::forward<As>(as)...));
}

/// A byte of each rank, for move_near().
class Places {
 public:
  Places() {
    for (std::uint32_t r = 0; r < kasane::ranks(); ++r) at_.push_back(make_on<char>(r));
  }
  [[nodiscard]] const void* of(std::uint32_t rank) const { return at_[rank].get(); }

 private:
  std::vector<Placed<char>> at_;
};

/// Calls body(thread, of how many) in `each` threads that begin on each rank; returns the sum of the results.
template <class F>
long on_each_rank(const Places& places, std::uint32_t each, const F& body) {
  const std::uint32_t n = each * kasane::ranks();
  std::vector<long> results(n, 0);
  std::vector<kasane::thread> threads;
  for (std::uint32_t t = 0; t < n; ++t) {
    threads.emplace_back([&, t] {
      kasane::this_thread::move_near(places.of(t % kasane::ranks()));
      results[t] = body(t, n);
    });
  }
  for (auto& thread : threads) thread.join();
  long sum = 0;
  for (const long r : results) sum += r;
  return sum;
}

}  // namespace kasane::test
