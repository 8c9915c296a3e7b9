// SPDX-License-Identifier: Apache-2.0
// A member of a team (team.h): which part of the data is its own, and where it meets the others. Needs no
// runtime.
//
// Thread safety: a Member belongs to one thread.
#pragma once

#include <algorithm>
#include <cstddef>

namespace apps {

/// [first, last).
struct Part {
  std::size_t first, last;
};

class Member {
 public:
  /// Alone.
  Member() noexcept = default;
  /// wait_here(barrier) holds the caller until all members have called it.
  Member(std::size_t index, std::size_t size, void* barrier, void (*wait_here)(void*)) noexcept
      : index_(index), size_(size), barrier_(barrier), wait_here_(wait_here) {}

  [[nodiscard]] std::size_t index() const noexcept { return index_; }
  /// This member's part of [begin, end); all parts but the last are multiples of `unit`.
  [[nodiscard]] Part part(std::size_t begin, std::size_t end, std::size_t unit = 1) const noexcept {
    const std::size_t units = (end - begin + unit - 1) / unit;
    const auto cut = [&](std::size_t i) { return std::min(end, begin + units * i / size_ * unit); };
    return {cut(index_), cut(index_ + 1)};
  }
  /// Until all members are here.
  void wait() {
    if (wait_here_ != nullptr) wait_here_(barrier_);
  }

 private:
  std::size_t index_ = 0, size_ = 1;
  void* barrier_ = nullptr;
  void (*wait_here_)(void*) = nullptr;
};

/// body(member) of a team of one: the sequential elision of what team() of team.h runs.
template <class F>
void team_of_one(F&& body) {
  Member me;
  body(me);
}

}  // namespace apps
