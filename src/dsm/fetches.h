// SPDX-License-Identifier: Apache-2.0
// Reads bytes of pages that other ranks own (dsm/fetch_protocol.h): for a fault, and to bring a copy up to
// date.
// Thread safety: every call from any thread, which holds bits of the page's blocks. So no call waits for
// another thread's bits, or for a page-in: the page's owner may be waiting for a page of this rank, and so
// for bits.
#pragma once

#include <atomic>
#include <cstdint>

#include "dsm/fetch_protocol.h"
#include "dsm/frames.h"
#include "dsm/held.h"
#include "dsm/parts.h"

namespace kasane::dsm {

class Fetches {
 public:
  Fetches(const Parts& parts, const Frames& frames) noexcept : p_(parts), frames_(frames) {}

  /// Where the page's bytes can be read: yes, from found.owner; else why they cannot be read from another
  /// rank.
  Fetched locate(comm::Blocking&, PageId, gas::AddressCache::Found&) const;
  /// Fetches the owner's bytes of what is held, blocks of one page with b among them, into M at once; or only
  /// makes this rank a reader.
  Fetched fetch(ThreadContext&, BlockId b, const Held&, bool bytes_too, gas::AddressCache::Found&) const;
  /// What was found of a page of which this rank has a copy.
  enum class Again : std::uint8_t {
    own,      ///< no other rank owns it
    same,     ///< its owner's bytes are those that are here, or were not asked for
    changed,  ///< one of them differed
    absent,   ///< its owner has it on SSD: nothing was done. page_in(), with nothing held; then again
  };
  /// Rule 4: bytes of the owner that have changed since the twin was made go into M and the twin, nothing
  /// else.
  [[nodiscard]] Again refresh(comm::Blocking&, BlockId, bool twin) const;
  /// The same for bytes of one block.
  [[nodiscard]] Again refresh(comm::Blocking&, std::uint64_t offset, std::size_t bytes, bool twin) const;
  /// Makes this rank a reader of the page again: it keeps a block of it, though the acquire has just left the
  /// readers. If this rank owns the page no notice is needed.
  [[nodiscard]] Again stay_reader(comm::Blocking&, PageId) const;
  /// The same before a fetch, for a thread that holds nothing: an untouched page is left to its first
  /// toucher.
  void become_reader(comm::Blocking&, PageId) const;
  /// If another rank has the page on SSD, that pages it in. For a thread that holds nothing.
  void page_in(comm::Blocking&, PageId) const;
  /// The address where the owner's bytes are mapped here, or null.
  [[nodiscard]] const std::byte* frame_of(Rank owner, std::uint64_t offset) const noexcept {
    const std::byte* frames = p_.transport.mapped(owner, gas::kFrames);
    return frames == nullptr ? nullptr : frames + offset;
  }
  /// An acquire is about to drop blocks. Rule 2: a fetch under way is repeated.
  void begin_drop() noexcept { drops_.fetch_add(1); }
  [[nodiscard]] std::uint64_t drops() const noexcept { return drops_.load(); }

 private:
  template <class Locate, class Read, class Dropped>
  FetchState read_as_reader(comm::Blocking&, PageId, gas::AddressCache::Found&, const Locate&, const Read&,
                            const Dropped&) const;
  /// What becomes of a page that nobody has touched.
  enum class Untouched : std::uint8_t { touched, left };
  template <class Read>
  Again read_again(comm::Blocking&, PageId, Untouched, const Read&) const;

  const Parts& p_;
  const Frames& frames_;
  const mem::Pages& pages_ = p_.pages();
  std::atomic<std::uint64_t> drops_{0};
};

}  // namespace kasane::dsm
