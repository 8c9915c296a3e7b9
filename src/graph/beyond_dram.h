// SPDX-License-Identifier: Apache-2.0
// How a kernel uses a graph that is larger than DRAM: what it reads and writes at random stays there while it
// runs, and the neighbours in rows leave first. Of a graph that DRAM holds nothing is said.
//
// Thread safety: the thread that runs the kernel's team makes and ends it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <kasane/kasane.hpp>
#include <memory>
#include <vector>

#include "graph/layout.h"

namespace kasane::graph::detail {

/// Says of all neighbours in the rows of a rank how they are used.
void advise_rows(const Layout& l, std::uint32_t rank, usage how);
/// Of all ranks.
inline void advise_rows(const Layout& l, usage how) {
  for (std::uint32_t r = 0; r < l.ranks; ++r) advise_rows(l, r, how);
}

/// A pin that a member makes, of what its rank has: n elements, at least one.
template <class T>
[[nodiscard]] std::unique_ptr<pin<std::byte>> held_here(const T* p, std::size_t n) {
  const polling_scope here;  // a member stays at its rank
  prefetch(p, n);            // many reads at once
  return std::make_unique<pin<std::byte>>(reinterpret_cast<const std::byte*>(p), n * sizeof(T));
}

/// Arrays that stay in DRAM as long as this lives, and others that give way to them.
class Held {
 public:
  /// normal: what the kernel reads of rows in order is found by the runtime, and read ahead.
  explicit Held(const Layout& l, usage of_rows = usage::once)
      : l_(l), left_(l.ranks, l.beyond_dram ? most() : 0) {
    advise_rows(l_, of_rows);
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  ~Held() { advise_rows(l_, usage::normal); }

  /// n elements at the rank; first those that matter most. What would leave too little for rows is not held.
  template <class T>
  void hold(std::uint32_t rank, const T* p, std::size_t n) {
    const std::size_t bytes = n * sizeof(T);
    if (n == 0 || bytes > left_[rank]) return;
    left_[rank] -= bytes;
    if (rank == kasane::rank()) prefetch(p, n);  // many reads at once
    pins_.push_back(std::make_unique<pin<std::byte>>(reinterpret_cast<const std::byte*>(p), bytes));
  }
  /// What the kernel does not need.
  template <class T>
  void let_go(const T* p, std::size_t n) const {
    if (l_.beyond_dram && n != 0) evict(p, n);
  }

  /// Bytes of a rank that may be held: of what the runtime does not need itself a quarter is left for rows.
  [[nodiscard]] static std::uint64_t most() noexcept {
    constexpr std::uint64_t kRuntime = 6 << 20;
    return (std::max(dram(), kRuntime) - kRuntime) / 4 * 3;
  }

 private:
  const Layout& l_;
  std::vector<std::uint64_t> left_;  ///< bytes, of each rank
  std::vector<std::unique_ptr<pin<std::byte>>> pins_;
};

}  // namespace kasane::graph::detail
