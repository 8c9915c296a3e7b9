// SPDX-License-Identifier: Apache-2.0
// Sequences of FASTA and FASTQ files, also compressed by gzip, as one text: the bases as they stand in the
// file, without names, line ends and qualities, and an N between two sequences. Sequences of both formats may
// have several lines; lines end with LF or CR LF.
//
// Thread safety: none; one thread of rank 0, which does not move meanwhile. Errors are std::runtime_error
// with file, line and reason.
#pragma once

#include <zlib.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "common/private_array.h"

namespace apps::kmers {

class SequenceFile {
 public:
  /// "-": standard input. By its first character it is FASTA (>) or FASTQ (@).
  explicit SequenceFile(const std::string& name);
  SequenceFile(const SequenceFile&) = delete;
  SequenceFile& operator=(const SequenceFile&) = delete;
  ~SequenceFile();

  /// The next n characters of the text, fewer only at its end.
  [[nodiscard]] std::size_t read(char* to, std::size_t n);
  /// Bytes of the file read so far, as it is on disk.
  [[nodiscard]] std::uint64_t offset() const noexcept;

 private:
  /// What a line is; begin: one at which no record has begun.
  enum class Part : unsigned char { begin, name, sequence, plus, quality };

  bool fill();
  [[noreturn]] void fail(const std::string& what) const;
  void begin_line();
  std::size_t within_line(char* to, std::size_t room);
  void end_line();
  void end_of_file();

  std::string name_;
  gzFile file_;
  PrivateArray<char> buffer_;
  std::size_t at_ = 0, end_ = 0;  ///< of the buffer
  Part part_ = Part::begin;
  char pending_ = 0;  ///< comes next in the text
  bool known_ = false, fastq_ = false, line_begins_ = true, carriage_return_ = false;
  std::uint64_t line_ = 1, bases_ = 0, qualities_ = 0;  ///< bases and qualities of this record
};

}  // namespace apps::kmers
