// SPDX-License-Identifier: Apache-2.0
// Which ranks use an atomic of the program, pure (docs/design/atomics.md): it says when a rank has to release
// before a releasing write, and what an acquiring read has to wait for. One word for all atomics that share a
// hash, at a rank that follows from the address alone.
//
//   word   kind 2 | rank 20 | version 42
//
//   none          no rank has released or acquired by it
//   alone(r)      only rank r has: its stores are ordered by its CPUs, so it does not release
//   leaving(r)    another rank came: r may have changes that were not released, before its earlier writes
//   shared(r)     every rank releases before it writes; r wrote last
//
// A releasing write asks with `change` before it writes. An acquiring read reads first and then asks with
// `read`; a read-modify-write does both. The answer alone or shared says what the caller has to do; ask means
// that rank `next.rank` has to release, then event `released`, then the same event again.
//
// Thread safety: pure. Invariants: a write that a rank made while the word said alone(it) comes, together
// with all that this rank did before it looked, before the release that ends leaving(it). So a read that sees
// the write finds alone or leaving of that rank, and asks; or that release has completed. A version names one
// period of leaving: a `released` of an earlier period cannot end a later one.
#pragma once

#include <cstdint>

#include "base/ids.h"

namespace kasane::gas {

struct UsersWord {
  enum class Kind : std::uint8_t { none = 0, alone = 1, leaving = 2, shared = 3 };
  Kind kind = Kind::none;
  Rank rank{0};
  std::uint64_t version = 0;

  static constexpr unsigned kRankShift = 2, kVersionShift = 22;
  static constexpr std::uint64_t kRanks = (std::uint64_t{1} << (kVersionShift - kRankShift)) - 1;
  static constexpr std::uint64_t kWithoutVersion = (std::uint64_t{1} << kVersionShift) - 1;

  [[nodiscard]] constexpr std::uint64_t pack() const noexcept {
    return version << kVersionShift | std::uint64_t{raw(rank)} << kRankShift |
           static_cast<std::uint64_t>(kind);
  }
  [[nodiscard]] static constexpr UsersWord unpack(std::uint64_t word) noexcept {
    return {static_cast<Kind>(word & 3), Rank{static_cast<std::uint32_t>(word >> kRankShift & kRanks)},
            word >> kVersionShift};
  }
  friend constexpr bool operator==(UsersWord, UsersWord) = default;
};

enum class UsersEvent : std::uint8_t {
  change,    ///< self will write
  read,      ///< self has read
  released,  ///< the rank that leaves has released since self saw this word
  settle,    ///< self wrote so often in a row that it may be alone again
};

enum class UsersAction : std::uint8_t {
  alone,   ///< a write needs nothing; a read takes the notices that have arrived
  shared,  ///< a write releases first; a read takes the notices that have arrived
  ask,     ///< the rank in next has to release
};

struct UsersStep {
  UsersWord next;  ///< to be compare-swapped in, if it differs
  UsersAction action;
};

[[nodiscard]] constexpr UsersStep next(UsersWord w, UsersEvent event, Rank self) noexcept {
  using Kind = UsersWord::Kind;
  if (event == UsersEvent::released) {
    if (w.kind != Kind::leaving) return {w, UsersAction::shared};
    return {{Kind::shared, self, w.version}, UsersAction::shared};
  }
  if (event == UsersEvent::settle) {
    if (w.kind != Kind::shared || w.rank != self) return {w, UsersAction::shared};
    return {{Kind::alone, self, w.version}, UsersAction::shared};
  }
  switch (w.kind) {
    case Kind::none: return {{Kind::alone, self, w.version}, UsersAction::alone};
    case Kind::alone:
      if (w.rank == self) return {w, UsersAction::alone};
      return {{Kind::leaving, w.rank, w.version + 1}, UsersAction::ask};
    case Kind::leaving: return {w, UsersAction::ask};
    case Kind::shared: break;
  }
  // a read leaves no trace: what it may have seen was released before the word said shared
  if (event == UsersEvent::read || w.rank == self) return {w, UsersAction::shared};
  return {{Kind::shared, self, w.version}, UsersAction::shared};
}

}  // namespace kasane::gas
