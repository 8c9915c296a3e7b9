// SPDX-License-Identifier: Apache-2.0
// Messages that have arrived and wait for their handlers, and the replies that this rank waits for.
//
//   AM callback (lane 0's lock) ─ copy ─▶ Inbox ─▶ gate holder: handler ─▶ free again
//   own messages ────────────────────────▶ OwnMessages ─▶ gate holder
//
// Thread safety: Inbox: put() by one thread at a time (lane 0's lock), front()/pop() by one (the gate). ReplySlots: any thread.
// Invariant: credits bound what peers may send, so an Inbox never overflows.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "base/assert.h"
#include "comm/ucx/wire.h"

namespace kasane::comm::ucx {

struct Arrived {
  Head head;
  std::uint32_t bytes;
  alignas(8) std::byte payload[kMaxPayload];
};

/// A ring of pointers to copied messages. Buffers are taken last in, first out, so that memory which was never needed is never touched.
class Inbox {
 public:
  Inbox() = default;
  ~Inbox() {
    if (memory_ != nullptr) ::munmap(memory_, bytes_);
  }
  Inbox(const Inbox&) = delete;
  Inbox& operator=(const Inbox&) = delete;

  /// Room for `messages`; false if there is no memory.
  bool create(std::size_t messages) noexcept {
    slots_ = std::bit_ceil(messages + 1);
    const std::size_t ring = slots_ * sizeof(std::uint32_t);
    bytes_ = messages * sizeof(Cell) + ring;
    void* p = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return false;
    memory_ = static_cast<std::byte*>(p);
    messages_ = messages;
    return true;
  }

  void put(const Head& head, std::span<const std::byte> payload) noexcept {
    const std::uint32_t index = take();
    Cell& c = cell(index);
    c.message.head = head;
    c.message.bytes = static_cast<std::uint32_t>(payload.size());
    if (!payload.empty()) std::memcpy(c.message.payload, payload.data(), payload.size());
    const std::uint64_t tail = tail_.load(std::memory_order_relaxed);  // relaxed: ours alone
    ring()[tail & (slots_ - 1)] = index;
    tail_.store(tail + 1, std::memory_order_release);  // release: the consumer sees the message
  }

  [[nodiscard]] bool empty() const noexcept {
    // head before tail, which only grows: never empty by mistake. seq_cst: who leaves the gate looks here after it (run_messages).
    const std::uint64_t head = head_.load(std::memory_order_seq_cst);
    return head == tail_.load(std::memory_order_seq_cst);
  }
  const Arrived* front() noexcept {
    const std::uint64_t head = head_.load(std::memory_order_relaxed);             // relaxed: ordered by the gate
    if (head == tail_.load(std::memory_order_acquire)) return nullptr;            // acquire: pairs with put()
    return &cell(ring()[head & (slots_ - 1)]).message;
  }
  void pop() noexcept {
    const std::uint64_t head = head_.load(std::memory_order_relaxed);             // relaxed: ordered by the gate
    const std::uint32_t index = ring()[head & (slots_ - 1)];
    head_.store(head + 1, std::memory_order_release);                             // release: only for empty()
    std::uint32_t top = returned_.load(std::memory_order_relaxed);                // relaxed: a guess
    do {
      cell(index).next = top;
      // release: our reads of the payload are over before it is overwritten.
    } while (!returned_.compare_exchange_weak(top, index + 1, std::memory_order_release, std::memory_order_relaxed));
  }

 private:
  struct alignas(64) Cell {
    Arrived message;
    std::uint32_t next;   ///< index + 1 in a list; 0: last
  };
  Cell& cell(std::uint32_t index) noexcept { return reinterpret_cast<Cell*>(memory_)[index]; }
  std::uint32_t* ring() noexcept { return reinterpret_cast<std::uint32_t*>(memory_ + messages_ * sizeof(Cell)); }

