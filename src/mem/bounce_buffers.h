// SPDX-License-Identifier: Apache-2.0
// Bounce buffers, through which blocks without a frame are read from the spill file. A block is read into a
// buffer and copied from there into the memory file, which makes its frame.
//
//   spill file ──direct──▶ buffer ──pwrite──▶ frame            staged: the frame is not zeroed first, and
//                                                              punching need not remove a translation in A
//                                 ──fill()──▶ frame and view   staged, and shown in V by the same call, if
//                                                              the engine can and the blocks are to be used
//   spill file ──direct──▶ frame, through A                    in place: no copy; better where frames are
//                                                              large: many OS pages are made as one
//
// View says which blocks are to be used; mem/large_frames.h when frames are large. Staged blocks have no
// other frames than their own, whatever frame size the kernel uses for mappings. No large frame is made later
// where one of its blocks is.
//
// The lowest free buffer is given first, and few are in use at once, so that they are still in the
// processor's cache when they are copied. No thread waits for a buffer: without one, a read goes in place, so
// a thread that is slow to complete its reads does not delay others. The buffers are no part of M: they may
// be registered with the kernel, which frames may not be (rule 9).
//
// Thread safety: everything but create() from any thread, fault handlers too.
// Invariant: a buffer is free, or belongs to one read.
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

/// Blocks that are read may be used as soon as they come. The thread that brings them in holds their bits,
/// and afterwards gives the right to the blocks that have not got it yet.
struct View {
  FaultEngine* engine = nullptr;  ///< null: no block is shown
  BlockRange but{BlockId{0}, 0};  ///< blocks that are not shown
  Access access = Access::read;   ///< to read, or to read and write
};

/// The memory file to which a spill file's blocks belong, and where it is mapped (A).
struct MemoryFile {
  int fd;
  std::byte* base;
  Pages pages;  ///< of the space
  /// The frame size that was advised for mappings of pages at least as long; 0: none
  std::uint64_t large_frame_bytes = 0;
};

class BounceBuffers {
 public:
  static constexpr std::uint32_t kBufferBytes = 64u << 10;  ///< of one buffer: the most that is read at once
  static constexpr std::size_t kBytes = 64 * kBufferBytes;  ///< in all, for as long as it lives

  /// The file must outlive the last read.
  static Result<std::unique_ptr<BounceBuffers>> create(MemoryFile);
  BounceBuffers(const BounceBuffers&) = delete;
  BounceBuffers& operator=(const BounceBuffers&) = delete;
  /// All buffers were given back.
  ~BounceBuffers();

  /// How the beginning of a run of blocks is to be read to base + offset: its length, and whether through a
  /// buffer or in place (whole large frames, or memory that is not the file's).
  struct FirstRead {
    std::uint64_t bytes;
    bool staged;
  };
  [[nodiscard]] FirstRead first_read(const std::byte* base, std::uint64_t offset,
                                     std::uint64_t bytes) const noexcept;
  /// A buffer, or so many bytes of it; empty: all are taken.
  [[nodiscard]] std::span<std::byte> take(std::uint64_t bytes) noexcept;
  /// Copies whole blocks into the memory file, or also into V where they are to be shown. 0 or an errno.
  [[nodiscard]] int deliver(std::uint64_t offset, std::span<const std::byte> bytes,
                            const View& = {}) const noexcept;
  /// No buffer was left for a part that should be staged, so it is read in place. Makes its frames first,
  /// where a touch would make larger ones.
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
  std::atomic<std::uint64_t> free_{~std::uint64_t{0}};  // bit i: buffer i
};

}  // namespace kasane::mem
