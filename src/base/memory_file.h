// SPDX-License-Identifier: Apache-2.0
// Memory that is much larger than the part that is used: files in memory, which ranks of a host map, and
// private tables. Both cost what is touched.
//
// The limit of file sizes (ulimit -f) holds for memory files, too: beyond it a process ends by SIGXFSZ
// without a message. The limit is meant for the program's files on disk, so it is raised for a moment where
// that is allowed.
//
// A core file contains all of a mapping, touched or not. Mappings of more than kMostInCore stay out: their
// terabytes would take minutes and a disk.
//
// Thread safety: any thread.
#pragma once

#include <cstddef>
#include <string>

#include "base/result.h"

namespace kasane {

inline constexpr std::size_t kMostInCore = std::size_t{1} << 20;

/// Can a memory file be so large? Else the error names the limit. what: "the memory of …".
Result<void> check_file_limit(const std::string& what, std::size_t bytes);

/// A sparse file in memory of so many bytes, closed by exec; or the error, with the limit that is in the way.
Result<int> memory_file(const char* name, std::size_t bytes);

/// Maps zeros: of that file, shared, or else private. what: "the …" for the message.
Result<std::byte*> map_sparse(std::size_t bytes, const std::string& what, int file = -1);

/// Keeps this mapping out of core files if it is large. Only for whole mappings, when they are made: a part
/// would become a mapping of its own.
void leave_out_of_core(void* mapping, std::size_t bytes) noexcept;

/// While an object lives, the process's limit of file sizes is as high as it may be: for libraries that make
/// memory files.
class RaisedFileLimit {
 public:
  RaisedFileLimit() noexcept;
  ~RaisedFileLimit();
  RaisedFileLimit(const RaisedFileLimit&) = delete;
  RaisedFileLimit& operator=(const RaisedFileLimit&) = delete;
};

}  // namespace kasane
