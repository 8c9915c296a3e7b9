// SPDX-License-Identifier: Apache-2.0
// How ranks share the free memory of one rank without its help, as pure machines: each says which one-sided
// operation comes next, and is given what that returned. heap.cpp and heap_runs.cpp drive them over the
// network, tests/model drives the same ones through every interleaving (table and reasons:
// docs/design/heap.md). No I/O, no state elsewhere.
//
// Free memory lies on stacks. An *item* of a stack is a group of up to 64 small objects of one size, or a run
// of pages. A group has a word of `bits`, one for each free object that no thread holds. A thread that takes
// a group takes all of its bits.
//
// Invariants (walked by tests/model):
//   - a group is on its stack, or on its way there or from there, if and only if its bits are not zero
//   - an item is on a stack at most once
//   - an object is free in the bits of its group, or held by one taker, never both
#pragma once

#include <bit>
#include <cstdint>
#include <span>

namespace kasane::gas {

/// The head of a stack in one word. The tag grows with every change, so that a head that was read long ago is
/// never taken for the present one (ABA).
struct StackHead {
  static constexpr unsigned kTopBits = 34;
  std::uint64_t tag = 0;
  std::uint64_t top = 0;  ///< item + 1; 0: nothing is on the stack

  friend bool operator==(const StackHead&, const StackHead&) = default;
  [[nodiscard]] constexpr std::uint64_t word() const noexcept { return tag << kTopBits | top; }
  [[nodiscard]] static constexpr StackHead of(std::uint64_t word) noexcept {
    return {word >> kTopBits, word & ((std::uint64_t{1} << kTopBits) - 1)};
  }
  [[nodiscard]] constexpr bool empty() const noexcept { return top == 0; }
  [[nodiscard]] constexpr std::uint64_t item() const noexcept { return top - 1; }
  /// The head with another top: one change later.
  [[nodiscard]] constexpr StackHead changed(std::uint64_t new_top) const noexcept {
    return {(tag + 1) & (~std::uint64_t{0} >> kTopBits), new_top};
  }
};

/// One operation on one of the words that ranks share.
struct HeapOperation {
  enum class What : std::uint8_t { load, store, swap, fetch_or, compare_swap };
  enum class Where : std::uint8_t { head, next, bits };
  What what;
  Where where;
  std::uint64_t item = 0;  ///< of next and bits
  std::uint64_t operand = 0;
  std::uint64_t compare = 0;
};

/// Takes the top item of a stack, and all bits of it if it is a group. `head`: as last seen; at the end as it
/// was left.
///
///   look ─▶ next ─▶ pop ─▶ bits ─▶ taken     three operations if the head was known and did not change
///     └─▶ empty      └─ the head had changed: next, with the head that was found, or empty
struct Taking {
  enum class State : std::uint8_t { look, next, pop, bits, taken, empty };
  State state = State::look;
  bool group = true;
  StackHead head;
  std::uint64_t item = 0;
  std::uint64_t below = 0;  ///< the item's next: item + 1
  std::uint64_t bits = 0;

  /// A head that is known to be empty is looked at again; any other is tried as it is, since a wrong one
  /// costs only a look.
  [[nodiscard]] static constexpr Taking begin(StackHead known, bool group) noexcept {
    Taking t;
    t.group = group;
    t.meet(known);
    if (known.empty()) t.state = State::look;
    return t;
  }
  [[nodiscard]] constexpr bool over() const noexcept {
    return state == State::taken || state == State::empty;
  }

  [[nodiscard]] constexpr HeapOperation operation() const noexcept {
    using What = HeapOperation::What;
    using Where = HeapOperation::Where;
    switch (state) {
      case State::next: return {What::load, Where::next, item, 0, 0};
      case State::pop: return {What::compare_swap, Where::head, 0, head.changed(below).word(), head.word()};
      case State::bits: return {What::swap, Where::bits, item, 0, 0};
      default: return {What::load, Where::head, 0, 0, 0};
    }
  }
  /// What the operation returned: the word's value before it.
  constexpr void answer(std::uint64_t value) noexcept {
    switch (state) {
      case State::look: return meet(StackHead::of(value));
      case State::next:
        below = value;
        state = State::pop;
        return;
      case State::pop:
        if (value != head.word()) return meet(StackHead::of(value));
        head = head.changed(below);
        state = group ? State::bits : State::taken;
        return;
      case State::bits:
        bits = value;
        state = State::taken;
        return;
      default: return;
    }
  }

 private:
  constexpr void meet(StackHead seen) noexcept {
    head = seen;
    item = seen.empty() ? 0 : seen.item();
    state = seen.empty() ? State::empty : State::next;
  }
};

/// Takes all items of a stack at once. They are linked below `top` and belong to the taker.
///
///   look ─▶ clear ─▶ taken      the tag goes on growing, for threads that still remember the head
///             └─ the head had changed: clear, with the head that was found; taken if nothing is there
struct TakingAll {
  enum class State : std::uint8_t { look, clear, taken };
  State state = State::look;
  StackHead head;
  std::uint64_t top = 0;  ///< item + 1; 0: there was none

