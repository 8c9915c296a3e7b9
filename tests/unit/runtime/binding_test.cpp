// SPDX-License-Identifier: Apache-2.0
// runtime/rank/binding.h: which cores a rank's threads run on. Each question is a thread's of its own, since
// what is bound stays bound.
#include "runtime/rank/binding.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <thread>
#include <vector>

namespace kasane::runtime {
namespace {

using Cores = std::vector<std::uint32_t>;

std::vector<topo::Core> cores() { return topo::Machine::discover().value().cores(); }

/// Where a thread may run after it has bound itself.
template <class F>
Cores after(const F& f) {
  Cores found;
  std::thread([&] {
    f();
    found = topo::affinity().value();
  }).join();
  return found;
}

TEST(Binding, WorkersTakeCoresInTurn) {
  const auto all = cores();
  constexpr std::uint32_t kRanks = 3, kWorkers = 2;
  for (std::uint32_t rank = 0; rank != kRanks; ++rank) {
    const Binding binding =
        Binding::create(topo::BindTo::parse("core").value(), rank, kRanks, kWorkers).value();
    for (std::uint32_t w = 0; w != kWorkers; ++w) {
      const topo::Core& core = all[(rank * kWorkers + w) % all.size()];
      EXPECT_EQ(after([&] { binding.bind_worker(w); }), Cores{core.cpu})
          << "worker " << w << " of rank " << rank;
    }
  }
}

TEST(Binding, ServersTakeWhatIsLeft) {
  const auto all = cores();
  const Cores anywhere = topo::affinity().value();
  for (std::uint32_t workers = 1; workers <= all.size() + 1; ++workers) {
    const Binding binding = Binding::create(topo::BindTo::parse("core").value(), 0, 1, workers).value();
    Cores left;
    for (std::size_t i = workers; i < all.size(); ++i) left.push_back(all[i].cpu);
    std::sort(left.begin(), left.end());
    EXPECT_EQ(after([&] { binding.bind_server(); }), left.empty() ? anywhere : left) << workers << " workers";
  }
}

TEST(Binding, BindsNothingUnlessAsked) {
  const Cores anywhere = topo::affinity().value();
  EXPECT_EQ(after([] { Binding().bind_worker(0); }), anywhere);
  EXPECT_EQ(after([] { Binding().bind_server(); }), anywhere);
}

}  // namespace
}  // namespace kasane::runtime
