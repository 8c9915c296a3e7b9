// SPDX-License-Identifier: Apache-2.0
// All counters of a job, or of a rank, as they are at one time, for tests that compare several of them.
// Thread safety: as a value. It allocates no memory, since that would be counted too.
#pragma once

#include <array>
#include <cstdint>
#include <kasane/kasane.hpp>
#include <stdexcept>
#include <string>
#include <string_view>

namespace kasane::test {

class Counts {
 public:
  explicit Counts(std::uint32_t of_rank = KASANE_ALL_RANKS) {
    const auto add = [this](const char* name, std::uint64_t value) { items_.at(size_++) = {name, value}; };
    for_each_counter(add, of_rank);
  }
  [[nodiscard]] std::uint64_t operator[](std::string_view name) const {
    for (std::size_t i = 0; i < size_; ++i) {
      if (items_[i].name == name) return items_[i].value;
    }
    throw std::out_of_range("there is no counter " + std::string(name));
  }

 private:
  struct Item {
    std::string_view name;
    std::uint64_t value;
  };
  std::array<Item, 100> items_;
  std::size_t size_ = 0;
};

}  // namespace kasane::test
