// SPDX-License-Identifier: Apache-2.0
// Threads that do random things, for tests of what orders them: which things depends on the seed alone.
// Thread safety: for one thread of a pool.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "unit/ult/harness.h"

namespace kasane::ult {

/// body(t, random) in `threads` threads; returns when all have ended.
template <class F>
void random_threads(std::uint32_t threads, unsigned seed, const F& body) {
  std::vector<ThreadId> ids;
  for (std::uint32_t t = 0; t < threads; ++t) {
    ids.push_back(fork([&body, seed, t] {
      std::minstd_rand random(seed * 1009u + t + 1u);
      body(t, random);
    }));
  }
  for (const ThreadId id : ids) Pool::join(id);
}

}  // namespace kasane::ult
