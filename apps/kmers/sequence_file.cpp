// SPDX-License-Identifier: Apache-2.0
#include "kmers/sequence_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace apps::kmers {
namespace {

constexpr std::size_t kBuffer = std::size_t{1} << 20;

}  // namespace

SequenceFile::SequenceFile(const std::string& name)
    : name_(name == "-" ? "standard input" : name), file_(nullptr), buffer_(kBuffer) {
  const int fd = name == "-" ? ::dup(0) : ::open(name.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) throw std::runtime_error("cannot read " + name_ + ": " + std::strerror(errno));
  file_ = ::gzdopen(fd, "rb");
  if (file_ == nullptr || ::gzbuffer(file_, kBuffer / 4) != 0) {
    if (file_ == nullptr) ::close(fd);
    throw std::runtime_error("cannot read " + name_ + ": no memory for its buffer");
  }
}

SequenceFile::~SequenceFile() { ::gzclose(file_); }

std::uint64_t SequenceFile::offset() const noexcept {
  return static_cast<std::uint64_t>(std::max<z_off_t>(0, ::gzoffset(file_)));
}

void SequenceFile::fail(const std::string& what) const {
  throw std::runtime_error(name_ + ", line " + std::to_string(line_) + ": " + what);
}

/// False: the end of the file.
bool SequenceFile::fill() {
  errno = 0;
  const int got = ::gzread(file_, buffer_.get(), kBuffer);
  int code = Z_OK;
  const char* const text = ::gzerror(file_, &code);
  if (code == Z_ERRNO) throw std::runtime_error("reading " + name_ + ": " + std::strerror(errno));
  if (code == Z_BUF_ERROR)  // zlib's name for it
    throw std::runtime_error("reading " + name_ + ": the compressed data ends too early");
  if (got < 0 || code < 0) throw std::runtime_error("reading " + name_ + ": damaged: " + text);
  at_ = 0;
  end_ = static_cast<std::size_t>(got);
  return got > 0;
}

/// By the first character of a line: what the line is.
void SequenceFile::begin_line() {
  const char first = buffer_.get()[at_];
  line_begins_ = false;
  if (part_ == Part::begin) {
    if (first == '\n' || first == '\r') return;
    if (!known_) fastq_ = first == '@';
    if (first != (fastq_ ? '@' : '>'))
      fail(known_ ? "expected a record's name, which begins with @"
                  : "neither FASTA, which begins with >, nor FASTQ, which begins with @");
    if (known_) pending_ = 'N';
    known_ = true;
    part_ = Part::name;
  } else if (part_ == Part::sequence && !fastq_ && first == '>') {
    pending_ = 'N';
    part_ = Part::name;
  } else if (part_ == Part::sequence && fastq_ && first == '+') {
    part_ = Part::plus;
  } else if (part_ == Part::sequence && fastq_ && first == '@') {
    fail("a record without qualities: expected +");
  }
}

/// As much of the line as is in the buffer and `room` takes; returns how many characters of the text.
std::size_t SequenceFile::within_line(char* to, std::size_t room) {
  const char* const from = buffer_.get() + at_;
  const std::size_t there = end_ - at_;
  const auto* const newline = static_cast<const char*>(std::memchr(from, '\n', there));
  std::size_t bytes = newline != nullptr ? static_cast<std::size_t>(newline - from) : there;
  if (carriage_return_ && bytes != 0) {  // it was none of a line's end
    carriage_return_ = false;
    if (part_ == Part::sequence) return *to = '\r', 1;
  }
  if (part_ == Part::sequence) bytes = std::min(bytes, room);
  at_ += bytes;
  std::size_t useful = bytes;
  if (bytes != 0 && from[bytes - 1] == '\r') carriage_return_ = true, --useful;
  if (newline == from + bytes) ++at_;
  const bool text = part_ == Part::sequence;
  if (text) std::memcpy(to, from, useful), bases_ += useful;
  if (part_ == Part::quality) qualities_ += useful;
  if (newline == from + bytes) end_line();
  return text ? useful : 0;
}

void SequenceFile::end_line() {
  line_begins_ = true;
  carriage_return_ = false;
  if (part_ == Part::name) {
    part_ = Part::sequence;
    bases_ = qualities_ = 0;
  } else if (part_ == Part::plus) {
    part_ = Part::quality;
  } else if (part_ == Part::quality && qualities_ >= bases_) {
    if (qualities_ > bases_)
      fail(std::to_string(qualities_) + " qualities for " + std::to_string(bases_) + " bases");
    part_ = Part::begin;
  }
  ++line_;
}

void SequenceFile::end_of_file() {
  if (!line_begins_) end_line(), --line_;
  const bool whole = part_ == Part::begin || (part_ == Part::quality && bases_ == 0);
  if (fastq_ && !whole) fail("the file ends within a record");
}

std::size_t SequenceFile::read(char* to, std::size_t n) {
  std::size_t done = 0;
  while (done < n) {
    if (pending_ != 0) {
      to[done++] = std::exchange(pending_, '\0');
    } else if (at_ == end_ && !fill()) {
      end_of_file();
      break;
    } else if (line_begins_) {
      begin_line();
    } else {
      done += within_line(to + done, n - done);
    }
  }
  return done;
}

}  // namespace apps::kmers
