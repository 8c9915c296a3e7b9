// SPDX-License-Identifier: Apache-2.0
// The Chase–Lev deque of 64-bit values: its owner pushes and pops at the bottom, any thread steals at the
// top.
//
//        top ──▶ [ oldest ][ … ][ newest ] ◀── bottom       ring[index mod capacity], top <= index < bottom
//      thieves: compare-swap                 owner: push, pop
//
// It lies in memory that the caller provides (the threads region of a rank), with a fixed layout, so that
// another process steals from it, too: through its own mapping by steal(), or word by word by remote atomics
// (sched/steal.h). Memory orders after N. M. Lê, A. Pop, A. Cohen, F. Zappa Nardelli, "Correct and efficient
// work-stealing for weak memory models" (PPoPP 2013), with its two full fences replaced by sequentially
// consistent accesses of top and bottom: the same cost on x86-64 (one xchg in pop), and provable from C++20's
// single total order S. The bounded ring needs no resizing.
//
// Thread safety: push() and pop() by the owner alone; everything else by any thread, at any time after
// create().
// Invariants: top only grows; top <= bottom + 1 (bottom = top - 1 only inside pop()); bottom <= limit <= top
// + capacity, as numbers from top on. Indices are compared by their difference as signed numbers, so they may
// start anywhere and wrap.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <new>

#include "base/assert.h"
#include "base/atomics.h"

namespace kasane {

/// What a look at the top of a deque brought.
enum class [[nodiscard]] Steal : std::uint8_t {
  taken,  ///< the value is the caller's
  empty,  ///< there was nothing
  lost,   ///< another thread took it: there may be more
};

template <class Atomics = StdAtomics>
class Deque {
  using Word = typename Atomics::template Atomic<std::uint64_t>;

 public:
  // The layout, for thieves that reach it by remote atomics. 128: neighbouring lines are fetched in pairs.
  static constexpr std::size_t kTopOffset = 0;
  static constexpr std::size_t kBottomOffset = 128;
  static constexpr std::size_t kRingOffset = 256;
  [[nodiscard]] static constexpr std::size_t slot_offset(std::uint64_t index,
                                                         std::uint64_t capacity) noexcept {
    return kRingOffset + (index & (capacity - 1)) * sizeof(Word);
  }

  /// Bytes that a deque of capacity values takes. capacity: a power of two.
  [[nodiscard]] static constexpr std::size_t bytes(std::uint64_t capacity) noexcept {
    return kRingOffset + capacity * sizeof(Word);
  }

  /// Makes an empty deque at memory (128-byte aligned, bytes(capacity) of it, any content). The memory may be
  /// shared between processes; nothing in it is a pointer, and nothing needs to be destroyed.
  static Deque* create(void* memory, std::uint64_t capacity) noexcept {
    KASANE_CHECK(std::has_single_bit(capacity), "a deque's capacity is a power of two");
    KASANE_CHECK(reinterpret_cast<std::uintptr_t>(memory) % 128 == 0, "a deque is aligned to 128 bytes");
    auto* words = reinterpret_cast<Word*>(static_cast<std::byte*>(memory) + kRingOffset);
    for (std::uint64_t i = 0; i < capacity; ++i) new (&words[i]) Word(0);
    return new (memory) Deque(capacity);
  }

  [[nodiscard]] std::uint64_t capacity() const noexcept { return mask_ + 1; }

  /// Owner. False, and nothing happened, if capacity values are in it.
  [[nodiscard]] bool push(std::uint64_t value) noexcept {
    // acquire: pairs with the release in the thief's compare-swap; it has read the slots below, which pushes
    // may now overwrite.
    limit_ = top_.load(std::memory_order_acquire) + capacity();
    return push_below_limit(value);
  }
  /// Owner. The same, but it checks only how far thieves had come at the last push(), and whether shut() came
  /// since: false may be wrong, true is not. For hot paths, with push() for the rest: it reads nothing that
  /// thieves write.
  [[nodiscard]] bool push_below_limit(std::uint64_t value) noexcept {
    // relaxed: only the owner writes bottom.
    const std::uint64_t b = bottom_.load(std::memory_order_relaxed);
    if (b == limit_) [[unlikely]]
      return false;  // the bottom passes no limit, so equality is enough
    // relaxed: published by bottom.
    slot(b).store(value, std::memory_order_relaxed);
    // release: a reader of b + 1 also reads the value, and everything written before it (the suspended
    // thread's registers).
    bottom_.store(b + 1, std::memory_order_release);
    return true;
  }
  /// Owner. Until the next push() or a pop, push_below_limit() fails.
  // relaxed: only the owner writes bottom
  void shut() noexcept { limit_ = bottom_.load(std::memory_order_relaxed); }

