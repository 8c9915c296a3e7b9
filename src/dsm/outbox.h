// SPDX-License-Identifier: Apache-2.0
// Sends changed bytes to their owners: many puts at once, awaited together. A put to a rank that is mapped
// here is a copy. Over a network long runs are writes; short runs to one owner are packed into few messages,
// which a handler there unpacks:
//
//   message   { offset 48 | bytes 16, the bytes }, …
//             answered when all of it is in the owner's M: then it is as complete as a write
//
// Thread safety: an object belongs to one thread; the handler runs in any thread's progress(). Nothing
// allocates. The bytes that are put must stay until await() returns. A caller that counts uses of pages
// (gas::AddressCache::Put) keeps the uses until then, too.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/counters.h"
#include "comm/batch.h"
#include "comm/requests.h"
#include "mem/space.h"

namespace kasane::dsm {

class Outbox {
 public:
  Outbox(comm::Blocking& io, Counters* counters) noexcept : batch_(io), requests_(io), counters_(counters) {}
  ~Outbox() { await(); }

  /// [offset, offset + bytes) of the owner's M.
  void put(Rank owner, std::uint64_t offset, const std::byte* from, std::size_t bytes);
  /// Puts the bytes of a block that differ from base: exactly those, never a gap (rule 3). Returns how many.
  /// open: stores to the block may happen meanwhile; base has afterwards what was sent.
  std::size_t put_changed(Rank owner, std::uint64_t offset, const std::byte* block, std::byte* base,
                          bool open = false);
  /// Returns when everything has arrived. Owners are best visited one after another: a put to another owner
  /// sends what is packed for the one before.
  void await();
  [[nodiscard]] comm::Blocking& io() const noexcept { return batch_.io(); }

  /// Called at the owner.
  static void unpack(const mem::Space&, std::span<const std::byte> message) noexcept;

 private:
  static constexpr std::size_t kShort = 256;  ///< bytes of a run that is packed

  template <class Changed>
  static std::size_t for_each_changed(const std::byte* block, std::byte* base, bool open, const Changed&);
  void pack(Rank owner, std::uint64_t offset, const std::byte* from, std::size_t bytes);
  void send();

  comm::Batch batch_;
  comm::Requests requests_;
  Counters* counters_;
  Rank to_ = kNoRank;
  std::size_t packed_ = 0;
  std::array<std::byte, comm::kMaxPayload> message_;
};

}  // namespace kasane::dsm
