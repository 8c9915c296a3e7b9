// SPDX-License-Identifier: Apache-2.0
// Whether unitigs are pieces of a genome, or of its reverse complement. Serial.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kmers/kmer.h"
#include "kmers/unitigs.h"

namespace apps::kmers {

[[nodiscard]] inline std::string reverse_complement(std::string_view text) {
  std::string r(text.size(), 'N');
  std::transform(text.rbegin(), text.rend(), r.begin(), [](char base) {
    const std::uint8_t code = code_of(base);
    return code == kNoBase ? 'N' : base_of(3u - code);
  });
  return r;
}

/// The first unitig that is none, or null. Circles may begin anywhere, so each of their k-mers is looked for.
[[nodiscard]] inline const Unitig* not_in_genome(const std::vector<Unitig>& unitigs, std::string_view genome,
                                                 Kmers kmers) {
  struct Piece {
    const Unitig* of;
    std::string_view text;
    bool found = false;
  };
  std::vector<Piece> pieces;
  for (const Unitig& u : unitigs) {
    const std::string_view text = u.text;
    const std::size_t bytes = u.circular ? kmers.k() : text.size();
    for (std::size_t i = 0; i + bytes <= text.size(); ++i) pieces.push_back({&u, text.substr(i, bytes)});
  }
  std::unordered_multimap<Kmer, Piece*> by_begin;
  by_begin.reserve(pieces.size());
  for (Piece& p : pieces)
    kmers.for_each(p.text.substr(0, kmers.k()), [&](Kmer x, Kmer, std::size_t) { by_begin.emplace(x, &p); });
  std::string upper(genome);
  for (int strand = 0; strand < 2; ++strand) {
    upper = reverse_complement(upper);
    const std::string_view text = upper;
    kmers.for_each(text, [&](Kmer x, Kmer, std::size_t at) {
      const auto [first, last] = by_begin.equal_range(x);
      for (auto i = first; i != last; ++i) {
        Piece& p = *i->second;
        p.found = p.found || text.compare(at, p.text.size(), p.text) == 0;
      }
    });
  }
  const auto lost = std::find_if(pieces.begin(), pieces.end(), [](const Piece& p) { return !p.found; });
  return lost == pieces.end() ? nullptr : lost->of;
}

}  // namespace apps::kmers
