// SPDX-License-Identifier: Apache-2.0
// Reads bytes of pages that other ranks own (dsm/fetch_protocol.h): for a fault, and to bring a copy up to
// date.
// Thread safety: every call from any thread, which holds bits of the page's blocks. No call waits for another
// thread's bits, or pages in a page that this rank owns: that would wait for these bits.
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
  /// Rule 4: bytes of the owner that have changed since the twin was made go into M and the twin, nothing
  /// else.
  void refresh(comm::Blocking&, BlockId, bool twin) const;
  /// The same for bytes of one block. Did one of them differ?
  bool refresh(comm::Blocking&, std::uint64_t offset, std::size_t bytes, bool twin) const;
  /// Makes this rank a reader of the page again: it keeps a block of it, though the acquire has just left the
  /// readers. If this rank owns the page no notice is needed.
  void stay_reader(comm::Blocking&, PageId) const;
  /// The same before a fetch, for a thread that holds nothing: an untouched page is left to its first
  /// toucher.
  void become_reader(comm::Blocking&, PageId) const;
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
  bool read_again(comm::Blocking&, PageId, Untouched, const Read&) const;

  const Parts& p_;
  const Frames& frames_;
  const mem::Pages& pages_ = p_.pages();
  std::atomic<std::uint64_t> drops_{0};
};

}  // namespace kasane::dsm
