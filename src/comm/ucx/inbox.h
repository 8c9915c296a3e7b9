// SPDX-License-Identifier: Apache-2.0
// Messages that have arrived and wait for their handlers.
//
//   AM callback (lane 0's lock) ─ copy ─▶ Inbox ─▶ gate holder: handler ─▶ free again
//
// Thread safety: put() by one thread at a time (lane 0's lock), front()/pop() by one (the gate).
// Invariant: credits bound what peers may send, so an Inbox never overflows.
#pragma once

#include <sys/mman.h>

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

/// A ring of indices of copied messages. Buffers are taken last in, first out, so buffers that were never
/// needed are never touched.
class Inbox {
 public:
  Inbox() = default;
  ~Inbox() {
    if (memory_ != nullptr) ::munmap(memory_, bytes_);
  }
  Inbox(const Inbox&) = delete;
  Inbox& operator=(const Inbox&) = delete;

  /// Allocates room for `messages`; false if there is no memory.
  bool create(std::size_t messages) noexcept {
    slots_ = std::bit_ceil(messages + 1);
    const std::size_t ring = slots_ * sizeof(std::uint32_t);
    bytes_ = messages * sizeof(Cell) + ring;
    void* p =
        ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
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
    const std::uint64_t tail = tail_.load(std::memory_order_relaxed);  // relaxed: only this thread writes it
    ring()[tail & (slots_ - 1)] = index;
    tail_.store(tail + 1, std::memory_order_release);  // release: the consumer sees the message
  }

  [[nodiscard]] bool empty() const noexcept {
    // head before tail, which only grows: never empty by mistake. seq_cst: a thread that leaves the gate
    // looks here afterwards (run_messages).
    const std::uint64_t head = head_.load(std::memory_order_seq_cst);
    return head == tail_.load(std::memory_order_seq_cst);
  }
  const Arrived* front() noexcept {
    // relaxed: ordered by the gate
    const std::uint64_t head = head_.load(std::memory_order_relaxed);
    if (head == tail_.load(std::memory_order_acquire)) return nullptr;  // acquire: pairs with put()
    return &cell(ring()[head & (slots_ - 1)]).message;
  }
  void pop() noexcept {
    // relaxed: ordered by the gate
    const std::uint64_t head = head_.load(std::memory_order_relaxed);
    const std::uint32_t index = ring()[head & (slots_ - 1)];
    head_.store(head + 1, std::memory_order_release);               // release: only for empty()
    std::uint32_t top = returned_.load(std::memory_order_relaxed);  // relaxed: a guess
    do {
      cell(index).next = top;
      // release: this thread has read the payload before it is overwritten.
    } while (!returned_.compare_exchange_weak(top, index + 1, std::memory_order_release,
                                              std::memory_order_relaxed));
  }

 private:
  struct alignas(64) Cell {
    Arrived message;
    std::uint32_t next;  ///< index + 1 in a list; 0: last
  };
  Cell& cell(std::uint32_t index) noexcept { return reinterpret_cast<Cell*>(memory_)[index]; }
  std::uint32_t* ring() noexcept {
    return reinterpret_cast<std::uint32_t*>(memory_ + messages_ * sizeof(Cell));
  }

  /// First from the producer's own list, then from the returned ones (all at once, so there is no ABA), then
  /// one that was never used.
  std::uint32_t take() noexcept {
    if (mine_ == 0) mine_ = returned_.exchange(0, std::memory_order_acquire);  // acquire: pairs with pop()
    if (mine_ != 0) {
      const std::uint32_t index = mine_ - 1;
      mine_ = cell(index).next;
      return index;
    }
    KASANE_CHECK_OP(untouched_, <, messages_);  // a peer sent more than its credits
    return untouched_++;
  }

  std::byte* memory_ = nullptr;
  std::size_t bytes_ = 0, slots_ = 0, messages_ = 0;
  std::uint32_t mine_ = 0, untouched_ = 0;  ///< used by the producer only
  std::atomic<std::uint32_t> returned_{0};
  alignas(64) std::atomic<std::uint64_t> tail_{0};
  alignas(64) std::atomic<std::uint64_t> head_{0};
};

}  // namespace kasane::comm::ucx
