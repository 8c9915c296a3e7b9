// SPDX-License-Identifier: Apache-2.0
// Fork-join systems that are measured beside Kasane where they are installed: no distribution packages them, so nothing here installs them.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

namespace kasane::bench {

struct ForkJoin {
  const char* name;
  std::uint64_t (*fib)(unsigned n);                                        ///< a fork and a join for each inner node
  void (*with)(unsigned workers, const std::function<void()>& measure);   ///< calls measure, from which fib is called, with so many workers
  bool slow;                                                               ///< ten times slower or more: a smaller tree gives the same cost per node
};

/// Those that were found when this was built: libfork, MassiveThreads.
std::span<const ForkJoin> fork_join_peers();

}  // namespace kasane::bench
