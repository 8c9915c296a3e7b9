// SPDX-License-Identifier: Apache-2.0
// The atomics of programs (std::atomic, C11's _Atomic, the counts of shared_ptr) in global memory, in a job
// of several ranks. The compiler makes calls of them (-fno-inline-atomics); runtime/language/atomic_calls.cpp
// has the calls, and does by itself what needs no other rank.
//
//   change or read   at the owner, as one atomic (gas::DirectAccess); of 16 bytes and more under a lock
//   order            a releasing write releases before, an acquiring read acquires after, unless this rank
//                    alone uses the atomic (gas/users_word.h; docs/design/atomics.md)
//
// Thread safety: every call from any thread of the rank, but from no handler. A call polls; it is no switch
// to another user-level thread.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "comm/engine/engine.h"
#include "comm/region_words.h"
#include "dsm/coherence.h"
#include "gas/direct_access.h"
#include "gas/users_word.h"
#include "mem/space.h"
#include "runtime/rank/segments.h"
#include "runtime/rank/thread_contexts.h"

namespace kasane::runtime {

enum class AtomicCall : std::uint8_t {
  load,
  exchange,  ///< stores, too
  compare_exchange,
  add,
  bit_and,
  bit_or,
  bit_xor,
  bit_nand,
};

/// What the calls need to know (runtime/language/atomic_calls.cpp). blocks: null where no restartable
/// sequences are to be used.
struct AtomicsConnection {
  struct Range {
    std::uint64_t begin = 0, bytes = 0;
  };
  Rank rank{0};
  const mem::AddressMap* space = nullptr;
  std::array<Range, 5> home{};  ///< the offsets whose home is this rank, as far as there is room
  Range open;                   ///< memory that all ranks show, never armed and never moved
  const std::uint64_t *users = nullptr, *notices = nullptr;
  const std::uint32_t* blocks = nullptr;
};

class Atomics {
 public:
  /// The words of one rank: users words, then locks.
  static constexpr std::uint64_t kUsers = 1 << 14, kLocks = 1 << 10, kRegionBytes = (kUsers + kLocks) * 8;
  /// So many changes in a row by one rank, and it may be alone again.
  static constexpr std::uint8_t kSettle = 16;

  struct Parts {
    comm::Transport& transport;
    gas::DirectAccess& access;
    dsm::Coherence& coherence;
    gas::Sharing& sharing;
    ThreadContexts& contexts;
    mem::Space& space;
    const Segments& segments;
    bool common_stacks;
  };
  /// After region kAtomics was attached.
  explicit Atomics(const Parts&);

  /// One operation on an aligned object of 1, 2, 4 or 8 bytes. order: as of the __atomic builtins (of a
  /// compare_exchange: the stronger one). Returns the old value, zero-extended.
  std::uint64_t perform(AtomicCall, void* at, std::size_t bytes, std::uint64_t operand, std::uint64_t compare,
                        int order);

  /// What an acquiring read of this rank has to do after it has read.
  void finish_read(const void* at);

  // Objects of any size and alignment, one operation at a time.
  void load(const void* at, std::size_t bytes, void* to, int order);
  /// old: may be null.
  void exchange(void* at, std::size_t bytes, const void* from, void* old, int order);
  bool compare_exchange(void* at, std::size_t bytes, void* expected, const void* desired, int order);

  /// atomic_thread_fence. A release fence is counted; this rank's next change of an atomic releases. An
  /// acquire fence asks all ranks for releases.
  void fence(int order);
  /// Is there such a fence since which this rank has not released?
  [[nodiscard]] bool release_is_due() const noexcept {
    // relaxed: the fences of the calling thread, and of those that it has synchronised with;
    // acquire: so much is released before the caller changes anything
    return fences_.load(std::memory_order_relaxed) != released_fences_.load(std::memory_order_acquire);
  }
  void release();
  /// What other ranks have released.
  void acquire();
  /// For changes that these calls do not make.
  void release_if_due();

