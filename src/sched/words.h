// SPDX-License-Identifier: Apache-2.0
// The words of every rank's threads region (ult::Words) over a transport: an inline CPU atomic where the
// region is mapped here, else a one-sided atomic, awaited by polling.
//
// Thread safety: any thread. Invariant: sequentially consistent on every rank, as the transport promises
// (rule 15).
#pragma once

#include "base/call_selector.h"
#include "comm/blocking.h"
#include "comm/region_words.h"
#include "gas/regions.h"
#include "ult/edges.h"

namespace kasane::sched {

class RegionWords final : public ult::Words {
 private:
  // A Blocking belongs to one thread, so each call has its own: a few words on the stack.
  template <class F>
  decltype(auto) with_io(F&& call) {
    const PassedCalls passed;  // threads call it outside of RuntimeSections
    comm::PollWaiter waiter(transport_);
    comm::Blocking io(transport_, waiter);
    return call(io);
  }

 public:
  /// Made after the region was attached.
  explicit RegionWords(comm::Transport& transport, comm::RegionId region = gas::kThreads)
      : transport_(transport), words_(transport, region) {}

  [[nodiscard]] std::byte* region(Rank rank) noexcept override { return words_.base(rank); }
  std::uint64_t load(Rank rank, std::uint64_t offset) override {
    return with_io([&](comm::Blocking& io) { return words_.load(io, rank, offset); });
  }
  void store(Rank rank, std::uint64_t offset, std::uint64_t value) override {
    with_io([&](comm::Blocking& io) { words_.store(io, rank, offset, value); });
  }
  std::uint64_t compare_swap(Rank rank, std::uint64_t offset, std::uint64_t expected,
                             std::uint64_t desired) override {
    return with_io(
        [&](comm::Blocking& io) { return words_.compare_swap(io, rank, offset, expected, desired); });
  }
  std::uint64_t fetch_or(Rank rank, std::uint64_t offset, std::uint64_t operand) override {
    return with_io([&](comm::Blocking& io) { return words_.fetch_or(io, rank, offset, operand); });
  }
  std::uint64_t fetch_and(Rank rank, std::uint64_t offset, std::uint64_t operand) override {
    return with_io([&](comm::Blocking& io) { return words_.fetch_and(io, rank, offset, operand); });
  }

 private:
  comm::Transport& transport_;
  const comm::RegionWords words_;
};

}  // namespace kasane::sched
