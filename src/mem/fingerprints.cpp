// SPDX-License-Identifier: Apache-2.0
#include "mem/fingerprints.h"

#include <algorithm>
#include <bit>
#include <random>
#include <utility>

#include "base/checksum.h"

namespace kasane::mem {

namespace {
constexpr std::uint64_t kSlotsOfABlock = 4;  // of the budget
}

Result<Fingerprints> Fingerprints::create(std::uint64_t budget_blocks, std::uint64_t space_blocks) {
  const std::uint64_t slots =
      std::bit_ceil(std::max(kSlotsOfAPage, std::min(kSlotsOfABlock * budget_blocks, space_blocks)));
  auto table = Table::create(slots);
  KASANE_TRY(table);
  auto taken = NumberSet::create(slots / kSlotsOfAPage);
  KASANE_TRY(taken);
  std::random_device random;
  return Fingerprints(std::move(*table), std::move(*taken), std::uint64_t{random()} << 32 | random());
}

Fingerprints::Fingerprints(Table slots, NumberSet taken, std::uint64_t seed) noexcept
    : slots_(std::move(slots)), taken_(std::move(taken)), seed_(seed) {}

std::uint64_t Fingerprints::fingerprint(BlockId b, const std::byte* bytes) const noexcept {
  const std::uint64_t hash = checksum(bytes, kBlockBytes, seed_ + raw(b));
  return hash != 0 ? hash : 1;
}

// relaxed, in all of them: the block's bits order note(), matches() and forget() of one block; for another
// block in the same slot any value is right.
std::uint64_t Fingerprints::note(BlockId b, const std::byte* bytes) noexcept {
  const BlockId slot = slot_of(b);
  const std::uint64_t page = raw(slot) / kSlotsOfAPage;
  const bool fresh = !taken_.contains(page) && taken_.insert(page);
  slots_[slot].store(fingerprint(b, bytes), std::memory_order_relaxed);
  return fresh ? 1 : 0;
}

bool Fingerprints::matches(BlockId b, const std::byte* bytes) const noexcept {
  const std::uint64_t noted = slots_[slot_of(b)].load(std::memory_order_relaxed);
  return noted != 0 && noted == fingerprint(b, bytes);
}

// Reads first: a slot that was never written costs no memory.
void Fingerprints::forget(BlockId b) noexcept {
  std::atomic<std::uint64_t>& slot = slots_[slot_of(b)];
  if (slot.load(std::memory_order_relaxed) != 0) slot.store(0, std::memory_order_relaxed);
}

}  // namespace kasane::mem
