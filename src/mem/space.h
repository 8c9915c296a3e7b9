// SPDX-License-Identifier: Apache-2.0
// The geometry of the global space and this rank's views of it (design: V, M, A, T all at the same offset).
//
//   V  base … base+bytes   the coherent view: the user's pointers; maps M; no access until armed
//   W  elsewhere           parts of V at addresses that the program has already: its variables (ViewPart)
//   M  one sparse memfd    the DRAM tier: owned pages and cached copies alike at their offset
//   A  another map of M    the runtime's alias, always read-write
//   T  a sparse memfd      twins
//
//   offset   0 ─────────── V ─────────── bytes ─ gap ─ part 1 ─ gap ─ part 2 … ─ total
//
// A FaultEngine arms V. V and A may show frames of another file in a part (show). So the stacks of ranks on
// one host are one memory (runtime/rank/stacks.h).
//
// Thread safety: constant after create() and show(), which come before all other calls.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/ids.h"
#include "base/result.h"

namespace kasane::mem {

inline constexpr std::size_t kBlockBytes = 4096;  ///< unit of transfer and protection; the OS page
/// Unit of placement and relocation where no other page size was chosen (mem/pages.h)
inline constexpr std::size_t kPageBytes = 64 * 1024;

[[nodiscard]] constexpr BlockId block_of(std::uint64_t offset) noexcept {
  return BlockId{offset / kBlockBytes};
}
[[nodiscard]] constexpr std::uint64_t offset_of(BlockId b) noexcept { return raw(b) * kBlockBytes; }

/// A run of blocks [first, first + count).
struct BlockRange {
  BlockId first;
  std::uint64_t count;
};

/// Reserves [hint, hint+bytes) (inaccessible, no memory behind it), or the first free place of a list of
/// candidates where the hint is 0. The launcher does this before the fork, so that all ranks agree.
Result<std::byte*> reserve_space(std::size_t bytes, std::uintptr_t hint = 0);

/// The candidates that have room for `bytes` in this process: bit i for candidate_base(i). Ranks that were
/// not forked from one image agree by it.
std::uint64_t free_candidates(std::size_t bytes);
/// 0: there is no i-th candidate.
std::uintptr_t candidate_base(unsigned i);

/// Punches the frames of whole blocks of a memory file, which read as zeros from then on. Keeps errno.
void punch_frames(int fd, std::uint64_t offset, std::uint64_t bytes) noexcept;

/// Sets the lowest bit of has[i] if block i from `view` on, of a mapping of a memory file, has a frame,
/// whichever process touched it. Where the kernel does not tell (a filter of system calls), each has. Keeps
/// errno.
void look_for_frames(std::byte* view, std::span<unsigned char> has) noexcept;

/// A part of V at an address of its own: whole OS pages that the process has already.
struct ViewPart {
  std::byte* at = nullptr;
  std::uint64_t bytes = 0;
  std::uint64_t filled = 0;  ///< its first bytes, which come from a file; the rest began as zeros
  std::uint64_t offset = 0;  ///< in M, A and T; from place_parts()
};

/// Gives each part an offset behind the first `bytes` of the space. Between two parts lies a page that is
/// never used, so that no run of blocks crosses from one to the next. Returns the bytes of M.
std::uint64_t place_parts(std::span<ViewPart>, std::uint64_t bytes) noexcept;

/// Where the parts of V lie: the space's own range, which begins at offset 0, and the parts that lie
/// elsewhere. A value.
class AddressMap {
 public:
  static constexpr std::size_t kMostOtherParts = 31;
  static constexpr std::uint64_t kNowhere = std::uint64_t{1} << 62;

  AddressMap() = default;
  AddressMap(std::byte* base, std::uint64_t bytes, std::span<const ViewPart> others) noexcept;

  /// The space's own range, then the others.
  [[nodiscard]] std::span<const ViewPart> parts() const noexcept { return {parts_.data(), count_}; }
  [[nodiscard]] std::byte* base() const noexcept { return parts_[0].at; }

