// SPDX-License-Identifier: Apache-2.0
/// @file
/// The protocol of a bucket of kasane::unordered_map, pure: tests/model walks it (docs/design/containers.md
/// has the tables). A bucket verifies itself, as those of Pilaf (Mitchell et al., USENIX ATC 2013): one read
/// tells whether its bytes belong together, and whether it is the bucket of a key, as in extendible hashing.
///
///     word     locked 1 | exclusive 1 | version 14 | occupancy 16 | checksum 32: compare-swapped, then its
///              holder's
///     place    link 29 | prefix 30 | depth 5: the low `depth` bits of its keys' hashes; the bucket behind it
///     tags     one byte of each key's hash: where a find at the owner looks
///     entries  occupancy says which
///
/// The checksum covers place and occupied entries, not the tags. A writer compare-swaps the word as it was
/// read to the same with `locked`: that proves the read. It changes entries, then it stores the new word.
/// An exclusive call locks all buckets so, with `exclusive`, and is refused where one is locked; calls that
/// meet that bit are.
///
/// **Chains.** Where a directory does not grow, since many hashes end alike, a full bucket gets another one
/// behind it, and so on. The first one's word is the lock, and its checksum covers the entries of all. What
/// is behind has the word 0, and its occupancy in its place, as prefix.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace kasane::detail::bucket {

using Word = std::uint64_t;

inline constexpr Word kLocked = Word{1} << 63;
/// Only with kLocked.
inline constexpr Word kExclusive = Word{1} << 62;
inline constexpr unsigned kMostEntries = 16;

[[nodiscard]] constexpr bool locked(Word w) noexcept { return (w & kLocked) != 0; }
[[nodiscard]] constexpr bool exclusive(Word w) noexcept { return (w & kExclusive) != 0; }
[[nodiscard]] constexpr std::uint32_t occupancy(Word w) noexcept {
  return static_cast<std::uint32_t>(w >> 32) & 0xFFFF;
}
[[nodiscard]] constexpr std::uint32_t checksum(Word w) noexcept { return static_cast<std::uint32_t>(w); }

/// The word after a change of the one that was `before`, with or without the lock.
[[nodiscard]] constexpr Word changed(Word before, std::uint32_t occupied, std::uint32_t sum) noexcept {
  constexpr Word versions = Word{0x3FFF} << 48;
  return ((before + (Word{1} << 48)) & versions) | Word{occupied & 0xFFFF} << 32 | sum;
}

inline constexpr unsigned kMostDepth = 30;
inline constexpr std::uint64_t kMostPrefixes = std::uint64_t{1} << kMostDepth;
inline constexpr std::uint64_t kMostBuckets = std::uint64_t{1} << 29;
struct Place {
  std::uint64_t bits = 0;
  [[nodiscard]] constexpr unsigned depth() const noexcept { return static_cast<unsigned>(bits & 31); }
  [[nodiscard]] constexpr std::uint64_t prefix() const noexcept { return bits >> 5 & (kMostPrefixes - 1); }
  /// The number of the bucket behind it; 0: there is none.
  [[nodiscard]] constexpr std::uint64_t link() const noexcept { return bits >> 35; }
  [[nodiscard]] static constexpr Place of(std::uint64_t prefix, unsigned depth,
                                          std::uint64_t link = 0) noexcept {
    return {link << 35 | prefix << 5 | depth};
  }
  /// Of a bucket behind another one.
  [[nodiscard]] static constexpr Place behind(std::uint32_t occupancy, std::uint64_t link) noexcept {
    return of(occupancy, 0, link);
  }
  [[nodiscard]] constexpr std::uint32_t occupancy() const noexcept {
    return static_cast<std::uint32_t>(prefix());
  }
  [[nodiscard]] constexpr Place linked(std::uint64_t link) const noexcept {
    return of(prefix(), depth(), link);
  }
  [[nodiscard]] constexpr bool covers(std::uint64_t hash) const noexcept {
    return (hash & ((std::uint64_t{1} << depth()) - 1)) == prefix();
  }
  /// The two halves of a split, each without what is behind: keys whose next bit is `bit`.
  [[nodiscard]] constexpr Place half(unsigned bit) const noexcept {
    return of(prefix() | std::uint64_t{bit} << depth(), depth() + 1);
  }
  /// The next one in the order of a tree, of places that do not overlap. False: this is the last.
  [[nodiscard]] constexpr bool advance() noexcept {
    std::uint64_t p = prefix();
    unsigned d = depth();
    for (; d != 0 && (p >> (d - 1) & 1) != 0; --d) p &= (std::uint64_t{1} << (d - 1)) - 1;
    *this = d != 0 ? of(p | std::uint64_t{1} << (d - 1), d) : Place{};
    return d != 0;
  }
  friend constexpr bool operator==(Place, Place) noexcept = default;
};

