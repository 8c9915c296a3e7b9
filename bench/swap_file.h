// SPDX-License-Identifier: Apache-2.0
// A file to which the kernel swaps, for peers that have nothing of their own for what is larger than memory.
// It is there for all of the machine while the object lives; MemoryGroup says who has to use it.
// Thread safety: none needed. Invariant: the file goes with the object, or, if that process was killed, by
// remove_left_behind() of any process that may.
#pragma once

#include <cstdint>
#include <string>

namespace kasane::bench {

class SwapFile {
 public:
  /// In directory, under this name. If the kernel does not take it (no right to, a file system that cannot),
  /// it is not good(), and problem() says why.
  SwapFile(const std::string& directory, const std::string& name, std::uint64_t bytes);
  SwapFile(const SwapFile&) = delete;
  SwapFile& operator=(const SwapFile&) = delete;
  ~SwapFile();

  [[nodiscard]] bool good() const noexcept { return problem_.empty(); }
  [[nodiscard]] const std::string& problem() const noexcept { return problem_; }

  /// Files in directory whose names begin so, of a process that is gone.
  static void remove_left_behind(const std::string& directory, const std::string& prefix);

 private:
  std::string path_, problem_;
};

}  // namespace kasane::bench
