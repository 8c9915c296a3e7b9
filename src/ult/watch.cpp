// SPDX-License-Identifier: Apache-2.0
#include "ult/watch.h"

#include <bit>

#include "ult/watch_record.h"

namespace kasane::ult {
namespace {

// Addresses have 47 bits, words of 4 bytes 45. Multiplication by an odd number modulo 2^45 maps each to a
// different number, whose upper bits choose the list and whose lower 32 are the key: so no two words share
// both. The multiplier is 2^45 over the golden ratio (Knuth, "The Art of Computer Programming", 6.4), so
// neighbours lie apart.
constexpr std::uint32_t kWordBits = 45, kKeyBits = 32;
static_assert(kWatchLists == 1u << (kWordBits - kKeyBits));
constexpr std::uint64_t kGolden = 21'745'137'823'721;
constexpr std::uint64_t scatter(std::uint64_t word) noexcept {
  return word * kGolden & ((std::uint64_t{1} << kWordBits) - 1);
}

constexpr std::uint64_t kSpread = 64 * 1024;  ///< bytes in turn at each rank

struct AtWatch {
  Pool& pool;
  SyncHandle list;
  std::uint32_t key, epoch;
};

// As in mutex.cpp: the thread's stack is not touched after run().
void wait_at_watch(void* context, SlotId self) {
  const auto [pool, list, key, epoch] = *static_cast<AtWatch*>(context);
  const auto outcome = SyncRecords(pool).run<WatchAction>(list, WatchWait(self, key, epoch));
  if (outcome == WatchAction::changed) pool.make_ready(self, pool.config().rank);
}

}  // namespace

Watch::Watch(std::uint64_t offset, std::uint32_t ranks, const void* word) : word_(word) {
  const std::uint64_t scattered = scatter(offset / 4);
  list_ = SyncHandle::of(Rank{static_cast<std::uint32_t>(offset / kSpread % ranks)},
                         kSyncRecords + static_cast<std::uint32_t>(scattered >> kKeyBits));
  key_ = static_cast<std::uint32_t>(scattered);
}

std::uint32_t Watch::prepare() const {
  return static_cast<std::uint32_t>(
      SyncRecords(pool_of_thread("atomic::wait")).run<Word>(list_, WatchPrepare()));
}

void Watch::wait(std::uint32_t epoch, const char* call) const {
  AtWatch waiting{pool_of_thread(call), list_, key_, epoch};
  Pool::suspend(wait_at_watch, &waiting,
                {.kind = WaitsFor::Kind::word, .call = call, .object = list_.value, .address = word_});
}

void Watch::notify(Pool& here, bool all) const {
  SyncRecords(here).run<WatchAction>(list_, WatchNotify(key_, all));
}

}  // namespace kasane::ult
