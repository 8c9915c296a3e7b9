// SPDX-License-Identifier: Apache-2.0
// Decides what to read ahead when a piece of memory is read from SSD: recognises sweeps (ascending,
// descending, with a stride) among the pieces that are asked for, and says which further ones to read. A
// piece is a page, or a window of blocks.
//
//   asked for   10 ─▶ 11 +12 ─▶ 12 +13,14 ─▶ 13 +15…17 ─▶ …   the second neighbour makes a sweep; so many are
//                                                             kept ahead of it, twice as many each time
//               40 ─▶ 43 ─▶ 46 +49 ─▶ …                       a stride must be seen twice, and a piece
//                                                             elsewhere is read alone
//
// When a quarter of what is ahead has been used, the next pieces are requested: so some are being read from
// the disk and others are there while the program works on these.
//
// There are several sweeps at once: a merge reads two and writes a third, and each of eight threads has its
// own. Old ones are forgotten when others need the room.
//
// A thread that stores to a range that the program said it will overwrite asks for an end of it, a block that
// is not overwritten as a whole, and for nothing behind that: this is no sweep.
//
// Thread safety: none, the caller has a flag. Pure: only numbers go in and out.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>

namespace kasane::gas {

class ReadAhead {
 public:
  static constexpr std::uint32_t kMost = 128;      ///< pieces ahead of a sweep
  static constexpr std::int64_t kMostStride = 64;  ///< pieces

  /// first, first + stride, …: without the piece that is asked for.
  struct Plan {
    std::int64_t first = 0, stride = 0;
    std::uint32_t pieces = 0;
  };

  /// ascends: the program has said that a piece outside of all sweeps begins an ascending one. nothing: the
  /// next piece is unknown.
  enum class Known : std::uint8_t { nothing, ascends };

  enum class Purpose : std::uint8_t { load, store };

  /// `piece` is asked for. most: pieces that may be ahead of it, if there is no other sweep; else half as
  /// many, since the other sweeps need room too.
  [[nodiscard]] Plan ask(std::uint64_t piece, std::uint32_t most, Known known = Known::nothing,
                         Purpose purpose = Purpose::load) noexcept {
    const auto at = static_cast<std::int64_t>(piece);
    if (is_overwritten(piece, purpose)) return {};
    Sweep* met = nullptr;
    // the last one used: others may be left of earlier sweeps over the same memory
    for (Sweep& s : sweeps_) {
      if (s.meets(at) && (met == nullptr || s.used > met->used)) met = &s;
    }
    if (met != nullptr) return go_on(*met, at, most);
    if (known == Known::ascends) {
      Sweep& s = oldest();
      s = {at, at, at, 1, kMost, most, 0};
      return go_on(s, at, most);
    }
    Sweep* near = nullptr;
    for (Sweep& s : sweeps_) {
      const std::int64_t stride = at - s.last;
      if (s.used == 0 || std::abs(stride) > kMostStride) continue;
      if (stride == 0) {  // once more
        s.used = ++clock_;
        return {};
      }
      if (stride == s.stride || std::abs(stride) == 1) {
        s.stride = stride;
        return go_on(s, at, most);
      }
      if (near == nullptr || std::abs(stride) < std::abs(at - near->last)) near = &s;
    }
    // No sweep expects it. It may be the second piece of a sweep with a stride; else it is the first of a new
    // one, which replaces the oldest.
    Sweep& s = near != nullptr ? *near : oldest();
    s = {at, at, at, near != nullptr ? at - s.last : 0, 0, 0, ++clock_};
    return {};
  }

  /// Pieces [first, last] will be overwritten: until a thread loads from them, or many other ranges are
  /// noted.
  void overwrites(std::uint64_t first, std::uint64_t last) noexcept {
    for (const Pieces& p : overwritten_) {
      if (p.contains(first) && p.contains(last)) return;
    }
    overwritten_[next_overwritten_++ % overwritten_.size()] = {first, last};
  }