  /// Owner. Takes the newest value; fills value only if it returns true. No std::optional: its two parts may
  /// be written apart and read together, which stalls.
  [[nodiscard]] bool pop(std::uint64_t& value) noexcept {
    return pop_with([&](std::uint64_t b) {
      // relaxed: we wrote it ourselves, and no other thread writes slots.
      value = slot(b).load(std::memory_order_relaxed);
    });
  }
  /// The same in two halves, for an owner that knows which value it is, if any, and has a sequentially
  /// consistent compare-swap of its own to do: done between the halves it replaces the one of a pop.
  /// begin_pop(), that compare-swap, successful or not, and then end_pop(), with nothing else between.
  /// value() says what the value is, where assertions are compiled.
  [[nodiscard]] std::uint64_t begin_pop() noexcept {
    // relaxed, both: only the owner writes it. Where begin_pop() is used (x86-64) the compare-swap is a full
    // fence: as in pop_with(), either this store is before a thief's load of bottom, or the thief's earlier
    // load of top is before ours. C++20's order S does not say so of a store that is not in it, hence:
#if !defined(__x86_64__)
#error "kasane: a pop in two halves needs a compare-swap that is a full fence; give begin_pop() a fence here"
#endif
    const std::uint64_t b = bottom_.load(std::memory_order_relaxed) - 1;
    bottom_.store(b, std::memory_order_relaxed);
    return b;
  }
  /// begun: what begin_pop() returned.
  template <class Value>
  [[nodiscard]] bool end_pop(std::uint64_t begun, [[maybe_unused]] Value&& value) noexcept {
    return end_pop_at(begun, [&]([[maybe_unused]] std::uint64_t b) {
      KASANE_ASSERT(slot(b).load(std::memory_order_relaxed) == value());
    });
  }

  /// Any thread, also of a process that maps the memory elsewhere. Fills value only if taken.
  Steal steal(std::uint64_t& value) noexcept {
    // seq_cst, both loads, in this order: see pop(). The load of bottom also acquires what push() released.
    std::uint64_t t = top_.load(std::memory_order_seq_cst);
    const std::uint64_t b = bottom_.load(std::memory_order_seq_cst);
    if (static_cast<std::int64_t>(b - t) <= 0) return Steal::empty;
    // relaxed: ordered after the push by bottom; if the slot was reused meanwhile, top has moved and the swap
    // fails.
    const std::uint64_t candidate = slot(t).load(std::memory_order_relaxed);
    // seq_cst: as in pop(); its release part orders the load above before the owner's reuse of the slot.
    if (!top_.compare_exchange_strong(t, t + 1, std::memory_order_seq_cst, std::memory_order_relaxed))
      return Steal::lost;
    value = candidate;
    return Steal::taken;
  }

  /// How many values are in it, at some recent time: a hint for thieves, exact for the owner while no thread
  /// steals.
  [[nodiscard]] std::uint64_t size_hint() const noexcept {
    // acquire: a look, no claim; acquire keeps the two loads in order, so that the answer errs by what
    // happened between them.
    const std::uint64_t t = top_.load(std::memory_order_acquire);
    const std::uint64_t b = bottom_.load(std::memory_order_acquire);
    return static_cast<std::int64_t>(b - t) > 0 ? b - t : 0;
  }

 private:
  explicit Deque(std::uint64_t capacity) noexcept : mask_(capacity - 1), limit_(capacity) {}

  // take(index) reads what was popped.
  template <class Take>
  bool pop_with(Take&& take) noexcept {
    // relaxed: only the owner writes it.
    const std::uint64_t b = bottom_.load(std::memory_order_relaxed) - 1;
    // seq_cst, both: either this store is before a thief's load of bottom in S, and the thief sees that value
    // b is not for it, or the thief's earlier load of top is before ours, and we see how far top had come.
    // (Dekker's pattern.)
    bottom_.store(b, std::memory_order_seq_cst);
    return end_pop_at(b, take);
  }

  // The bottom was b + 1 and is b.
  template <class Take>
  bool end_pop_at(std::uint64_t b, Take&& take) noexcept {
    // seq_cst: the look of Dekker's pattern, behind the store of bottom
    std::uint64_t t = top_.load(std::memory_order_seq_cst);
    const auto left = static_cast<std::int64_t>(b - t);
    if (left > 0) [[likely]] {
      take(b);
      return true;
    }
    bool mine = false;
    if (left == 0) {
      // The last one: thieves may be after it too, so it is taken at the top like theirs.
      // seq_cst: a step of top in S like the thief's. Failure relaxed: nothing is read on the strength of it.
      mine = top_.compare_exchange_strong(t, t + 1, std::memory_order_seq_cst, std::memory_order_relaxed);
      if (mine) take(b);  // still in its place: only the owner, this thread, writes slots
    }
    // relaxed: back to bottom = top, which is empty; a thief that reads it with an older top fails its
    // compare-swap.
    bottom_.store(b + 1, std::memory_order_relaxed);
    return mine;
  }

  [[nodiscard]] Word& slot(std::uint64_t index) noexcept {
    return reinterpret_cast<Word*>(reinterpret_cast<std::byte*>(this) + kRingOffset)[index & mask_];
  }

  alignas(128) Word top_{0};
  alignas(128) Word bottom_{0};
  const std::uint64_t mask_;
  std::uint64_t limit_;  ///< the owner's: a top that it has seen, plus capacity, or less
                         // Behind the object: Word ring[capacity].

 public:
  /// Compiled, never called: the offsets above are the object's.
  static constexpr bool layout_holds() noexcept {
    return offsetof(Deque, top_) == kTopOffset && offsetof(Deque, bottom_) == kBottomOffset &&
           sizeof(Deque) == kRingOffset;
  }
};

static_assert(Deque<>::layout_holds());

}  // namespace kasane
