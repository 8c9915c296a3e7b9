// SPDX-License-Identifier: Apache-2.0
// The geometry of the global space and this rank's views of it (design: V, M, A, T all at the same offset).
//
//   V  base … base+bytes   the coherent view: the user's pointers; maps M; no access until armed
//   M  one sparse memfd    the DRAM tier: owned pages and cached copies alike at their offset
//   A  another map of M    the runtime's alias, always read-write
//   T  a sparse memfd      twins
//
// A FaultEngine arms V. V and A may show frames of another file in a part (show). So the stacks of ranks on
// one host are one memory (runtime/stacks.h).
//
// Thread safety: constant after create() and show(), which come before all other calls.
#pragma once

#include <cstddef>
#include <cstdint>

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

class Space {
 public:
  /// Maps V over the reservation at base (from reserve_space), and A and T wherever there is room. bytes is a
  /// multiple of kPageBytes.
  static Result<Space> create(std::byte* base, std::size_t bytes);
  Space(Space&&) noexcept;
  Space& operator=(Space&&) = delete;
  ~Space();

  /// From now on V and A map other frames at [offset, offset + bytes), whole OS pages: the shared ones that
  /// `frames` maps. V is open there, so this comes before a fault engine is made. After an error a part may
  /// have changed.
  Result<void> show(std::uint64_t offset, std::size_t bytes, std::byte* frames);

  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] std::uint64_t blocks() const noexcept { return bytes_ / kBlockBytes; }
  [[nodiscard]] std::byte* v(std::uint64_t offset) const noexcept { return v_ + offset; }
  [[nodiscard]] std::byte* a(std::uint64_t offset) const noexcept { return a_ + offset; }
  [[nodiscard]] std::byte* t(std::uint64_t offset) const noexcept { return t_ + offset; }
  [[nodiscard]] int frames_fd() const noexcept { return m_fd_; }
  [[nodiscard]] int twins_fd() const noexcept { return t_fd_; }
  [[nodiscard]] bool contains(const void* p) const noexcept {
    return reinterpret_cast<std::uintptr_t>(p) - reinterpret_cast<std::uintptr_t>(v_) < bytes_;
  }
  /// Offset of an address in V; only where contains(p).
  [[nodiscard]] std::uint64_t offset(const void* p) const noexcept {
    return reinterpret_cast<std::uintptr_t>(p) - reinterpret_cast<std::uintptr_t>(v_);
  }

 private:
  Space() = default;
  std::byte *v_ = nullptr, *a_ = nullptr, *t_ = nullptr;
  std::size_t bytes_ = 0;
  int m_fd_ = -1, t_fd_ = -1;
};

}  // namespace kasane::mem
