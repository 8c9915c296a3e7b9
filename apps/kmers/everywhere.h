// SPDX-License-Identifier: Apache-2.0
// A thread for each worker of the job.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <kasane/kasane.hpp>
#include <utility>
#include <vector>

namespace apps::kmers {

/// Calls f(i) for i in [0, n), each on a thread at rank_of(i). On a thread. Throws the first exception, when
/// all calls have ended.
template <class RankOf, class F>
void on_threads(std::size_t n, const RankOf& rank_of, const F& f) {
  std::vector<kasane::thread> threads;
  threads.reserve(n);
  std::exception_ptr failure;
  const auto guarded = [&failure](auto&& call) {
    try {
      call();
    } catch (...) {
      if (!failure) failure = std::current_exception();
    }
  };
  guarded([&] {
    for (std::size_t i = 0; i < n; ++i) threads.emplace_back(kasane::at{rank_of(i)}, [i, &f] { f(i); });
  });
  for (auto& t : threads) guarded([&t] { t.join(); });
  if (failure) std::rethrow_exception(std::move(failure));
}

[[nodiscard]] inline std::size_t all_workers() { return std::size_t{kasane::ranks()} * kasane::workers(); }

/// f(i) for i in [0, all_workers()), one at each worker's rank.
template <class F>
void on_all_workers(const F& f) {
  const std::uint32_t workers = kasane::workers();
  on_threads(all_workers(), [workers](std::size_t i) { return static_cast<std::uint32_t>(i / workers); }, f);
}

}  // namespace apps::kmers
