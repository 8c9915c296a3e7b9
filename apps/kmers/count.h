// SPDX-License-Identifier: Apache-2.0
// Counts the k-mers of texts in a map over all ranks. A text is cut into pieces; a thread for each worker
// takes the next piece until none is left, and sends sums to the ranks where the k-mers lie.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <kasane/containers/unordered_map.hpp>
#include <kasane/containers/updates.hpp>
#include <kasane/kasane.hpp>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "common/progress.h"
#include "kmers/everywhere.h"
#include "kmers/kmer.h"

namespace apps::kmers {

/// How often a k-mer occurs; unitigs.h keeps more in the highest byte.
using Counts = kasane::unordered_map<Kmer, std::uint64_t>;

/// Counts what piece(i, buffer) returns for i in [0, pieces): a text, in the buffer or elsewhere in the
/// space. steps: counts pieces as the progress.
/// Returns how many k-mers there were. From main. Throws kasane::out_of_memory.
template <class Piece>
std::uint64_t count_pieces(const Counts& counts, Kmers kmers, std::size_t pieces, bool steps,
                           const Piece& piece) {
  const auto next = kasane::make_array<std::uint64_t>(1, kasane::placement::local.fixed());
  return kasane::run([&] {
    const kasane::global_ptr<std::uint64_t> next_piece(next.get());
    kasane::put(next_piece, std::uint64_t{0});
    std::vector<std::uint64_t> sums(all_workers());
    kasane::post_group group;
    const auto work = [&](std::size_t i) {
      kasane::updates u(counts, group);
      std::string buffer;
      std::uint64_t n = 0;
      for (std::uint64_t p; (p = kasane::fetch_add(next_piece, std::uint64_t{1})) < pieces;) {
        kmers.for_each(piece(p, buffer), [&](Kmer forward, Kmer backward, std::size_t) {
          u.add(std::min(forward, backward), 1);
          ++n;
        });
        if (steps) Progress::add(1);
      }
      u.flush();
      sums[i] = n;
    };
    try {
      on_all_workers(work);
    } catch (...) {
      try {
        group.wait();
      } catch (...) {  // the first exception counts
      }
      throw;
    }
    group.wait();
    return std::accumulate(sums.begin(), sums.end(), std::uint64_t{0});
  });
}

inline constexpr std::size_t kPieceBytes = std::size_t{64} << 10;

/// The k-mers of a text in the space.
inline std::uint64_t count_text(const Counts& counts, Kmers kmers, std::string_view text, bool steps) {
  return count_pieces(
      counts, kmers, (text.size() + kPieceBytes - 1) / kPieceBytes, steps, [=](std::size_t i, std::string&) {
        const std::string_view piece = text.substr(i * kPieceBytes, kPieceBytes + kmers.k() - 1);
        kasane::prefetch(piece.data(), piece.size());
        return piece;
      });
}

/// Element n: of how many k-mers there are n; the last one: n or more. As `jellyfish histo`.
inline constexpr std::size_t kMostCounted = 10001;
using Histogram = std::vector<std::uint64_t>;

/// From main.
inline Histogram histogram(const Counts& counts) {
  return kasane::run([&counts] {
    std::vector<Histogram> parts(counts.parts(), Histogram(kMostCounted + 1));
    on_threads(
        counts.parts(), [&](std::size_t s) { return counts.rank_of_part(static_cast<std::uint32_t>(s)); },
        [&](std::size_t s) {
          Histogram mine(kMostCounted + 1);
          counts.for_each_of(static_cast<std::uint32_t>(s), [&mine](Kmer, std::uint64_t n) {
            ++mine[std::min<std::uint64_t>(n, kMostCounted)];
          });
          parts[s] = std::move(mine);
        });
    Histogram all(kMostCounted + 1);
    for (const Histogram& part : parts)
      for (std::size_t n = 0; n < all.size(); ++n) all[n] += part[n];
    return all;
  });
}

}  // namespace apps::kmers
