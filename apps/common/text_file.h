// SPDX-License-Identifier: Apache-2.0
// Files in and out of global memory. System calls cannot follow faults into the space (they answer EFAULT),
// so all input and output goes through a private buffer.
//
// Thread safety: none; one thread of rank 0, which does not move meanwhile. Errors are std::runtime_error
// with the file's name and the reason.
#pragma once

#include <cstddef>
#include <string>

namespace apps {

/// A file to read, opened and measured. Refuses what is not a regular file.
class TextFile {
 public:
  explicit TextFile(std::string name);
  TextFile(const TextFile&) = delete;
  TextFile& operator=(const TextFile&) = delete;
  ~TextFile();

  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  /// Fills [to, to + bytes()).
  void read(char* to);

 private:
  std::string name_;
  int fd_;
  std::size_t bytes_ = 0;
};

/// For writing, emptied; -1 with errno. EACCES: the name is a link of another user where all may write
/// (/tmp), which would have this user overwrite a file of his own.
[[nodiscard]] int open_output(const std::string& name) noexcept;

/// A file being written; made or emptied at once, so that a name that cannot be written is known before the
/// work.
class LineWriter {
 public:
  explicit LineWriter(std::string name);
  LineWriter(const LineWriter&) = delete;
  LineWriter& operator=(const LineWriter&) = delete;
  ~LineWriter();

  /// The line and a newline.
  void line(const char* text, std::size_t bytes);
  /// Writes what is buffered; errors of the disk come up here at the latest.
  void close();

 private:
  void append(const char* text, std::size_t bytes);
  void flush();

  std::string name_;
  int fd_;
  std::size_t used_ = 0;
};

}  // namespace apps
