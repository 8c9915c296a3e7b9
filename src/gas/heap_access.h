// SPDX-License-Identifier: Apache-2.0
// How one call reaches the heap's words at one rank: by the CPU where they are mapped, else over the network.
// Operations at another rank are counted (trips) in both cases. Drives the machines of heap_protocol.h.
// Thread safety: an object belongs to one thread, for one call.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/counters.h"
#include "comm/batch.h"
#include "comm/region_words.h"
#include "gas/heap_layout.h"
#include "gas/regions.h"

namespace kasane::gas {

class HeapAccess {
 public:
  /// trips: a counter that the calling thread alone writes, or null.
  HeapAccess(comm::Blocking& io, const comm::RegionWords& words, const HeapLayout& layout, Rank rank,
             std::atomic<std::uint64_t>* trips) noexcept
      : io_(io),
        words_(words),
        layout_(layout),
        rank_(rank),
        trips_(rank == io.transport().rank() ? nullptr : trips) {}

  [[nodiscard]] comm::Blocking& io() const noexcept { return io_; }
  [[nodiscard]] Rank rank() const noexcept { return rank_; }
  [[nodiscard]] const HeapLayout& layout() const noexcept { return layout_; }
  [[nodiscard]] bool direct() const noexcept { return words_.is_direct(rank_); }

  std::uint64_t load(std::uint64_t at) { return tick(), words_.load(io_, rank_, at); }
  void store(std::uint64_t at, std::uint64_t value) { tick(), words_.store(io_, rank_, at, value); }
  std::uint64_t swap(std::uint64_t at, std::uint64_t value) {
    return tick(), words_.swap(io_, rank_, at, value);
  }
  std::uint64_t fetch_add(std::uint64_t at, std::uint64_t n) {
    return tick(), words_.fetch_add(io_, rank_, at, n);
  }
  std::uint64_t fetch_or(std::uint64_t at, std::uint64_t bits) {
    return tick(), words_.fetch_or(io_, rank_, at, bits);
  }
  std::uint64_t compare_swap(std::uint64_t at, std::uint64_t expected, std::uint64_t desired) {
    return tick(), words_.compare_swap(io_, rank_, at, expected, desired);
  }
  /// Words that no other rank changes now, or of which a torn or old value does no harm.
  void read(std::uint64_t at, std::uint64_t* to, std::size_t words) {
    tick();
    if (!direct()) return io_.read(words_.at(rank_, at), to, words * 8);
    for (std::size_t i = 0; i < words; ++i) to[i] = words_.load(io_, rank_, at + i * 8);
  }
  /// Words that no other rank reads before it learns by another operation that this one has ended.
  void write(std::uint64_t at, const std::uint64_t* from, std::size_t words) {
    tick();
    if (!direct()) return io_.write(words_.at(rank_, at), from, words * 8);
    for (std::size_t i = 0; i < words; ++i) words_.store(io_, rank_, at + i * 8, from[i]);
  }

  /// Writes the same bytes at every rank; all writes are outstanding at once.
  void write_everywhere(std::uint64_t at, const void* from, std::size_t bytes) {
    comm::Batch batch(io_);
    for (std::uint32_t r = 0; r < io_.transport().ranks(); ++r) {
      if (Rank{r} != io_.transport().rank()) tick();
      batch.write(words_.at(Rank{r}, at), from, bytes);
    }
  }

  /// Runs a machine to its end, on the stack whose head is at `head`.
  template <class Machine>
  void drive(Machine& machine, std::uint64_t head, bool groups) {
    while (!machine.over()) machine.answer(perform(machine.operation(), head, groups));
  }
  /// One operation of a machine, on a stack of groups. *old, when the batch was awaited: the word before it.
  void post(comm::Batch& batch, const HeapOperation& operation, std::uint64_t head, std::uint64_t* old) {
    tick();
    const std::uint64_t at = place(operation, head, true);
    switch (operation.what) {
      case HeapOperation::What::load: return words_.load(batch, rank_, at, old);
      case HeapOperation::What::store:
      case HeapOperation::What::swap: return words_.swap(batch, rank_, at, operation.operand, old);
      case HeapOperation::What::fetch_or: return words_.fetch_or(batch, rank_, at, operation.operand, old);
      case HeapOperation::What::compare_swap:
        return words_.compare_swap(batch, rank_, at, operation.compare, operation.operand, old);
    }
  }

 private:
  void tick() noexcept {
    if (trips_ != nullptr) count(*trips_);
  }
  [[nodiscard]] std::uint64_t place(const HeapOperation& operation, std::uint64_t head,
                                    bool groups) const noexcept {
    using Where = HeapOperation::Where;
    const std::uint64_t record = groups ? layout_.group(operation.item) : layout_.page(operation.item);
    return operation.where == Where::head ? head : operation.where == Where::next ? record + 8 : record;
  }
  std::uint64_t perform(const HeapOperation& operation, std::uint64_t head, bool groups) {
    const std::uint64_t at = place(operation, head, groups);
    switch (operation.what) {
      case HeapOperation::What::load: return load(at);
      case HeapOperation::What::store: return store(at, operation.operand), 0;
      case HeapOperation::What::swap: return swap(at, operation.operand);
      case HeapOperation::What::fetch_or: return fetch_or(at, operation.operand);
      case HeapOperation::What::compare_swap: return compare_swap(at, operation.compare, operation.operand);
    }
    return 0;
  }

  comm::Blocking& io_;
  const comm::RegionWords& words_;
  const HeapLayout& layout_;
  Rank rank_;
  std::atomic<std::uint64_t>* trips_;
};

}  // namespace kasane::gas
