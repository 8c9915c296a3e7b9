// SPDX-License-Identifier: Apache-2.0
// A range of memory that a thread goes through in order, upwards or downwards, and that it announces piece by
// piece (patterns.h). Pieces end where a multiple of their size in memory does, however long the rows are
// that the thread works on. So each OS page belongs to one piece, but for the range's own ends.
//
//   reach(n)   announces whole pieces until the first n elements are announced      what comes next
//   pass(n)    announces whole pieces as far as the first n elements have them      what is over
//
// Thread safety: none, belongs to its thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace apps {

enum class Direction : bool { up, down };

template <class T>
class InOrder {
 public:
  static constexpr std::size_t kPieceBytes = 256 << 10, kPiece = kPieceBytes / sizeof(T);
  static_assert(kPieceBytes % sizeof(T) == 0);

  /// n elements from `low` on; downwards they count from the end.
  InOrder(T* low, std::size_t n, Direction direction) noexcept
      : low_(low), high_(low + n), down_(direction == Direction::down) {}

  /// Calls f(p, count) for what must be named beside what was.
  template <class F>
  void reach(std::size_t n, const F& f) {
    if (n <= named_) return;
    const std::size_t beyond =
        down_ ? odd(high_ - std::min(n, size())) : (kPiece - odd(low_ + std::min(n, size()))) % kPiece;
    name(std::min(size(), std::min(n, size()) + beyond), f);
  }
  /// Likewise.
  template <class F>
  void pass(std::size_t n, const F& f) {
    if (n < named_ + kPiece && n < size()) return;
    if (n >= size()) return name(size(), f);
    const std::size_t short_of = down_ ? (kPiece - odd(high_ - n)) % kPiece : odd(low_ + n);
    if (n >= short_of) name(n - short_of, f);
  }

 private:
  [[nodiscard]] std::size_t size() const noexcept { return static_cast<std::size_t>(high_ - low_); }
  /// Elements between the last end of a piece below p, and p.
  [[nodiscard]] static std::size_t odd(const T* p) noexcept {
    return reinterpret_cast<std::uintptr_t>(p) % kPieceBytes / sizeof(T);
  }

  template <class F>
  void name(std::size_t until, const F& f) {
    if (until <= named_) return;
    f(down_ ? high_ - until : low_ + named_, until - named_);
    named_ = until;
  }

  T *const low_, *const high_;
  const bool down_;
  std::size_t named_ = 0;  ///< elements from where it begins
};

}  // namespace apps