  [[nodiscard]] std::byte* address(std::uint64_t offset) const noexcept {
    if (offset < parts_[0].bytes || count_ == 1) [[likely]]
      return parts_[0].at + offset;
    return address_in_window(offset);
  }
  [[nodiscard]] bool contains(const void* p) const noexcept { return room(p) != 0; }
  /// Bytes from p to the end of its part; 0: p is not in V.
  [[nodiscard]] std::uint64_t room(const void* p) const noexcept {
    const std::uint64_t from = distance(p, parts_[0]);
    if (from < parts_[0].bytes) [[likely]]
      return parts_[0].bytes - from;
    return count_ == 1 ? 0 : room_in_window(p);
  }
  /// Beyond the end where not contains(p).
  [[nodiscard]] std::uint64_t offset(const void* p) const noexcept {
    const std::uint64_t from = distance(p, parts_[0]);
    if (from < parts_[0].bytes || count_ == 1) [[likely]]
      return from;
    return offset_in_window(p);
  }

 private:
  static std::uint64_t distance(const void* p, const ViewPart& part) noexcept {
    return reinterpret_cast<std::uintptr_t>(p) - reinterpret_cast<std::uintptr_t>(part.at);
  }
  [[nodiscard]] const ViewPart* part_at(const void* p) const noexcept;
  [[nodiscard]] std::byte* address_in_window(std::uint64_t offset) const noexcept;
  [[nodiscard]] std::uint64_t room_in_window(const void*) const noexcept;
  [[nodiscard]] std::uint64_t offset_in_window(const void*) const noexcept;

  std::array<ViewPart, 1 + kMostOtherParts> parts_{};
  std::size_t count_ = 1;
};

class Space {
 public:
  /// Maps V over the reservation at base (from reserve_space), and A and T wherever there is room. bytes is a
  /// multiple of kPageBytes. others, placed: what this process has there becomes inaccessible until it is
  /// armed; `keep`: its bytes are copied to M before.
  static Result<Space> create(std::byte* base, std::size_t bytes, std::span<const ViewPart> others = {},
                              bool keep = false);
  Space(Space&&) noexcept;
  Space& operator=(Space&&) = delete;
  ~Space();

  /// From now on V and A map other frames at [offset, offset + bytes), whole OS pages: the shared ones that
  /// `frames` maps. V is open there, so this comes before a fault engine is made. After an error a part may
  /// have changed.
  Result<void> show(std::uint64_t offset, std::size_t bytes, std::byte* frames);

  /// The length of M, of A and of T, other parts included.
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] const AddressMap& addresses() const noexcept { return map_; }
  [[nodiscard]] std::uint64_t blocks() const noexcept { return bytes_ / kBlockBytes; }
  [[nodiscard]] std::byte* v(std::uint64_t offset) const noexcept { return map_.address(offset); }
  [[nodiscard]] std::byte* a(std::uint64_t offset) const noexcept { return a_ + offset; }
  [[nodiscard]] std::byte* t(std::uint64_t offset) const noexcept { return t_ + offset; }
  [[nodiscard]] int frames_fd() const noexcept { return m_fd_; }
  [[nodiscard]] int twins_fd() const noexcept { return t_fd_; }
  [[nodiscard]] bool contains(const void* p) const noexcept { return map_.contains(p); }
  /// Whether all of [p, p + bytes) lies in one part of V.
  [[nodiscard]] bool contains(const void* p, std::uint64_t bytes) const noexcept {
    const std::uint64_t room = map_.room(p);
    return room != 0 && bytes <= room;
  }
  /// Offset of an address in V; beyond the end where not contains(p).
  [[nodiscard]] std::uint64_t offset(const void* p) const noexcept { return map_.offset(p); }

 private:
  Space() = default;
  void copy_in(const ViewPart&) const noexcept;

  AddressMap map_;
  std::byte *a_ = nullptr, *t_ = nullptr;
  std::size_t bytes_ = 0;
  int m_fd_ = -1, t_fd_ = -1;
};

}  // namespace kasane::mem