  /// Ours, then what was returned (all at once, so nobody else pops and no ABA), then one that was never used.
  std::uint32_t take() noexcept {
    if (mine_ == 0) mine_ = returned_.exchange(0, std::memory_order_acquire);     // acquire: pairs with pop()
    if (mine_ != 0) {
      const std::uint32_t index = mine_ - 1;
      mine_ = cell(index).next;
      return index;
    }
    KASANE_CHECK_OP(untouched_, <, messages_);   // a peer sent more than its credits
    return untouched_++;
  }

  std::byte* memory_ = nullptr;
  std::size_t bytes_ = 0, slots_ = 0, messages_ = 0;
  std::uint32_t mine_ = 0, untouched_ = 0;                        ///< the producer's
  std::atomic<std::uint32_t> returned_{0};
  alignas(64) std::atomic<std::uint64_t> tail_{0};
  alignas(64) std::atomic<std::uint64_t> head_{0};
};

/// Messages of a rank to itself: slots that any thread claims and fills, in no order.
/// used: claimed; ready: filled, waits for its handler; both 0: free.
class OwnMessages {
 public:
  /// Copies the message into a slot; false if all are in use.
  bool put(const Head& head, std::span<const std::byte> payload) noexcept {
    for (std::uint32_t w = 0; w < kWords; ++w) {
      std::uint64_t bits = used_[w].load(std::memory_order_relaxed);  // relaxed: a guess, the compare-swap decides
      while (bits != ~std::uint64_t{0}) {
        const auto bit = static_cast<std::uint32_t>(std::countr_one(bits));
        const std::uint64_t mask = std::uint64_t{1} << bit;
        // acquire: pairs with pop(): the handler is over with the payload that we overwrite.
        if (!used_[w].compare_exchange_weak(bits, bits | mask, std::memory_order_acquire, std::memory_order_relaxed)) continue;
        Arrived& slot = slots_[w * 64 + bit];
        slot.head = head;
        slot.bytes = static_cast<std::uint32_t>(payload.size());
        if (!payload.empty()) std::memcpy(slot.payload, payload.data(), payload.size());
        ready_[w].fetch_or(mask, std::memory_order_seq_cst);  // seq_cst: publishes it, and as empty()
        return true;
      }
    }
    return false;
  }

  [[nodiscard]] bool empty() const noexcept {
    // seq_cst: who leaves the gate looks here after it (run_messages).
    return std::all_of(ready_.begin(), ready_.end(), [](const auto& word) { return word.load(std::memory_order_seq_cst) == 0; });
  }
  /// A message, or null; in place until pop(). Words take turns, so that no message waits for ever.
  const Arrived* front() noexcept {
    for (std::uint32_t i = 0; i < kWords; ++i) {
      const std::uint32_t w = (turn_ + i) % kWords;
      const std::uint64_t bits = ready_[w].load(std::memory_order_acquire);  // acquire: pairs with put()
      if (bits == 0) continue;
      taken_ = w * 64 + static_cast<std::uint32_t>(std::countr_zero(bits));
      turn_ = w + 1;
      return &slots_[taken_];
    }
    return nullptr;
  }
  /// The slot of the last front() is free.
  void pop() noexcept {
    const std::uint64_t mask = std::uint64_t{1} << taken_ % 64;
    ready_[taken_ / 64].fetch_and(~mask, std::memory_order_seq_cst);   // seq_cst: as empty()
    used_[taken_ / 64].fetch_and(~mask, std::memory_order_release);    // release: pairs with put()
  }

 private:
  static constexpr std::uint32_t kWords = kCredits / 64;
  std::array<std::atomic<std::uint64_t>, kWords> used_{}, ready_{};
  std::uint32_t turn_ = 0, taken_ = 0;   ///< the consumer's
  std::array<Arrived, kCredits> slots_;
};

/// Where answers arrive. state = 2 × stamp: waiting (or free); 2 × stamp + 1: answered. Stamps are never used twice for a slot.
/// Bytes that an answer brings along wait in memory of the slot, which costs DRAM where it was used: whoever tests the request takes them, so a late answer writes to nobody's buffer.
class ReplySlots {
 public:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};

