// SPDX-License-Identifier: Apache-2.0
// A group of posts (kasane_post_group_create): calls that are buffered at the poster's rank, travel together,
// and run on threads of another rank. It stands on the public interface alone.
//
//   poster's rank                                       destination
// post ─▶ desk: open block, full blocks ── put ──▶ desk: slots of this rank ─▶ receiver ─▶ function(argument)
//                    ▲ free: put ◀─────────────────────────────────────────────┘ its credit (posts/credit.h)
//
// A *desk* of each rank lies in fixed memory of that rank. Its owner uses loads, stores and the CPU's atomics
// there, the others put: so nothing here is a fence. Of each ordered pair of ranks the destination has
// kSlots slots. A block goes into a free one, whose ready word is put last. *Receivers*, as many threads a
// rank as it has workers, run what arrives, and send blocks that are not full when there is nothing to run;
// they sleep on the desk's bell.
//
// Waiting: a post waits for a free slot at most kHoldNs, then its block stays here, so no cycle of waits can
// close; a post of a running post does not wait. Receivers wait for nothing but their bell.
//
// Thread safety: post() and wait() from any thread of any rank. A desk's lock is held for a few instructions,
// never over a call that may wait.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <kasane/kasane.hpp>

#include "posts/credit.h"

namespace kasane::posts {

using Function = void (*)(void*);

inline constexpr std::uint32_t kMostReceivers = 64;
inline constexpr std::uint32_t kSlots = 2;       ///< for each ordered pair of ranks
inline constexpr std::size_t kMostBytes = 1024;  ///< of an argument
inline constexpr std::uint32_t kHeldBlocks = 4;  ///< full blocks for a rank from which on posters wait
inline constexpr std::uint64_t kHoldNs = 5'000'000;
inline constexpr std::uint64_t kPatienceNs = 50'000;  ///< a receiver leaves a block that is being filled

/// In front of a post's argument.
struct Record {
  Function function;
  std::uint64_t bytes;  ///< of the argument, rounded up to 8
};

/// A message that is being filled, in private memory of its rank.
struct Block {
  Block* next;
  std::uint64_t bytes;
  std::uint64_t opened_ns;
  std::uint64_t credit;  ///< from here on it travels: `bytes`, the credit first, then records
  [[nodiscard]] std::byte* mail() noexcept;
};
inline constexpr std::size_t kBlockHeader = offsetof(Block, credit);
inline std::byte* Block::mail() noexcept { return reinterpret_cast<std::byte*>(this) + kBlockHeader; }

class Group {
 public:
  /// Throws kasane::error and out_of_memory. On a thread.
  static Group* create();
  /// After wait(), when no thread posts.
  static void destroy(Group*);

  void post(std::uint32_t to, Function, const void* argument, std::size_t bytes);
  /// Returns when all posts have run: the first exception, once, or null.
  [[nodiscard]] std::exception_ptr wait();
  [[nodiscard]] std::uint32_t ranks() const noexcept { return ranks_; }
  /// Whether the calling thread, wherever it is now, runs one of the posts.
  [[nodiscard]] bool in_a_post() const;

 private:
  struct Queue {
    Block *first, *last;
    std::uint32_t count;
    void push(Block*) noexcept;
    Block* pop() noexcept;
  };
  struct Out {
    Block* open;
    Queue full;
    std::uint32_t used[kSlots];  ///< slots of the destination: 1 from the put on, until it is free again
  };
  struct In {
    std::uint64_t ready[kSlots];  ///< bytes of mail
    std::uint32_t taken[kSlots];
  };
  /// Of a rank; behind it an Out and an In for each rank, then the slots.
  struct Desk {
    std::uint32_t lock;
    std::uint32_t rank;
    Share share;
    Block* unused;
    Queue own;                       ///< posts of the rank to itself
    alignas(64) std::uint64_t bell;  ///< rings so far · 2 + a receiver may sleep
  };
  class Locked;
  /// A message that is being read.
  struct Taken {
    std::uint32_t from, slot;
    Block* own;
    const std::byte* mail;
    std::size_t bytes;
  };

  [[nodiscard]] Desk& desk(std::uint32_t rank) const noexcept {
    return *reinterpret_cast<Desk*>(desks_[rank]);
  }
  [[nodiscard]] Out& out(Desk& d, std::uint32_t to) const noexcept {
    return reinterpret_cast<Out*>(&d + 1)[to];
  }
  [[nodiscard]] In& in(Desk& d, std::uint32_t from) const noexcept {
    return reinterpret_cast<In*>(&out(d, ranks_))[from];
  }
  [[nodiscard]] std::byte* slot(Desk& d, std::uint32_t from, std::uint32_t k) const noexcept {
    return reinterpret_cast<std::byte*>(&d) + slots_at_ + (from * kSlots + k) * block_bytes_;
  }

  /// The threads of all receivers, which run user code in posts alone. Used directly.
  [[nodiscard]] kasane_thread_t* receivers() const noexcept {
    return reinterpret_cast<kasane_thread_t*>(const_cast<std::byte**>(desks_) + ranks_);
  }
  void start();
  void grant(Desk&);
  void give_back(std::uint64_t amount);
  [[nodiscard]] bool open_block(Desk&, Locked&, Out&, std::uint64_t& now_ns);
  [[nodiscard]] bool send_one(Desk&, std::uint32_t to);
  static void close(Out&) noexcept;  ///< its open block is full; under the lock
  void recycle(Desk&, Block*);
  void free_blocks(Desk&);
  [[nodiscard]] std::uint32_t backlog(Desk& d, std::uint32_t to) const noexcept {
    std::uint32_t& count = to == d.rank ? d.own.count : out(d, to).full.count;
    return std::atomic_ref<std::uint32_t>(count).load(std::memory_order_relaxed);  // a hint
  }
  void hold_back(Desk&, std::uint32_t to);
  bool flush(Desk&, std::uint64_t opened_before);
  [[nodiscard]] bool filling(Desk&) const noexcept;
  [[nodiscard]] bool arrived(Desk&) const noexcept;
  static void ring(Desk&);

  void receive(std::uint32_t rank);
  [[nodiscard]] bool take(Desk&, Taken&);
  void run(std::uint32_t rank, const Taken&);
  void finish(Desk&, const Taken&);
  void fail(std::exception_ptr) noexcept;

  std::uint64_t credit_;     ///< W
  std::uint64_t exception_;  ///< the representation of an exception_ptr; null: there is none
  std::uint64_t alive_;      ///< receivers
  std::uint64_t closing_;
  // From here on constant; in a block of its own, so that ranks keep their copies.
  alignas(4096) std::size_t slots_at_;
  std::size_t block_bytes_;
  std::uint32_t ranks_;
  std::uint32_t receivers_;  ///< of each rank
  std::byte* desks_[];       ///< and receivers()
};

}  // namespace kasane::posts
