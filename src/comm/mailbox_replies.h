// SPDX-License-Identifier: Apache-2.0
// The slots in which a rank receives the answers to its requests.
//
//   state = 2 × stamp: waiting, or free      2 × stamp + 1: answered, value is valid
//
//   request(): takes an index, stamp + 1, waiting ─▶ [message] ─▶ answer(): value, then answered
//                                                        take(): reads value, gives the index back ◀─┘
//
// A stamp is used only once in a slot, so a token that was kept too long is noticed. Zeroed memory is a slot
// that was never used.
//
// Thread safety: everything from any thread, also a fault handler. One thread at a time tests a PendingReply.
// Invariants: an index is free, or belongs to one PendingReply; a waiting slot leaves that state by answer(),
// or by test() when the peer is lost.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>

#include "base/assert.h"
#include "comm/index_pool.h"
#include "comm/transport.h"

namespace kasane::comm {

struct alignas(64) ReplySlot {
  std::atomic<std::uint64_t> state;
  std::atomic<std::uint64_t> value;
  /// the requester polls state, so the answer rings no doorbell (comm/shm)
  std::atomic<std::uint32_t> watched;
  std::uint32_t brought;  ///< number of bytes that came with the answer

  /// Stores the answer; release at least: with it the waiting thread sees what the handler did before. False:
  /// no request with this stamp waits here any more, and nothing happened.
  bool answer(std::uint64_t stamp, std::uint64_t answer_value,
              std::memory_order order = std::memory_order_release) noexcept {
    // relaxed: only the answer changes it
    if (state.load(std::memory_order_relaxed) != stamp * 2) return false;
    // relaxed: published by the next line
    value.store(answer_value, std::memory_order_relaxed);
    state.store(stamp * 2 + 1, order);  // release at least: it also publishes what the handler did before
    return true;
  }
};

class ReplySlots {
 public:
  /// slots: zeroed memory that peers can write to. Null: the slots are allocated here.
  explicit ReplySlots(std::uint32_t count, ReplySlot* slots = nullptr)
      : count_(count),
        made_(slots == nullptr ? new ReplySlot[count]() : nullptr),
        slots_(slots == nullptr ? made_.get() : slots),
        free_(count) {}
  ~ReplySlots() {
    if (bytes_ != nullptr) ::munmap(bytes_, count_ * kMaxAnswer);
  }
  ReplySlots(const ReplySlots&) = delete;
  ReplySlots& operator=(const ReplySlots&) = delete;

  /// Reserves memory for the bytes that come with answers; it costs DRAM where it is used. False if there is
  /// none.
  bool reserve_bytes() noexcept {
    void* p = ::mmap(nullptr, count_ * kMaxAnswer, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return false;
    bytes_ = static_cast<std::byte*>(p);
    return true;
  }

  /// Transport::request(). send(slot, stamp) sends the message, or returns again. ring_at_ns: as in
  /// PendingReply.
  template <class Send>
  Post request(Rank to, PendingReply& pending, const Send& send, std::uint64_t ring_at_ns = 0) noexcept {
    const std::uint32_t index = free_.take();
    if (index == IndexPool<>::kNone) return Post::again;
    ReplySlot& slot = slots_[index];
    // relaxed, all: only this thread uses the slot until send() publishes (release) the message that names
    // it.
    const std::uint64_t stamp = slot.state.load(std::memory_order_relaxed) / 2 + 1;
    slot.state.store(stamp * 2, std::memory_order_relaxed);
    slot.watched.store(ring_at_ns != 0, std::memory_order_relaxed);
    // Filled before the message can be answered: by then another thread may test `pending`.
    const PendingReply before = pending;
    pending = {.slot = index,
               .stamp = stamp,
               .doorbell_delay_ns = before.doorbell_delay_ns,
               .to = to,
               .ring_at_ns = ring_at_ns,
               .into = before.into};
    if (send(index, stamp) != Post::again) return Post::pending;
    pending = {.doorbell_delay_ns = before.doorbell_delay_ns, .into = before.into};
    free_.put(index);
    return Post::again;
  }

  [[nodiscard]] ReplySlot& slot(std::uint32_t index) noexcept {
    KASANE_CHECK_OP(index, <, count_);
    return slots_[index];
  }
  /// Stores an answer with its bytes, if memory was reserved for them.
  bool answer(std::uint32_t index, std::uint64_t stamp, std::uint64_t value,
              std::span<const std::byte> bytes = {}) noexcept {
    ReplySlot& s = slot(index);
    // relaxed: as in ReplySlot::answer(), which publishes all this.
    if (bytes_ != nullptr && s.state.load(std::memory_order_relaxed) == stamp * 2) {
      s.brought = static_cast<std::uint32_t>(bytes.size());
      if (!bytes.empty()) std::memcpy(bytes_ + index * kMaxAnswer, bytes.data(), bytes.size());
    }
    return s.answer(stamp, value);
  }

  /// Answers over a network that carries no stamps. The answer is dropped if no request waits in the slot.
  void answer_waiting(std::uint32_t index, std::uint64_t value) noexcept {
    ReplySlot& s = slot(index);
    // relaxed: only the answer changes it
    (void)s.answer(s.state.load(std::memory_order_relaxed) / 2, value);
  }

  [[nodiscard]] bool answered(const PendingReply& pending) noexcept {
    KASANE_CHECK(pending.stamp != 0,
                 "test() of a request that was not sent, or whose answer was taken already");
    // acquire: pairs with the answer. seq_cst on top: comm/shm clears `watched` before this load, and the two
    // must have one order with the answer's two accesses.
    const std::uint64_t state = slot(pending.slot).state.load(std::memory_order_seq_cst);
    if (state == pending.stamp * 2) return false;
    KASANE_CHECK_OP(state, ==, pending.stamp * 2 + 1);
    return true;
  }
  /// Takes the answer, which has come. Then the slot is free.
  void take(PendingReply& pending, std::uint64_t* value) noexcept {
    const ReplySlot& s = slots_[pending.slot];
    // relaxed: ordered by answered()
    if (value != nullptr) *value = s.value.load(std::memory_order_relaxed);
    const std::size_t brought = std::min<std::size_t>(s.brought, pending.into.size());
    if (brought != 0) std::memcpy(pending.into.data(), bytes_ + pending.slot * kMaxAnswer, brought);
    free_.put(pending.slot);
    pending = {.brought = brought};
  }
  /// Transport::test(). lost(rank): no answer of that rank can come any more.
  template <class Lost>
  [[nodiscard]] bool test(PendingReply& pending, std::uint64_t* value, const Lost& lost) noexcept {
    if (answered(pending)) {
      take(pending, value);
      return true;
    }
    if (!lost(pending.to)) return false;
    // relaxed: an answer that comes too late finds no waiting request.
    slots_[pending.slot].state.store(pending.stamp * 2 + 1, std::memory_order_relaxed);
    free_.put(pending.slot);
    pending = {.status = Status::peer_lost};
    return true;
  }

 private:
  std::uint32_t count_;
  std::unique_ptr<ReplySlot[]> made_;
  ReplySlot* slots_;
  std::byte* bytes_ = nullptr;
  IndexPool<> free_;
};

}  // namespace kasane::comm
