// SPDX-License-Identifier: Apache-2.0
// A file without a name, for peers: however its process ends, nothing stays behind. (Where the file system
// must give it a name for a moment, a kill within those microseconds leaves an empty file.)
#pragma once

#include <cstdint>
#include <string>

namespace kasane::bench {

class ScratchFile {
 public:
  /// Sparse. Throws std::runtime_error if it cannot be made.
  ScratchFile(const std::string& directory, std::uint64_t bytes);
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;
  ~ScratchFile();

  [[nodiscard]] int fd() const noexcept { return fd_; }
  /// By which other processes of this user can open it while this one lives.
  [[nodiscard]] std::string path() const;

 private:
  int fd_;
};

}  // namespace kasane::bench
