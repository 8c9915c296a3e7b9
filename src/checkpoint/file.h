// SPDX-License-Identifier: Apache-2.0
// The files of checkpoints, as one rank sees them: system calls, and the texts of their errors.
// runtime/api/checkpoint.cpp joins the ranks.
//
//   create ─▶ write … ─▶ commit    the file gets its name last, and replaces the older one in one step
//               └──────▶ abandon   nothing stays
//
// While it is written the file has no name (O_TMPFILE), so nothing stays, however the process ends; other
// ranks of the host open it through /proc. Where the file system cannot do that, or ranks of other hosts are
// to write, it is called NAME.kasane-new. The next job removes what a killed job leaves there.
//
// Thread safety: different objects independently; several ranks write one file at different offsets. Not in a
// handler: these calls block.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/owned_fd.h"
#include "checkpoint/error.h"
#include "checkpoint/format.h"

namespace kasane::checkpoint {

/// A file that is being written. A plain value, which other ranks may read; the descriptor is the holder's,
/// the process that created the file.
struct NewFile {
  int fd = -1;
  pid_t holder = 0;
  bool named = false;
  bool aside = false;  ///< another user's file or a directory lies at the usual temporary name
  /// Stands in the header's place until commit(): other ranks recognise the file by it
  std::uint64_t mark[2] = {};
};

/// The absolute name behind `path`, symbolic links followed: the file is replaced, not a link to it. Refuses
/// links of other users in directories like /tmp, and anything but regular files.
[[nodiscard]] FileResult<std::string> resolve(const std::string& path);
/// The name of the file while it is written, if it has one.
[[nodiscard]] std::string temporary_name(const std::string& path, const NewFile&);

/// Makes a file for `layout`, to become `path` (resolved). for_hosts: ranks of other hosts are to open it.
[[nodiscard]] FileResult<NewFile> create(const std::string& path, const FileLayout&, bool for_hosts);
/// A descriptor of the same file for writing in another process. The error says why the file cannot be seen
/// there.
[[nodiscard]] FileResult<int> open_same(const std::string& path, const FileLayout&, const NewFile&);
/// Writes all of `bytes`. chunk: for the error.
[[nodiscard]] FileResult<void> write(int fd, std::span<const std::byte> bytes, std::uint64_t chunk,
                                     const FileLayout&, const std::string& path);
/// Flushes what this process has written to the disk.
[[nodiscard]] FileResult<void> flush(int fd, const std::string& path);
/// Writes table and header, flushes, and gives the file its name. Closes it; after an error nothing of it
/// stays.
[[nodiscard]] FileResult<void> commit(NewFile&, const Contents&, std::span<const std::uint64_t> table,
                                      const std::string& path);
void abandon(NewFile&, const std::string& path) noexcept;

/// A checkpoint to be read, whose header and table were checked.
class OldFile {
 public:
  [[nodiscard]] static FileResult<OldFile> open(const std::string& path);

  [[nodiscard]] const Header& header() const noexcept { return header_; }
  [[nodiscard]] bool is_hole(std::uint64_t chunk) const noexcept { return table_[chunk] == 0; }
  /// Reads chunks from `first` on into `bytes`, and checks them.
  [[nodiscard]] FileResult<void> read(std::span<std::byte> bytes, std::uint64_t first) const;

 private:
  OldFile(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  OwnedFd fd_;
  std::string path_;
  Header header_{};
  std::vector<std::uint64_t> table_;
};

}  // namespace kasane::checkpoint