  ReplySlots() = default;
  ~ReplySlots() {
    if (brought_ != nullptr) ::munmap(brought_, kReplySlots * kMaxAnswer);
  }
  ReplySlots(const ReplySlots&) = delete;
  ReplySlots& operator=(const ReplySlots&) = delete;

  /// False if there is no memory.
  bool create() noexcept {
    void* p = ::mmap(nullptr, kReplySlots * kMaxAnswer, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return false;
    brought_ = static_cast<std::byte*>(p);
    return true;
  }

  /// Claims a slot for an answer of peer and sets it to waiting; kNone if all are in use.
  std::uint32_t claim(std::uint32_t peer, std::uint64_t& stamp) noexcept {
    for (std::uint32_t w = 0; w < used_.size(); ++w) {
      std::uint64_t bits = used_[w].load(std::memory_order_relaxed);  // relaxed: a guess, the compare-swap decides
      while (bits != ~std::uint64_t{0}) {
        const auto bit = static_cast<std::uint32_t>(std::countr_one(bits));
        // acquire: pairs with release(), so the slot's last user has finished with it.
        if (!used_[w].compare_exchange_weak(bits, bits | std::uint64_t{1} << bit, std::memory_order_acquire, std::memory_order_relaxed)) continue;
        Slot& slot = slots_[w * 64 + bit];
        stamp = slot.state.load(std::memory_order_relaxed) / 2 + 1;   // relaxed: ours alone, until the request is on its way
        slot.state.store(stamp * 2, std::memory_order_relaxed);
        slot.peer = peer;
        return w * 64 + bit;
      }
    }
    return kNone;
  }
  void release(std::uint32_t index) noexcept {
    // release: the value was read before the slot can be claimed again.
    used_[index / 64].fetch_and(~(std::uint64_t{1} << index % 64), std::memory_order_release);
  }
  /// The answer; one that comes after its request was given up (a peer that was called lost too early) is dropped.
  void answer(std::uint32_t index, std::uint64_t stamp, std::uint64_t value, std::span<const std::byte> bytes) noexcept {
    KASANE_CHECK_OP(index, <, kReplySlots);
    Slot& slot = slots_[index];
    if (slot.state.load(std::memory_order_relaxed) != stamp * 2) return;  // relaxed: only the answerer moves it on
    slot.value.store(value, std::memory_order_relaxed);                   // relaxed: published by the last line, as the bytes are
    slot.brought = static_cast<std::uint32_t>(bytes.size());
    if (!bytes.empty()) std::memcpy(brought_ + index * kMaxAnswer, bytes.data(), bytes.size());
    slot.state.store(stamp * 2 + 1, std::memory_order_release);           // release: and what the handler did before
  }
  [[nodiscard]] bool answered(std::uint32_t index, std::uint64_t stamp) const noexcept {
    return slots_[index].state.load(std::memory_order_acquire) == stamp * 2 + 1;  // acquire: pairs with answer()
  }
  [[nodiscard]] std::uint64_t value(std::uint32_t index) const noexcept {
    return slots_[index].value.load(std::memory_order_relaxed);           // relaxed: ordered by answered()
  }
  /// Of an answered slot.
  [[nodiscard]] std::span<const std::byte> brought(std::uint32_t index) const noexcept { return {brought_ + index * kMaxAnswer, slots_[index].brought}; }
  [[nodiscard]] std::uint32_t peer(std::uint32_t index) const noexcept { return slots_[index].peer; }

 private:
  struct alignas(64) Slot {
    std::atomic<std::uint64_t> state{0}, value{0};
    std::uint32_t peer = 0, brought = 0;
  };
  std::array<std::atomic<std::uint64_t>, kReplySlots / 64> used_{};
  std::array<Slot, kReplySlots> slots_;
  std::byte* brought_ = nullptr;
};

}  // namespace kasane::comm::ucx