  /// With the head as last seen. It ends at once if the head was empty.
  [[nodiscard]] static constexpr TakingAll begin(StackHead known) noexcept {
    return {known.empty() ? State::taken : State::clear, known, 0};
  }
  [[nodiscard]] constexpr bool over() const noexcept { return state == State::taken; }
  [[nodiscard]] constexpr HeapOperation operation() const noexcept {
    using What = HeapOperation::What;
    using Where = HeapOperation::Where;
    if (state == State::clear)
      return {What::compare_swap, Where::head, 0, head.changed(0).word(), head.word()};
    return {What::load, Where::head, 0, 0, 0};
  }
  constexpr void answer(std::uint64_t value) noexcept {
    if (state == State::clear && value == head.word()) {
      top = head.top;
      state = State::taken;
      return;
    }
    head = StackHead::of(value);
    state = head.empty() ? State::taken : State::clear;
  }
};

/// Returns free objects to their group; a thread that finds its bits zero puts the group on the stack. Or
/// puts a chain of items on the stack that belong to the caller.
///
///   bits ─▶ given                  other bits were set: the thread that set the first one pushes the group
///     ├─▶ link ─▶ push ─▶ given    three operations if the head was known and did not change meanwhile
///     │     └───◀── the head had changed
///     └─▶ tie ─▶ given             of several groups given at once: linked to the next of them, which is
///                                  pushed with it (join)
struct Giving {
  /// twice: some of the objects were free already
  enum class State : std::uint8_t { bits, tie, link, push, given, twice };
  State state = State::bits;
  StackHead head;
  /// the chain: last's next is written here, those between are the caller's
  std::uint64_t first = 0, last = 0;
  std::uint64_t bits = 0;  ///< twice: those that were free

  [[nodiscard]] static constexpr Giving objects(std::uint64_t group, std::uint64_t bits,
                                                StackHead known) noexcept {
    return {State::bits, known, group, group, bits};
  }
  [[nodiscard]] static constexpr Giving chain(std::uint64_t first, std::uint64_t last,
                                              StackHead known) noexcept {
    return {State::link, known, first, last, 0};
  }
  [[nodiscard]] constexpr bool over() const noexcept {
    return state == State::given || state == State::twice;
  }

  [[nodiscard]] constexpr HeapOperation operation() const noexcept {
    using What = HeapOperation::What;
    using Where = HeapOperation::Where;
    switch (state) {
      case State::bits: return {What::fetch_or, Where::bits, first, bits, 0};
      case State::tie:
      case State::link: return {What::store, Where::next, last, head.top, 0};
      default: return {What::compare_swap, Where::head, 0, head.changed(first + 1).word(), head.word()};
    }
  }
  constexpr void answer(std::uint64_t value) noexcept {
    switch (state) {
      case State::bits:
        if ((value & bits) != 0) {
          bits &= value;
          state = State::twice;
          return;
        }
        state = value == 0 ? State::link : State::given;
        return;
      case State::tie: state = State::given; return;
      case State::link: state = State::push; return;
      case State::push:
        if (value == head.word()) {
          head = head.changed(first + 1);
          state = State::given;
          return;
        }
        head = StackHead::of(value);
        state = State::link;  // before the next try: another item lies below now
        return;
      default: return;
    }
  }
};

/// Groups of one stack, each of which has had its bits set. Those that were empty become one chain, which the
/// last of them pushes. Returns that one, or null. All must be linked before it is pushed.
[[nodiscard]] constexpr Giving* join(std::span<Giving> all) noexcept {
  Giving* before = nullptr;
  for (Giving& g : all) {
    if (g.state != Giving::State::link) continue;
    if (before != nullptr) {
      g.first = before->first;
      before->state = Giving::State::tie;
      before->head.top = g.last + 1;
    }
    before = &g;
  }
  return before;
}

// ---- runs of pages ---------------------------------------------------------------------------------------

/// Classes of runs by their pages: 1, 2, 3, then four a doubling: 4 5 6 7 8 10 12 14 16 20 …
inline constexpr unsigned kRunClasses = 104;

/// The class of a run: the last one whose smallest run is no larger.
[[nodiscard]] constexpr unsigned run_class(std::uint64_t pages) noexcept {
  if (pages < 4) return static_cast<unsigned>(pages) - 1;
  const unsigned e = static_cast<unsigned>(std::bit_width(pages)) - 1;
  return (e - 2) * 4 + 3 + static_cast<unsigned>((pages >> (e - 2)) & 3);
}
/// Pages of the smallest run of the class.
[[nodiscard]] constexpr std::uint64_t run_class_pages(unsigned c) noexcept {
  if (c < 3) return c + 1;
  return std::uint64_t{4 + (c - 3) % 4} << ((c - 3) / 4);
}
/// The first class whose runs are all large enough.
[[nodiscard]] constexpr unsigned run_class_for(std::uint64_t pages) noexcept {
  const unsigned c = run_class(pages);
  return run_class_pages(c) >= pages ? c : c + 1;
}
static_assert(run_class(1) == 0 && run_class(4) == 3 && run_class(8) == 7 && run_class(9) == 7 &&
              run_class_for(9) == 8 && run_class_pages(8) == 10);

}  // namespace kasane::gas
