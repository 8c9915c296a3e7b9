// SPDX-License-Identifier: Apache-2.0
// S, the tier below DRAM: a sparse file in which a block lies at its own offset in the space. With several
// directories there is a file in each; they share the offsets in stripes of 2 MiB (the largest page, so a
// page lies in one file).
//
//   directory 0   ▓▓▓░░░▓▓▓░░░…      a stripe here …
//   directory 1   ░░░▓▓▓░░░▓▓▓…      … is a hole there
//
// The files never have a name (O_TMPFILE; where a file system lacks it, the name is removed at once), so
// nothing stays behind, however the process ends. Access is direct where the file system allows it, else
// through the page cache.
//
// Nothing is reserved: a file is as large as what was stored in it. On a full disk a write fails. The writer
// keeps the frame until the write has succeeded, so nothing is lost. Reserving whole stripes would take up to
// 512 times the bytes that a scattered working set needs.
//
// `stored` says which blocks have their bytes here. A block that never had any but zeros is not stored: it
// costs neither I/O nor space.
//
// Thread safety: everything from any thread; the caller's protocol orders the calls for one block (rule 4).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "mem/block_table.h"
#include "mem/space.h"
#include "mem/spill_engine.h"

namespace kasane::mem {

inline constexpr std::uint64_t kSpillStripeBytes = 2u << 20;

/// What a spill file has done so far.
struct SpillCounts {
  std::atomic<std::uint64_t> bytes_written{0};
  std::atomic<std::uint64_t> reads{0}, writes{0};  ///< transfers
  std::atomic<std::uint64_t> bytes_staged{0};      ///< of those read: through bounce buffers
  std::atomic<std::uint64_t> blocks_of_zeros{0};   ///< read or written without I/O
  std::atomic<std::uint64_t> failures{0};          ///< transfers
};

class SpillFile {
 public:
  /// directories: "DIR" or "DIR:DIR…", of this host. bytes: of the space. Writes, reads and drops a block in
  /// each file, so that a directory that is missing, read-only, full or over quota is reported at once:
  /// Errc::io with path, errno and what to do.
  static Result<SpillFile> create(std::string_view directories, std::uint64_t bytes);
  /// Checks what can be checked without making a file: each directory exists, and this user may write to it.
  /// If not, the error is that of create().
  static Result<> check(std::string_view directories, std::uint64_t bytes);
  SpillFile(SpillFile&&) noexcept;
  SpillFile& operator=(SpillFile&&) = delete;
  ~SpillFile();

  /// The file that holds the stripe of offset.
  [[nodiscard]] int fd(std::uint64_t offset) const noexcept { return of(offset).fd; }
  [[nodiscard]] bool stored(BlockId b) const noexcept { return stored_.contains(b); }
  [[nodiscard]] bool stores_any() const noexcept { return stored_.next(0) != ~std::uint64_t{0}; }
  /// The block's bytes are in its file from now on.
  void set_stored(BlockId b) noexcept { stored_.insert(b); }
  /// The block reads as zeros from now on; its space in the file stays.
  void forget(BlockId b) noexcept { stored_.erase(b); }
  /// The blocks of the range (whole blocks) read as zeros from now on. Their space is given back where the
  /// file system can. Blocks the thread in the file system for microseconds.
  void forget(std::uint64_t offset, std::uint64_t bytes) noexcept;

  /// An I/O error in words: operation, path, errno, bytes, free space there, what to do. Allocates: not for
  /// fault handlers.
  [[nodiscard]] Error error(SpillOp, int number, std::uint64_t offset, std::uint64_t bytes) const;
  /// One line a directory: path, direct or not, free bytes; and what is unusual about it.
  [[nodiscard]] std::vector<std::string> describe() const;
  [[nodiscard]] SpillCounts& counts() noexcept { return *counts_; }

 private:
  struct OneFile {
    std::string path;  // of the directory
    int fd;
    bool direct;
  };

  explicit SpillFile(BlockSet stored) : stored_(std::move(stored)) {}
  [[nodiscard]] const OneFile& of(std::uint64_t offset) const noexcept {
    return files_[offset / kSpillStripeBytes % files_.size()];
  }
  Result<> add(const std::string& directory, std::uint64_t bytes);

  std::vector<OneFile> files_;
  BlockSet stored_;
  std::unique_ptr<SpillCounts> counts_ = std::make_unique<SpillCounts>();
};

}  // namespace kasane::mem
