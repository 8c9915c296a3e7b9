// SPDX-License-Identifier: Apache-2.0
// The asynchronous operations of Transport, awaited through a Waiter: for threads that have nothing else to
// do. Each call retries while the transport answers again, and returns when the operation has completed.
// Thread safety: an object belongs to one thread.
#pragma once

#include "base/counters.h"
#include "comm/waiter.h"

namespace kasane::comm {

class Blocking {
 public:
  /// counters: those of the calling thread, for the layers that receive this object; may be null.
  Blocking(Transport& transport, Waiter& waiter, Counters* counters = nullptr) noexcept
      : transport_(transport), waiter_(waiter), counters_(counters) {}

  void read(RemoteAddr from, void* to, std::size_t bytes);
  void write(RemoteAddr to, const void* from, std::size_t bytes);
  std::uint64_t load(RemoteAddr at);               ///< an atomic 64-bit read
  void store(RemoteAddr at, std::uint64_t value);  ///< an atomic 64-bit write (a swap)
  std::uint64_t fetch_add(RemoteAddr at, std::uint64_t operand);
  std::uint64_t fetch_and(RemoteAddr at, std::uint64_t operand);
  std::uint64_t fetch_or(RemoteAddr at, std::uint64_t operand);
  std::uint64_t swap(RemoteAddr at, std::uint64_t operand);
  /// Returns the old value: equal to expected if and only if desired was stored.
  std::uint64_t compare_swap(RemoteAddr at, std::uint64_t expected, std::uint64_t desired);
  void send(Rank to, HandlerId handler, std::span<const std::byte> payload);
  /// doorbell_delay_ns: see PendingReply; for waiters that poll.
  std::uint64_t request(Rank to, HandlerId handler, std::span<const std::byte> payload,
                        std::uint32_t doorbell_delay_ns = 0);

  /// Adds to a counter of the calling thread, if it has any.
  void count(std::atomic<std::uint64_t> Counters::* counter, std::uint64_t n = 1) noexcept {
    if (counters_ != nullptr) kasane::count(counters_->*counter, n);
  }
  /// Counts a one-sided operation, if the target is not mapped here.
  void count_round_trip(RemoteAddr at) noexcept {
    if (counters_ != nullptr && transport_.mapped(at.rank, at.region) == nullptr)
      count(&Counters::remote_operations);
  }

  [[nodiscard]] Transport& transport() const noexcept { return transport_; }
  [[nodiscard]] Waiter& waiter() const noexcept { return waiter_; }
  [[nodiscard]] Counters* counters() const noexcept { return counters_; }

 private:
  Transport& transport_;
  Waiter& waiter_;
  Counters* counters_;
};

template <class T>
[[nodiscard]] std::span<const std::byte> as_payload(const T& value) noexcept {
  return std::as_bytes(std::span<const T, 1>(&value, 1));
}

}  // namespace kasane::comm
