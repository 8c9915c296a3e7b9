// SPDX-License-Identifier: Apache-2.0
// Simulated reads of a genome: at random places of both strands, with random substitutions. Read i depends on
// the genome, the seed and i alone, so threads make them in any order, on any number of ranks.
//
// Thread safety: constant.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "common/random.h"
#include "kmers/kmer.h"

namespace apps::kmers {

class Reads {
 public:
  /// Of a text that is no shorter than a read, as often as `coverage` says on average; `errors`: the
  /// probability that a base is another one.
  Reads(std::string_view genome, std::size_t length, double coverage, double errors, std::uint64_t seed)
      : genome_(genome),
        length_(length),
        count_(static_cast<std::uint64_t>(
            std::llround(coverage * static_cast<double>(genome.size()) / static_cast<double>(length)))),
        seed_(seed),
        errors_(static_cast<std::uint64_t>(std::llround(errors * 0x1p32))) {}

  [[nodiscard]] std::uint64_t count() const noexcept { return count_; }
  [[nodiscard]] std::size_t length() const noexcept { return length_; }

  /// Writes length() bases: ACGT, and N where the genome has none of them, or where a sequence ends.
  void make(std::uint64_t i, char* to) const noexcept {
    const std::uint64_t own = random_at(seed_, i), place = random_at(own, 0);
    const bool backward = (own >> 32 & 1) != 0;
    const char* const from = genome_.data() + place % (genome_.size() - length_ + 1);
    for (std::size_t j = 0; j < length_; ++j) {
      std::uint64_t code = code_of(from[backward ? length_ - 1 - j : j]);
      if (code == kNoBase) {
        to[j] = 'N';
        continue;
      }
      if (backward) code = 3 - code;
      const std::uint64_t random = random_at(own, 1 + j);
      if (random >> 32 < errors_) code += 1 + (random & 0xFFFFFFFF) % 3;
      to[j] = base_of(code);
    }
  }

 private:
  std::string_view genome_;
  std::size_t length_;
  std::uint64_t count_, seed_, errors_;
};

}  // namespace apps::kmers
