// SPDX-License-Identifier: Apache-2.0
// Where this rank's memory lies among the NUMA nodes of its machine (docs/design/numa.md).
//
// **Pools.** Memory that is allocated with a policy comes from heaps of its own, of which each rank gives one
// to each policy that it uses: the rank's share of that pool has the policy for good. So what is freed leaves
// no policy to other memory, and a policy costs the process one mapping. One pool has blocks, which are bound
// allocation by allocation; nothing else is allocated there.
//
// **Bound ranges.** bind() gives a policy to whole pages of other memory. They lose it when the memory is
// freed, by whichever rank: a rank that binds tells the others, and a rank that frees asks those.
//
// A policy holds for M of this rank: for what this rank owns, and for its copies of what others own. On a
// machine of one node all policies are none.
//
// Thread safety: every call from any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <vector>

#include "base/result.h"
#include "comm/blocking.h"
#include "mem/fault_engine.h"
#include "mem/space.h"
#include "runtime/rank/segments.h"
#include "topo/numa.h"

namespace kasane::runtime {

/// What a program asks for.
struct NumaRequest {
  enum class Kind : std::uint8_t { none, node, interleave, weighted, blocks };
  Kind kind = Kind::none;
  topo::NodeSet nodes;  ///< empty: all that the process may use
  bool strict = false;
  std::uint64_t beyond = 0;  ///< a number that no machine's node has was named
};

class NumaMemory {
 public:
  /// For these nodes: none if it is one.
  [[nodiscard]] static std::uint64_t pools_wanted(const topo::NodeSet&);
  /// Nodes with memory that this process may use, as when it started.
  [[nodiscard]] const topo::NodeSet& nodes() const noexcept { return nodes_; }

  /// nodes: topo::memory_nodes(). Sets kNumaHandler.
  NumaMemory(comm::Transport&, const mem::Space&, Segments::Pools, const topo::NodeSet& nodes);

  /// Of this rank, before anything is bound.
  void use(const mem::FaultEngine& engine) noexcept { engine_ = &engine; }

  /// Binds all memory of this rank, where it has no other policy, to a node, as a preference (--bind numa).
  Result<void> prefer(std::uint32_t node);

  /// The pool to allocate from; 0: the usual heap. Errc::invalid_argument: there is no such node;
  /// out_of_memory: all pools have other policies.
  Result<std::uint32_t> pool_for(NumaRequest&);
  /// The pool for memory that takes the place of what lies at the offset (realloc); 0: the usual heap, also
  /// where that has blocks, whose sizes belong to one allocation.
  [[nodiscard]] std::uint32_t pool_like(std::uint64_t offset) const noexcept {
    const std::uint32_t pool = pool_of(offset);
    return pool == kBlocks ? 0 : pool;
  }
  /// The memory of a request of blocks was allocated: its pages, cut into equal parts. As bind().
  Result<void> place_blocks(comm::Blocking&, std::uint64_t offset, std::uint64_t bytes, const topo::NodeSet&);

  /// Gives a policy to the whole heap pages in the range, and moves what is present of them. Says once that
  /// pages stay where they are, if that is so.
  Result<void> bind(comm::Blocking&, std::uint64_t offset, std::uint64_t bytes, NumaRequest);
  /// Memory is about to be freed, after any_bound(). Ranges have whole pages, so small objects have none.
  void forget(comm::Blocking&, std::uint64_t offset, std::uint64_t bytes);
  // relaxed: whoever frees has synchronised with the rank that bound
  [[nodiscard]] bool any_bound() const noexcept { return any_bound_.load(std::memory_order_relaxed); }

  /// Where the OS pages of this rank's M lie.
  Result<topo::NumaPages> where(std::uint64_t offset, std::uint64_t bytes);
  struct Range {
    std::uint64_t offset, bytes;
  };
  /// Pages of this rank in these ranges that lie on other nodes than their policy wants; 0 where the kernel
  /// does not say. A range lies in one pool, or in none.
  std::uint64_t misplaced(std::span<const Range>);

 private:
  struct Bound {
    std::uint64_t bytes = 0;
    topo::NumaPolicy policy;
  };
  struct Note {
    /// freed: the answer 1 says that pages could not be moved and still have their policy, so that the sender
    /// has other ranks drop() them and asks again; ended: it ends in any case. drop: this process's
    /// translations of `owner`'s frames.
    enum class What : std::uint64_t { i_bind, freed, ended, drop } what;
    std::uint64_t offset, bytes, owner;
  };
  /// The pool that has blocks.
  static constexpr std::uint32_t kBlocks = 1;

  /// 0: the offset lies in none.
  [[nodiscard]] std::uint32_t pool_of(std::uint64_t offset) const noexcept {
    return pools_.contains(offset) ? static_cast<std::uint32_t>((offset - pools_.offset) / pools_.bytes) + 1
                                   : 0;
  }
  Result<topo::NumaPolicy> policy_of(NumaRequest&) const;
  void tell_others(comm::Blocking&);
  void note_bound(std::uint64_t offset, std::uint64_t bytes, const topo::NumaPolicy&);
  void cut_out(std::uint64_t offset, std::uint64_t bytes);
  template <class F>
  void for_each_bound(std::uint64_t offset, std::uint64_t bytes, const F&) const;
  [[nodiscard]] bool unbind(std::uint64_t offset, std::uint64_t bytes, bool in_any_case) noexcept;
  std::uint64_t try_move(std::uint64_t offset, std::uint64_t bytes, const topo::NodeSet& wanted,
                         topo::NodeSet& room) const noexcept;
  std::uint64_t move(comm::Blocking&, std::uint64_t offset, std::uint64_t bytes,
                     const topo::NumaPolicy&) const;
  void drop_kept(std::uint64_t offset, std::uint64_t bytes) const noexcept;
  void drop(Rank owner, std::uint64_t offset, std::uint64_t bytes) const noexcept;
  void drop_at_others(comm::Blocking&, Rank owner, std::uint64_t offset, std::uint64_t bytes) const;
  [[nodiscard]] topo::NumaPolicy home_of(const topo::NumaPolicy&) const noexcept;
  void warn_of_misplaced(std::uint64_t pages) noexcept;
  Result<void> count(std::uint64_t offset, std::uint64_t bytes, topo::NumaPages& to);
  [[nodiscard]] std::uint64_t share_bytes() const noexcept;
  [[nodiscard]] std::uint64_t share_of(std::uint32_t pool) const noexcept;
  static void on_message(void* self, const comm::Message&) noexcept;

  comm::Transport& transport_;
  const mem::Space& space_;
  const Segments::Pools pools_;
  const topo::NodeSet nodes_;
  const mem::FaultEngine* engine_ = nullptr;
  std::mutex mutex_;            ///< of what follows; held during system calls, never across communication
  topo::NumaPolicy preferred_;  ///< of all other memory
  std::vector<topo::NumaPolicy> policies_;  ///< of the pools, after the one with blocks
  std::map<std::uint64_t, Bound> bound_;    ///< by offset; disjoint
  std::vector<bool> binders_;               ///< ranks that have said so
  std::atomic<bool> any_bound_{false};      ///< by this rank, or by another
  std::atomic<bool> warned_{false};         ///< of misplaced pages
  std::atomic<bool> told_{false};           ///< all others know that this rank binds
};

}  // namespace kasane::runtime