/// A byte of the hash for each entry, so that a find at the owner looks at few entries; of those that are not
/// occupied it is of an earlier one.
struct Tags {
  std::uint8_t byte[kMostEntries];
  /// A bit for each entry with this tag.
  [[nodiscard]] std::uint32_t with(std::uint8_t tag) const noexcept {
    using Bytes [[gnu::vector_size(16)]] = char;
    Bytes tags;
    std::memcpy(&tags, byte, sizeof tags);
    return static_cast<std::uint32_t>(__builtin_ia32_pmovmskb128(tags == Bytes{} + static_cast<char>(tag)));
  }
};
static_assert(kMostEntries == 16);
/// Of bits that choose neither the rank nor the bucket.
[[nodiscard]] constexpr std::uint8_t tag_of(std::uint64_t hash) noexcept {
  return static_cast<std::uint8_t>(hash >> 40);
}

/// What a read of a bucket is worth, for a key with this hash.
enum class Look : std::uint8_t {
  good,
  again,  ///< a writer has it, or changed it meanwhile
  moved,  ///< it was split: the directory knows better
  busy,   ///< an exclusive call has it
};
/// sum: of the place and the entries that the word calls occupied, as they were read.
[[nodiscard]] constexpr Look judge(Word word, Place place, std::uint32_t sum, std::uint64_t hash) noexcept {
  if (!locked(word) && checksum(word) == sum) [[likely]]
    return place.covers(hash) ? Look::good : Look::moved;
  return exclusive(word) ? Look::busy : Look::again;
}

/// The steps of a change. Each is complete at the owner before the next.
enum class Change : std::uint8_t { read, lock, entries, publish, done };
/// ok: of read: the look was good; of lock: the word was as it had been read.
[[nodiscard]] constexpr Change next(Change step, bool ok) noexcept {
  switch (step) {
    case Change::read: return ok ? Change::lock : Change::read;
    case Change::lock: return ok ? Change::entries : Change::read;
    case Change::entries: return Change::publish;
    case Change::publish:
    case Change::done: break;
  }
  return Change::done;
}

/// The steps of a split of a bucket that is full. The new one is whole before the directory names it, and
/// named before the old one says that it covers less: who finds the old one meanwhile finds it locked. Where
/// the directory would become too large, the new one has no entries, and is put behind the old one.
enum class Split : std::uint8_t { lock, fill_new, name_new, publish_old, done, given_up };
/// ok: of lock: the word was as it had been read; of fill_new: the new one is not to be behind the old one.
[[nodiscard]] constexpr Split next(Split step, bool ok) noexcept {
  switch (step) {
    case Split::lock: return ok ? Split::fill_new : Split::given_up;
    case Split::fill_new: return ok ? Split::name_new : Split::publish_old;
    case Split::name_new: return Split::publish_old;
    case Split::publish_old:
    case Split::done: break;
    case Split::given_up: return Split::given_up;
  }
  return Split::done;
}

/// Whether a directory of so many words may be one of twice as many. It takes no more memory than the
/// buckets: else hashes that end alike would double it for each entry.
[[nodiscard]] constexpr bool may_grow(std::uint64_t words, std::uint64_t buckets,
                                      std::size_t bucket_bytes) noexcept {
  return words < kMostPrefixes && 2 * words * sizeof(Word) <= buckets * bucket_bytes;
}

/// The lock of a directory: 0, or one of these.
inline constexpr Word kSplitting = 1, kAlone = 2;
/// The steps of an exclusive call: locks of all directories, then those of all buckets. It waits for none.
enum class Exclusive : std::uint8_t { directories, buckets, alone, give_back, refused };
/// ok: of directories, buckets: all are locked.
[[nodiscard]] constexpr Exclusive next(Exclusive step, bool ok) noexcept {
  switch (step) {
    case Exclusive::directories: return ok ? Exclusive::buckets : Exclusive::give_back;
    case Exclusive::buckets: return ok ? Exclusive::alone : Exclusive::give_back;
    case Exclusive::alone: return Exclusive::alone;
    case Exclusive::give_back:
    case Exclusive::refused: break;
  }
  return Exclusive::refused;
}

/// Adds bytes to a checksum.
[[nodiscard]] inline std::uint64_t mix(std::uint64_t sum, const void* p, std::size_t bytes) noexcept {
  const auto* at = static_cast<const unsigned char*>(p);
  for (; bytes >= 8; at += 8, bytes -= 8) {
    std::uint64_t word;
    std::memcpy(&word, at, 8);
    sum = (sum ^ word) * 0x9E3779B97F4A7C15u;
    sum ^= sum >> 29;
  }
  if (bytes != 0) {
    std::uint64_t word = 0;
    std::memcpy(&word, at, bytes);
    sum = (sum ^ word ^ bytes) * 0x9E3779B97F4A7C15u;
    sum ^= sum >> 29;
  }
  return sum;
}
[[nodiscard]] constexpr std::uint32_t folded(std::uint64_t sum) noexcept {
  return static_cast<std::uint32_t>(sum ^ sum >> 32);
}

}  // namespace kasane::detail::bucket
