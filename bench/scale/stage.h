// SPDX-License-Identifier: Apache-2.0
// What scripts of programs run on: a simulated cluster (cluster.h), or ranks of a job (stage_player.cpp).
// Thread safety: an actor belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/ids.h"
#include "base/result.h"

namespace kasane::scale {

/// A name of a mutex or barrier: a sync record of a rank.
struct SyncName {
  Rank rank{0};
  std::uint32_t index = 0;
};

/// What a script's thread does, at a rank.
class Actor {
 public:
  virtual ~Actor() = default;
  virtual void compute(std::uint64_t ns) = 0;
  virtual void read(std::uint64_t offset, std::size_t bytes) = 0;
  virtual void write(std::uint64_t offset, std::size_t bytes) = 0;
  /// All ranks, as a team's members meet (kasane/team.hpp).
  virtual void meet() = 0;
  virtual void lock(SyncName mutex) = 0;
  virtual void unlock(SyncName mutex) = 0;
  /// A one-sided operation on global memory, as get, put and atomics of the program are made of.
  virtual void get(std::uint64_t offset, std::size_t bytes) = 0;
  virtual void put(std::uint64_t offset, std::size_t bytes) = 0;
  virtual void add(std::uint64_t offset) = 0;
  virtual void allreduce(std::size_t doubles) = 0;
  virtual void barrier_of_collectives() = 0;
  [[nodiscard]] virtual Rank rank() const noexcept = 0;
  [[nodiscard]] virtual std::uint32_t ranks() const noexcept = 0;
  [[nodiscard]] virtual std::uint64_t random(std::uint64_t bound) = 0;
};

/// A thread that forks, in phases: the children of one run one after the other on its worker unless they are
/// stolen; it joins them all, and then begins the next.
struct Node {
  std::uint64_t a = 0, b = 0;  ///< what the program makes of it
};
class ForkJoin {
 public:
  virtual ~ForkJoin() = default;
  /// The children of a phase, from 0 on. Returns the time before they are forked, ns.
  virtual std::uint64_t children(const Node&, std::uint32_t phase, std::vector<Node>& into) const = 0;
  [[nodiscard]] virtual std::uint32_t phases(const Node&) const { return 1; }
  /// What it loads and stores when it begins.
  virtual void touch(Actor&, const Node&) const {}
};

class Stage {
 public:
  virtual ~Stage() = default;
  [[nodiscard]] virtual std::uint32_t ranks() const noexcept = 0;
  /// Where the heap begins.
  [[nodiscard]] virtual std::uint64_t heap() const noexcept = 0;
  /// Names owners of pages of the heap, by their number in [offset, offset + bytes): before a run.
  virtual void place(std::uint64_t offset, std::uint64_t bytes,
                     const std::function<Rank(std::uint64_t page)>& owner) = 0;
  virtual void make_mutex(SyncName) = 0;
  /// body on every rank's worker, as a team's members do; until all have ended.
  virtual Result<void> play(const std::function<void(Actor&)>& body) = 0;
  /// root at rank 0, all ranks take part. Returns the time of all threads together, as children() says it.
  virtual Result<std::uint64_t> play_tree(const ForkJoin&, const Node& root) = 0;
};

}  // namespace kasane::scale
