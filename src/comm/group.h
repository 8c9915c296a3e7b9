// SPDX-License-Identifier: Apache-2.0
// Groups of ranks and their collectives: barrier, broadcast, reduce, allreduce, gather, allgather, alltoall,
// scan, each blocking and non-blocking.
//
//   Group& all = collectives.world();
//   all.allreduce(Reduce::sum, std::span(values));
//   auto rows = all.split(row, column);                       // as MPI_Comm_split
//   Ticket t = rows->start_broadcast(0, bytes);  …  t.wait();   // overlaps with other work
//
// Members are numbered 0 … size()-1; roots are such numbers. Buffers belong to the collective until it has
// completed. Every member calls the same collectives of a group in the same order, with the same sizes,
// types, operations and roots: where two members that differ exchange a message, a check fails and names
// group, collective and both ranks. Sizes: any, also 0.
//
// Thread safety: one thread at a time starts collectives of a group; different threads may use different
// groups at once. A ticket may be tested by any thread, one at a time. A wait for one collective advances all
// of this rank's; Collectives::progress() does so, too. No collective waits for a rank that it does not need.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "comm/collective_schedule.h"
#include "comm/reduction.h"
#include "comm/waiter.h"

namespace kasane::comm {

class CollectiveCore;
class GroupState;
struct CollectiveOperation;

/// A started collective. Its destructor waits for it.
class Ticket {
 public:
  Ticket() noexcept;  ///< empty
  Ticket(Ticket&&) noexcept;
  Ticket& operator=(Ticket&&) noexcept;
  ~Ticket();

  /// Advances collectives; true once this one has completed here.
  [[nodiscard]] bool test() noexcept;
  /// By the group's waiter, or the given one; ok, or peer_lost.
  Status wait();
  Status wait(Waiter&);

 private:
  friend class Group;
  Ticket(CollectiveCore&, GroupState&, std::unique_ptr<CollectiveOperation>) noexcept;
  void release() noexcept;
  CollectiveCore* core_ = nullptr;
  GroupState* group_ = nullptr;
  Waiter* waiter_ = nullptr;
  std::unique_ptr<CollectiveOperation> operation_;
};

enum class Scan : std::uint8_t { inclusive, exclusive };

class Group {
 public:
  static constexpr std::uint32_t kNoColour = 0xFFFFFFFFu;

  ~Group();  ///< on every member, after the last collective has completed
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  [[nodiscard]] std::uint32_t rank() const noexcept;  ///< this member's number
  [[nodiscard]] std::uint32_t size() const noexcept;
  [[nodiscard]] Rank member(std::uint32_t number) const noexcept;

  /// Collective over this group: one new group for each colour, ordered by key, then by number here. Null for
  /// kNoColour.
  [[nodiscard]] std::unique_ptr<Group> split(std::uint32_t colour, std::uint32_t key);
  /// Collective over this group: a new group of the members listed, in that order (the same list on all of
  /// them). Null for all others, which may give any list without themselves: several groups can be made at
  /// once.
  [[nodiscard]] std::unique_ptr<Group> subset(std::span<const std::uint32_t> numbers);

  Ticket start_barrier();
  Ticket start_broadcast(std::uint32_t root, std::span<std::byte> bytes);
  /// In place at the root; the others' values are only read.
  Ticket start_reduce(const Reduction&, std::uint32_t root, std::span<std::byte> values);
  Ticket start_allreduce(const Reduction&, std::span<std::byte> values);
  /// out: size() blocks of in.size() bytes, at the root only.
  Ticket start_gather(std::uint32_t root, std::span<const std::byte> in, std::span<std::byte> out);
  Ticket start_allgather(std::span<const std::byte> in, std::span<std::byte> out);
  /// in and out: size() blocks each; they do not overlap.
  Ticket start_alltoall(std::span<const std::byte> in, std::span<std::byte> out);
  /// values become the combination of those of members 0 … rank(), or (exclusive) 0 … rank()-1; then member 0
  /// keeps its own.
  Ticket start_scan(const Reduction&, std::span<std::byte> values, Scan = Scan::inclusive);

  void barrier() { finish(start_barrier()); }
  void broadcast(std::uint32_t root, std::span<std::byte> bytes) { finish(start_broadcast(root, bytes)); }
  void reduce(const Reduction& r, std::uint32_t root, std::span<std::byte> values) {
    finish(start_reduce(r, root, values));
  }
  void allreduce(const Reduction& r, std::span<std::byte> values) { finish(start_allreduce(r, values)); }
  void gather(std::uint32_t root, std::span<const std::byte> in, std::span<std::byte> out) {
    finish(start_gather(root, in, out));
  }
  void allgather(std::span<const std::byte> in, std::span<std::byte> out) {
    finish(start_allgather(in, out));
  }
  void alltoall(std::span<const std::byte> in, std::span<std::byte> out) { finish(start_alltoall(in, out)); }
  void scan(const Reduction& r, std::span<std::byte> values, Scan kind = Scan::inclusive) {
    finish(start_scan(r, values, kind));
  }

  template <class T>
  void reduce(Reduce op, std::uint32_t root, std::span<T> values) {
    reduce(reduction(scalar_of<T>(), op), root, std::as_writable_bytes(values));
  }
  template <class T>
  void allreduce(Reduce op, std::span<T> values) {
    allreduce(reduction(scalar_of<T>(), op), std::as_writable_bytes(values));
  }
  template <class T>
  void scan(Reduce op, std::span<T> values, Scan kind = Scan::inclusive) {
    scan(reduction(scalar_of<T>(), op), std::as_writable_bytes(values), kind);
  }

 private:
  friend class CollectiveCore;
  Group(CollectiveCore& core, GroupState& state, Waiter& waiter) noexcept
      : core_(core), state_(state), waiter_(&waiter) {}
  Ticket start(Plan);
  void finish(Ticket ticket);

  CollectiveCore& core_;
  GroupState& state_;
  Waiter* waiter_;
};

}  // namespace kasane::comm
