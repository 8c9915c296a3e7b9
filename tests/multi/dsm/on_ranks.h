// SPDX-License-Identifier: Apache-2.0
// What the tests of dsm over shm run on: a RankMemory in each of 1, 2 or 4 forked ranks, with pages of 4 KiB,
// 64 KiB or 2 MiB.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <functional>
#include <string>
#include <tuple>

#include "support/multi_rank.h"
#include "support/rank_memory.h"

namespace kasane::test {

using RanksAndPages = std::tuple<std::uint32_t, std::uint64_t>;  // ranks, bytes of a page

inline void on_ranks(RanksAndPages parameter, const std::function<void(RankMemory&)>& body,
                     std::uint32_t draw_after = 0) {
  std::byte* base = mem::reserve_space(RankMemory::kSpaceBytes).value();
  const auto [ranks, page_bytes] = parameter;
  run_ranks(ranks, [&, page = page_bytes](const comm::Job& job) {
    RankMemory memory(job, base, page, draw_after, RankMemory::faults_under_test(),
                      RankMemory::classification_under_test());
    body(memory);
  });
  ::munmap(base, RankMemory::kSpaceBytes);
}

class OnRanksAndPages : public testing::TestWithParam<RanksAndPages> {};

#define KASANE_ON_RANKS_AND_PAGES(suite)                                                           \
  INSTANTIATE_TEST_SUITE_P(                                                                        \
      RanksAndPages, suite,                                                                        \
      testing::Combine(testing::Values(1, 2, 4), testing::Values(4096, mem::kPageBytes, 2 << 20)), \
      [](const auto& of) {                                                                         \
        return std::to_string(std::get<0>(of.param)) + "ranks_" +                                  \
               std::to_string(std::get<1>(of.param) / 1024) + "KiB";                               \
      })

}  // namespace kasane::test
