// SPDX-License-Identifier: Apache-2.0
// 64-bit words of one region on any rank, as sequentially consistent atomics: an inline CPU atomic where the
// region is mapped here (own rank, and every rank of the host over shm), a one-sided atomic awaited through
// the Waiter elsewhere (rule 15).
// Thread safety: const after construction; the Blocking passed in belongs to the caller.
#pragma once

#include <atomic>
#include <vector>

#include "comm/batch.h"
#include "comm/blocking.h"

namespace kasane::comm {

class RegionWords {
 public:
  /// After the region was attached. Offsets count from `first` in it.
  RegionWords(Transport& transport, RegionId region, std::uint64_t first = 0)
      : region_(region), first_(first) {
    for (std::uint32_t r = 0; r < transport.ranks(); ++r) {
      const bool direct = Rank{r} == transport.rank() || transport.facts().completes_inline;
      std::byte* const base = direct ? transport.mapped(Rank{r}, region) : nullptr;
      bases_.push_back(base != nullptr ? base + first : nullptr);
    }
    if (!transport.facts().atomics_coherent_with_cpu) bases_.assign(bases_.size(), nullptr);
  }

  [[nodiscard]] RemoteAddr at(Rank rank, std::uint64_t offset) const noexcept {
    return {rank, region_, first_ + offset};
  }
  /// Are the rank's words mapped here?
  [[nodiscard]] bool is_direct(Rank rank) const noexcept { return bases_[raw(rank)] != nullptr; }
  [[nodiscard]] std::byte* base(Rank rank) const noexcept { return bases_[raw(rank)]; }

  std::uint64_t load(Blocking& io, Rank rank, std::uint64_t offset) const {
    if (auto* word = direct(rank, offset)) return word->load();
    return io.load(at(rank, offset));
  }
  void store(Blocking& io, Rank rank, std::uint64_t offset, std::uint64_t value) const {
    if (auto* word = direct(rank, offset)) return word->store(value);
    io.store(at(rank, offset), value);
  }
  std::uint64_t swap(Blocking& io, Rank rank, std::uint64_t offset, std::uint64_t value) const {
    if (auto* word = direct(rank, offset)) return word->exchange(value);
    return io.swap(at(rank, offset), value);
  }
  std::uint64_t fetch_add(Blocking& io, Rank rank, std::uint64_t offset, std::uint64_t operand) const {
    if (auto* word = direct(rank, offset)) return word->fetch_add(operand);
    return io.fetch_add(at(rank, offset), operand);
  }
  std::uint64_t fetch_or(Blocking& io, Rank rank, std::uint64_t offset, std::uint64_t operand) const {
    if (auto* word = direct(rank, offset)) return word->fetch_or(operand);
    return io.fetch_or(at(rank, offset), operand);
  }
  std::uint64_t fetch_and(Blocking& io, Rank rank, std::uint64_t offset, std::uint64_t operand) const {
    if (auto* word = direct(rank, offset)) return word->fetch_and(operand);
    return io.fetch_and(at(rank, offset), operand);
  }
  /// Returns the old value.
  std::uint64_t compare_swap(Blocking& io, Rank rank, std::uint64_t offset, std::uint64_t expected,
                             std::uint64_t desired) const {
    if (auto* word = direct(rank, offset)) {
      word->compare_exchange_strong(expected, desired);
      return expected;
    }
    return io.compare_swap(at(rank, offset), expected, desired);
  }

  /// The word itself, or null where it is not mapped here.
  [[nodiscard]] std::atomic<std::uint64_t>* here(Rank rank, std::uint64_t offset) const noexcept {
    return direct(rank, offset);
  }
  // The operations without waiting: *old is set once the batch was awaited, or at once where the word is
  // mapped here.
  void load(Batch& batch, Rank rank, std::uint64_t offset, std::uint64_t* old) const {
    if (auto* word = direct(rank, offset)) return void(*old = word->load());
    batch.atomic(AtomicOp::fetch_add, at(rank, offset), 0, 0, old);
  }
  void swap(Batch& batch, Rank rank, std::uint64_t offset, std::uint64_t value, std::uint64_t* old) const {
    if (auto* word = direct(rank, offset)) return void(*old = word->exchange(value));
    batch.atomic(AtomicOp::swap, at(rank, offset), value, 0, old);
  }
  /// A swap that need not be awaited: *old is set when the completion runs, or at once (done).
  Post swap(Blocking& io, Rank rank, std::uint64_t offset, std::uint64_t value, std::uint64_t* old,
            Completion* completion) const {
    if (auto* word = direct(rank, offset)) return *old = word->exchange(value), Post::done;
    const Post result = io.transport().atomic(AtomicOp::swap, at(rank, offset), value, 0, old, completion);
    if (result != Post::again) io.count_round_trip(at(rank, offset));
    return result;
  }
  void fetch_or(Batch& batch, Rank rank, std::uint64_t offset, std::uint64_t operand,
                std::uint64_t* old) const {
    if (auto* word = direct(rank, offset)) return void(*old = word->fetch_or(operand));
    batch.atomic(AtomicOp::fetch_or, at(rank, offset), operand, 0, old);
  }
  void fetch_and(Batch& batch, Rank rank, std::uint64_t offset, std::uint64_t operand,
                 std::uint64_t* old) const {
    if (auto* word = direct(rank, offset)) return void(*old = word->fetch_and(operand));
    batch.atomic(AtomicOp::fetch_and, at(rank, offset), operand, 0, old);
  }
  void compare_swap(Batch& batch, Rank rank, std::uint64_t offset, std::uint64_t expected,
                    std::uint64_t desired, std::uint64_t* old) const {
    if (direct(rank, offset) != nullptr)
      return void(*old = compare_swap(batch.io(), rank, offset, expected, desired));
    batch.atomic(AtomicOp::compare_swap, at(rank, offset), desired, expected, old);
  }

 private:
  // seq_cst throughout: these words carry Dekker-style handshakes (holders of a location and busy; deque
  // ends).
  [[nodiscard]] std::atomic<std::uint64_t>* direct(Rank rank, std::uint64_t offset) const noexcept {
    std::byte* base = bases_[raw(rank)];
    return base != nullptr ? reinterpret_cast<std::atomic<std::uint64_t>*>(base + offset) : nullptr;
  }

  RegionId region_;
  std::uint64_t first_;
  std::vector<std::byte*> bases_;
};

}  // namespace kasane::comm
