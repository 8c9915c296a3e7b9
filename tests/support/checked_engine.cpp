// SPDX-License-Identifier: Apache-2.0
#include "support/checked_engine.h"

#include <sched.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "base/assert.h"

namespace kasane::mem {
namespace {

constexpr std::uint32_t kRights = 3;  // low bits of a word
constexpr std::uint32_t kCopy = 4;    // one copy in progress

}  // namespace

Result<std::unique_ptr<CheckedEngine>> CheckedEngine::create(const Space& space) {
  auto rights = BlockTable::create(space.blocks());
  if (!rights) return tl::unexpected<Error>(std::move(rights).error());
  return std::unique_ptr<CheckedEngine>(new CheckedEngine(space, std::move(*rights)));
}

CheckedEngine::CheckedEngine(const Space& space, BlockTable rights)
    : a_(space.a(0)), bytes_(space.bytes()), rights_(std::move(rights)) {}

Result<void> CheckedEngine::start(FaultHandler handler, void* context) {
  handler_ = handler;
  handler_context_ = context;
  return {};
}

void CheckedEngine::stop() noexcept { handler_ = nullptr; }

void CheckedEngine::set_preemption(void (*callback)(void*), void* context) noexcept {
  preemption_ = callback;
  preemption_context_ = context;
}

Result<void> CheckedEngine::leave_open(BlockRange run) {
  KASANE_CHECK(protect(run, Access::write));
  return {};
}

bool CheckedEngine::protect(BlockRange run, Access access) noexcept {
  KASANE_CHECK(raw(run.first) <= rights_.blocks() && run.count <= rights_.blocks() - raw(run.first));
  for (std::uint64_t b = raw(run.first); b < raw(run.first) + run.count; ++b) {
    std::atomic<std::uint32_t>& word = rights_[BlockId{b}];
    std::uint32_t old = word.load(std::memory_order_relaxed);  // relaxed: the exchange decides
    // acq_rel: release, so that a thread that enters under the new rights sees the bytes put there before;
    // acquire, see below.
    while (!word.compare_exchange_weak(old, (old & ~kRights) | static_cast<std::uint32_t>(access),
                                       std::memory_order_acq_rel, std::memory_order_relaxed)) {
    }
    if (static_cast<std::uint32_t>(access) >= (old & kRights)) continue;
    // Copies that began under more rights. acquire: their stores come before what the caller does next (a
    // diff, for example).
    while (word.load(std::memory_order_acquire) >= kCopy) ::sched_yield();
  }
  return true;
}

Access CheckedEngine::access(std::uint64_t offset) const noexcept {
  KASANE_CHECK_OP(offset, <, bytes_);
  // acquire: rights seen imply the bytes behind them.
  return static_cast<Access>(rights_[block_of(offset)].load(std::memory_order_acquire) & kRights);
}

bool CheckedEngine::try_enter(BlockId block, Access wanted) noexcept {
  std::atomic<std::uint32_t>& word = rights_[block];
  std::uint32_t old = word.load(std::memory_order_relaxed);  // relaxed: the exchange decides
  while ((old & kRights) >= static_cast<std::uint32_t>(wanted))
    // acquire: the bytes put there by the thread that gave these rights.
    if (word.compare_exchange_weak(old, old + kCopy, std::memory_order_acquire, std::memory_order_relaxed))
      return true;
  return false;
}

void CheckedEngine::leave(BlockId block) noexcept {
  // release: our stores come before protect() returns.
  rights_[block].fetch_sub(kCopy, std::memory_order_release);
}

Result<void> CheckedEngine::enter(std::uint64_t offset, Access wanted) {
  while (!try_enter(block_of(offset), wanted)) {
    if (handler_ == nullptr || !handler_(handler_context_, offset, wanted, Served::in_place))
      return fail(Errc::out_of_range, std::string(wanted == Access::write ? "store" : "load") +
                                          " at offset " + std::to_string(offset) + ": wild");
    if (preemption_) preemption_(preemption_context_);
  }
  return {};
}

template <class Copy>
Result<void> CheckedEngine::each_piece(std::uint64_t offset, std::size_t n, Access wanted, Copy&& copy) {
  if (offset > bytes_ || n > bytes_ - offset)
    return fail(Errc::out_of_range, std::to_string(n) + " bytes at offset " + std::to_string(offset) +
                                        " are not in a space of " + std::to_string(bytes_));
  for (std::size_t done = 0; done < n;) {
    const std::uint64_t at = offset + done;
    const std::size_t piece = std::min<std::size_t>(n - done, kBlockBytes - at % kBlockBytes);
    KASANE_TRY(enter(at, wanted));
    copy(a_ + at, done, piece);
    leave(block_of(at));
    done += piece;
  }
  return {};
}

Result<void> CheckedEngine::read(std::uint64_t offset, void* to, std::size_t n) {
  return each_piece(offset, n, Access::read,
                    [to](const std::byte* frame, std::size_t done, std::size_t piece) {
                      std::memcpy(static_cast<std::byte*>(to) + done, frame, piece);
                    });
}

Result<void> CheckedEngine::write(std::uint64_t offset, const void* from, std::size_t n) {
  return each_piece(offset, n, Access::write, [from](std::byte* frame, std::size_t done, std::size_t piece) {
    std::memcpy(frame, static_cast<const std::byte*>(from) + done, piece);
  });
}

}  // namespace kasane::mem
