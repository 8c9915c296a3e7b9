// SPDX-License-Identifier: Apache-2.0
// Memory through which blocks that have no frame come from the spill file: read into a piece of it, and written into the memory file from there, which makes the frame.
//
//   spill file ──direct──▶ piece ──pwrite──▶ frame              the frame is not zeroed first and gets no translation in A, which punching would have to take away
//                                ──fill()──▶ frame and view     likewise, shown in V by the same call, where the engine can and the blocks are to be read (View)
//   spill file ──direct──▶ frame, through A ("in place")        no copy: better where frames are large (mem/large_frames.h) and many OS pages are made as one
//
// What is staged has no other frames than its own blocks, whatever size the kernel gives mappings. Nothing makes a large one where one of its blocks is.
//
// Pieces are given lowest first, and few at once, so that they are still in the processor's cache when they are copied. Nobody waits for one: who gets none reads in place.
// So whoever is slow to complete his reads keeps nobody else from reading. The memory is no part of M: it may be registered with the kernel, as no frame may (rule 9).
//
// Thread safety: everything from any thread, fault handlers too, but for create().
// Invariant: a piece is free, or belongs to one read.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/result.h"
#include "mem/fault_engine.h"
#include "mem/pages.h"

namespace kasane::mem {

/// Blocks that come may be used at once: whoever reads them back holds their bits, and gives the right to that afterwards, too, to those that have not got it.
struct View {
  FaultEngine* engine = nullptr;     ///< null: none of them
  BlockRange but{BlockId{0}, 0};     ///< not these
  Access access = Access::read;      ///< the right: to read, or to write, too
};

/// The memory file that a spill file's blocks belong to, and where it is mapped (A).
struct MemoryFile {
  int fd;
  std::byte* base;
  Pages pages;                         ///< of the space
  std::uint64_t large_frame_bytes = 0;   ///< what mappings were advised to have where pages are at least as long; 0: nothing
};

class BounceBuffers {
 public:
  static constexpr std::uint32_t kBufferBytes = 64u << 10;     ///< the most that is read at once
  static constexpr std::size_t kBytes = 64 * kBufferBytes;     ///< in all, for as long as it lives

  /// The file outlives it, as long as something is read.
  static Result<std::unique_ptr<BounceBuffers>> create(MemoryFile);
  BounceBuffers(const BounceBuffers&) = delete;
  BounceBuffers& operator=(const BounceBuffers&) = delete;
  /// All pieces were given back.
  ~BounceBuffers();

  /// How a run of blocks that is to come to base + offset should begin: so many bytes of it, through here or in place (then whole large frames, or another's memory).
  struct Part {
    std::uint64_t bytes;
    bool staged;
  };
  [[nodiscard]] Part first_part(const std::byte* base, std::uint64_t offset, std::uint64_t bytes) const noexcept;
  /// A piece, or so many bytes of it; none: all are taken.
  [[nodiscard]] std::span<std::byte> take(std::uint64_t bytes) noexcept;
  /// Writes whole blocks to the memory file, or where they are shown, too. 0 or an errno.
  [[nodiscard]] int deliver(std::uint64_t offset, std::span<const std::byte> bytes, const View& = {}) const noexcept;
  /// No piece was left for a part that should be staged, so it will come in place: its frames first, if they would be larger.
  void make_small(std::uint64_t offset, std::uint64_t bytes) const noexcept;
  /// What take() gave.
  void give_back(std::span<std::byte>) noexcept;

  [[nodiscard]] std::span<std::byte> memory() const noexcept { return {memory_, kBytes}; }

 private:
  BounceBuffers(MemoryFile file, std::byte* memory) noexcept : file_(file), memory_(memory) {}
  [[nodiscard]] int write(std::uint64_t offset, std::span<const std::byte> bytes) const noexcept;
  [[nodiscard]] std::byte* map_small(std::uint64_t offset, std::uint64_t bytes) const noexcept;
  [[nodiscard]] std::uint64_t bit_of(std::span<const std::byte>) const noexcept;

  const MemoryFile file_;
  std::byte* const memory_;
  std::atomic<std::uint64_t> free_{~std::uint64_t{0}};   // bit i: piece i
};

}  // namespace kasane::mem