  /// Pieces [first, last] are asked for at once: do they continue a descending sweep? Then they are to be
  /// asked for in that order.
  [[nodiscard]] bool descends(std::uint64_t first, std::uint64_t last) const noexcept {
    const Sweep* met = nullptr;
    for (const Sweep& s : sweeps_) {
      const bool near = s.asked >= static_cast<std::int64_t>(first) - kMostSkipped &&
                        s.asked <= static_cast<std::int64_t>(last) + kMostSkipped;
      if (s.used != 0 && near && (met == nullptr || s.used > met->used)) met = &s;
    }
    return met != nullptr && (met->asked > static_cast<std::int64_t>(last) ||
                              (met->asked >= static_cast<std::int64_t>(first) && met->stride < 0));
  }

 private:
  static constexpr std::int64_t kMostSkipped = 16, kMostBehind = 4;
  static constexpr std::uint64_t kLately = 64;  ///< asks

  struct Sweep {
    std::int64_t last = 0;     ///< the last piece that was asked for or read ahead
    std::int64_t asked = 0;    ///< the last piece that was asked for
    std::int64_t trigger = 0;  ///< from this piece on the next ones are to be requested
    std::int64_t stride = 0;   ///< 0: not known
    std::uint32_t ahead = 0;   ///< pieces that were to be ahead when it was last asked; 0: no sweep yet
    std::uint32_t most = 0;    ///< for which there was room then
    std::uint64_t used = 0;    ///< 0: never

    [[nodiscard]] std::uint32_t quarter() const noexcept { return std::max(1u, std::min(ahead, most) / 4); }
    /// Is it among the pieces that were read ahead, or nearly the next one? Some were in DRAM already and
    /// were not asked for; some of the last plan could not be read. A piece further back than the last one
    /// that was asked for begins anew: a program goes over the same memory again.
    [[nodiscard]] bool meets(std::int64_t at) const noexcept {
      if (ahead == 0 || (at - last) % stride != 0) return false;
      return (at - trigger) / stride >= -static_cast<std::int64_t>(quarter()) - kMostBehind &&
             (at - last) / stride <= kMostSkipped;
    }
  };

  struct Pieces {
    std::uint64_t first = 1, last = 0;
    [[nodiscard]] bool contains(std::uint64_t piece) const noexcept {
      return first <= piece && piece <= last;
    }
  };

  bool is_overwritten(std::uint64_t piece, Purpose purpose) noexcept {
    bool is = false;
    for (Pieces& p : overwritten_) {
      if (!p.contains(piece)) continue;
      if (purpose == Purpose::load)
        p = {};  // the thread that stored there is done
      else
        is = true;
    }
    return is;
  }

  Sweep& oldest() noexcept {
    return *std::min_element(sweeps_.begin(), sweeps_.end(),
                             [](const Sweep& x, const Sweep& y) { return x.used < y.used; });
  }

  /// Was no other sweep used lately?
  [[nodiscard]] bool is_alone(const Sweep& s) const noexcept {
    return std::none_of(sweeps_.begin(), sweeps_.end(), [&](const Sweep& other) {
      return &other != &s && other.ahead > 1 && other.used + kLately >= clock_;
    });
  }

  Plan go_on(Sweep& s, std::int64_t at, std::uint32_t most) noexcept {
    s.used = ++clock_;
    s.asked = at;
    if (!is_alone(s)) most = (most + 1) / 2;
    if (s.ahead != 0 && (at - s.trigger) / s.stride < 0) return {};
    const std::uint32_t ahead = std::min(std::max(1u, 2 * s.ahead), kMost);
    const std::int64_t from = (at - s.last) / s.stride > 0 ? at : s.last;
    const auto come = static_cast<std::uint64_t>((from - at) / s.stride),
               wanted = std::uint64_t{std::min(ahead, most)};
    if (s.ahead == 0) s.ahead = 1;
    if (wanted <= come) return {};  // there is no room for the moment: the next request tries again
    const auto above_zero =
        s.stride > 0 ? std::uint64_t{kMost} : static_cast<std::uint64_t>(from / -s.stride);
    const auto pieces = static_cast<std::uint32_t>(std::min(wanted - come, above_zero));
    s.ahead = ahead;
    s.most = most;
    s.trigger = at + s.stride * static_cast<std::int64_t>(s.quarter());
    s.last = from + s.stride * static_cast<std::int64_t>(pieces);
    return {from + s.stride, s.stride, pieces};
  }

  std::array<Sweep, 16> sweeps_{};
  std::array<Pieces, 16> overwritten_{};
  std::size_t next_overwritten_ = 0;
  std::uint64_t clock_ = 0;
};

}  // namespace kasane::gas