  /// The rank whose words say who uses the atomic. A function of the address alone.
  [[nodiscard]] Rank home_of(std::uint64_t offset) const noexcept;
  /// Offset of its users word at its home.
  [[nodiscard]] static constexpr std::uint64_t users_at(std::uint64_t offset) noexcept {
    return offset / 4 % kUsers * 8;
  }
  /// blocks: the words of the block table, or null.
  [[nodiscard]] AtomicsConnection connection(const std::uint32_t* blocks) const noexcept;

 private:
  struct Scratch;
  class Locked;

  void release_if_due(dsm::ThreadContext&);
  void acquire_of_all();
  void before(dsm::ThreadContext&, std::uint64_t offset);
  void after(dsm::ThreadContext&, std::uint64_t offset);
  gas::UsersAction enter(dsm::ThreadContext&, std::uint64_t offset, gas::UsersEvent);
  void try_to_settle(dsm::ThreadContext&, Rank home, std::uint64_t at, gas::UsersWord);
  std::uint64_t at_owner(dsm::ThreadContext&, AtomicCall, std::uint64_t offset, std::size_t bytes,
                         std::uint64_t operand, std::uint64_t compare);
  std::uint64_t read(dsm::ThreadContext&, std::uint64_t offset, std::size_t bytes);
  std::uint64_t change(dsm::ThreadContext&, comm::AtomicOp, comm::Width, std::uint64_t at,
                       std::uint64_t operand, std::uint64_t compare);
  template <class F>
  static void for_each_block(std::uint64_t offset, std::size_t bytes, const F& f);
  template <class F>
  void locked(const void* object, std::size_t bytes, bool changes, int order, const F& act);
  void get(dsm::ThreadContext&, std::uint64_t offset, std::size_t bytes, void* to);
  void put(dsm::ThreadContext&, std::uint64_t offset, std::size_t bytes, const void* from);
  [[noreturn]] void wild(std::uint64_t offset) const;
  [[nodiscard]] bool in_common_stacks(std::uint64_t offset) const noexcept {
    return common_stacks_ && segments_.in_stacks(offset, ranks_);
  }

  comm::Transport& transport_;
  gas::DirectAccess& access_;
  dsm::Coherence& coherence_;
  gas::Sharing& sharing_;
  ThreadContexts& contexts_;
  mem::Space& space_;
  const Segments& segments_;
  const bool common_stacks_;
  const Rank me_;
  const std::uint32_t ranks_;
  const comm::RegionWords words_;
  /// Release fences; those of them that a release has followed.
  std::atomic<std::uint64_t> fences_{0}, released_fences_{0};
  /// changes of this rank since another rank was seen, by users word. Relaxed: a hint
  std::unique_ptr<std::atomic<std::uint8_t>[]> in_a_row_;
};

// What other calls of the program need: its atomics, without an order between ranks, and the orders.
/// Does another rank reach the object?
[[nodiscard]] bool is_shared_atomic(const void*) noexcept;
[[nodiscard]] std::uint32_t load_atomic(const void*) noexcept;
[[nodiscard]] std::uint64_t load_atomic_word(const void*) noexcept;
/// False: seen becomes what it is.
bool swap_atomic_word(void*, std::uint64_t& seen, std::uint64_t wanted) noexcept;
/// An int; acquires and releases. Returns the old value.
int add_atomic(void*, int) noexcept;
// Words of 4 bytes, with an order of the __atomic builtins.
[[nodiscard]] std::uint32_t load_atomic(const void*, int order) noexcept;
std::uint32_t exchange_atomic(void*, std::uint32_t, int order) noexcept;
std::uint32_t add_atomic(void*, std::uint32_t, int order) noexcept;
/// False: seen becomes what it is.
bool swap_atomic(void*, std::uint32_t& seen, std::uint32_t wanted, int order) noexcept;
/// Of a shared one: what this rank wrote is released; what other ranks released is acquired.
void release_atomics() noexcept;
void acquire_atomics() noexcept;
/// From now on the program's atomics in the space are executed by these; null: by the CPU, as elsewhere.
void connect_atomics(Atomics*, const AtomicsConnection&) noexcept;

}  // namespace kasane::runtime
