// SPDX-License-Identifier: Apache-2.0
#include "base/assert.h"

#include <sys/uio.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <cstring>

#include "base/misuse.h"
#include "base/process.h"

namespace kasane {
namespace {

// A line in pieces, written by one call without a limit on its length: nothing is copied, allocated or
// formatted by stdio.
class Line {
 public:
  Line& operator<<(const char* text) noexcept {
    if (used_ < kPieces) pieces_[used_++] = {const_cast<char*>(text), std::strlen(text)};
    return *this;
  }
  void write() noexcept { [[maybe_unused]] const auto n = ::writev(2, pieces_, used_); }

 private:
  static constexpr int kPieces = 24;
  iovec pieces_[kPieces];
  int used_ = 0;
};

class Digits {
 public:
  explicit Digits(std::uint64_t number) noexcept { std::to_chars(text_, text_ + sizeof text_ - 1, number); }
  [[nodiscard]] const char* text() const noexcept { return text_; }

 private:
  char text_[21] = {};
};

}  // namespace

void check_failed(const char* expr, const char* file, int line, const char* hint) noexcept {
  char self[64];
  describe_self(self, sizeof self);
  const Digits at(static_cast<std::uint64_t>(line));
  (Line() << "kasane: " << self << ": check failed: " << expr << (hint ? ": " : "") << (hint ? hint : "")
          << " (" << file << ":" << at.text() << ")\n")
      .write();
  std::abort();
}

void misused(const char* text) noexcept {
  char self[64];
  describe_self(self, sizeof self);
  (Line() << "kasane: " << self << ": " << text << "\n").write();
  std::abort();
}

void check_op_failed(const char* expr, const char* file, int line, std::uint64_t left,
                     std::uint64_t right) noexcept {
  char self[64];
  describe_self(self, sizeof self);
  const Digits at(static_cast<std::uint64_t>(line)), a(left), b(right);
  (Line() << "kasane: " << self << ": check failed: " << expr << ", with " << a.text() << " and " << b.text()
          << " (" << file << ":" << at.text() << ")\n")
      .write();
  std::abort();
}

}  // namespace kasane
