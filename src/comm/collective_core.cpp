// SPDX-License-Identifier: Apache-2.0
#include "comm/collective_core.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/assert.h"
#include "base/memory_file.h"
#include "comm/collectives.h"

namespace kasane::comm {
namespace {

/// The region has room for so many groups as large as the job; the memory is sparse, and further groups use
/// messages.
constexpr std::size_t kRegionGroups = 16;

std::size_t block_bytes(std::uint32_t members) noexcept {
  return (CollectiveBlock::bytes(members) + 4095) / 4096 * 4096;
}

constexpr char kWhat[] = "collectives";

/// What members exchange when a group is made.
struct BlockPlace {
  std::uint32_t slot, generation;
  std::uint64_t offset;
};

}  // namespace

CollectiveCore::CollectiveCore(Transport& transport, Waiter& waiter)
    : transport_(transport), waiter_(waiter) {
  transport.set_handler(kCollectiveHandler, &CollectiveCore::arrived, this);
}

CollectiveCore::~CollectiveCore() {
  for (const Memory& m : memory_) {
    if (m.own != nullptr) ::munmap(m.own, m.bytes);
  }
}

void CollectiveCore::arrived(void* context, const Message& m) noexcept {
  auto& self = *static_cast<CollectiveCore*>(context);
  CollectiveHeader h;
  KASANE_CHECK_OP(m.payload.size(), >=, sizeof(h));
  std::memcpy(&h, m.payload.data(), sizeof(h));
  KASANE_CHECK_OP(h.slot, <, kMaxGroups);
  // acquire: pairs with take_slot()
  GroupState* group = self.groups_[h.slot].load(std::memory_order_acquire);
  KASANE_CHECK(group != nullptr, "a message for a group that never was");
  group->handle(h, m.payload.subspan(sizeof(h)));
}

void CollectiveCore::step() noexcept {
  const std::uint32_t used = used_.load(std::memory_order_acquire);  // acquire: pairs with take_slot()
  // relaxed: set before used_
  for (std::uint32_t i = 0; i < used; ++i) groups_[i].load(std::memory_order_relaxed)->step();
}

void CollectiveCore::peer_lost(Rank rank) noexcept {
  const std::uint32_t used = used_.load(std::memory_order_acquire);  // acquire: as in step()
  // relaxed: as in step()
  for (std::uint32_t i = 0; i < used; ++i) groups_[i].load(std::memory_order_relaxed)->peer_lost(rank);
}

// ---- memory and slots -------------------------------------------------------------------------------------

GroupState& CollectiveCore::take_slot() {
  const std::lock_guard lock(mutex_);
  const auto slot =
      static_cast<std::uint32_t>(std::find(taken_.begin(), taken_.end(), false) - taken_.begin());
  KASANE_CHECK(slot < kMaxGroups, "a rank is in 256 groups at once at most");
  taken_[slot] = true;
  if (owned_[slot] == nullptr) {
    owned_[slot] = std::make_unique<GroupState>(transport_, slot);
    groups_[slot].store(owned_[slot].get(), std::memory_order_release);  // release: the group
    // release: the line above. Slots are used from 0 up, so none is left out.
    used_.store(slot + 1, std::memory_order_release);
  }
  return *owned_[slot];
}

CollectiveCore::Memory CollectiveCore::take_memory(std::uint32_t members) {
  Memory m{.bytes = block_bytes(members)};
  m.own = reinterpret_cast<CollectiveBlock*>(map_sparse(m.bytes, kWhat).value_or(nullptr));
  KASANE_CHECK(m.own != nullptr, "no memory for a group's messages");
  take_shared(m);
  return m;
}

void CollectiveCore::take_shared(Memory& m) {
  const std::lock_guard lock(mutex_);
  const auto at =
      std::find_if(free_.begin(), free_.end(), [&](const auto& hole) { return hole.second >= m.bytes; });
  if (at == free_.end()) return;
  const auto [offset, room] = *at;
  free_.erase(at);
  if (room > m.bytes) free_[offset + m.bytes] = room - m.bytes;
  m.shared = reinterpret_cast<CollectiveBlock*>(region_ + offset);
  m.offset = offset;
}

void CollectiveCore::give_memory(const Memory& m) {
  ::munmap(m.own, m.bytes);
  if (m.shared == nullptr) return;
  // The next group starts with zeroed memory. Most of it was never touched and is given back rather than
  // written, unless the transport goes on using its pages.
  const bool punched = !transport_.facts().pins_memory &&
                       ::madvise(m.shared, m.bytes, MADV_REMOVE) == 0;  // where it is a file's
  if (!punched) std::memset(static_cast<void*>(m.shared), 0, m.bytes);
  const std::lock_guard lock(mutex_);
  auto at = free_.emplace(m.offset, m.bytes).first;
  if (auto next = std::next(at); next != free_.end() && at->first + at->second == next->first) {
    at->second += next->second;
    free_.erase(next);
  }
  if (at == free_.begin()) return;
  if (auto before = std::prev(at); before->first + before->second == at->first) {
    before->second += at->second;
    free_.erase(at);
  }
}

CollectiveBlock* CollectiveCore::block_of(Rank rank, std::uint64_t offset) const noexcept {
  if (offset == kNowhere) return nullptr;
  std::byte* base = transport_.mapped(rank, kCollectiveRegion);
  return base == nullptr ? nullptr : reinterpret_cast<CollectiveBlock*>(base + offset);
}

Result<void> CollectiveCore::attach(Group& world_group) {
  GroupState& world = world_group.state_;
  region_bytes_ = kRegionGroups * block_bytes(transport_.ranks());
  const auto made = transport_.make_memory(kCollectiveRegion, region_bytes_);
  KASANE_TRY(made);
  region_ = *made;
  free_ = {{0, region_bytes_}};
  Memory& memory = memory_[world.slot()];
  take_shared(memory);  // the first: offset 0 on every rank
  // attach() returns when every rank has called it, hence has completed all earlier collectives and has this
  // memory ready.
  KASANE_TRY(transport_.attach(kCollectiveRegion, -1, region_, region_bytes_));
  world.share(memory.shared);
  std::vector<PeerPlace> peers;
  for (std::uint32_t r = 0; r < world.members(); ++r) {
    peers.push_back({.rank = Rank{r}, .slot = 0, .generation = 1, .block = block_of(Rank{r}, memory.offset)});
  }
  world.set_peers(peers);
  return {};
}

// ---- making groups ----------------------------------------------------------------------------------------

std::unique_ptr<Group> CollectiveCore::make_world() {
  GroupState& state = take_slot();
  KASANE_CHECK_OP(state.slot(), ==, 0u);
  memory_[0] = take_memory(transport_.ranks());
  state.open(transport_.ranks(), raw(transport_.rank()), memory_[0].own, memory_[0].shared);
  std::vector<PeerPlace> peers;
  for (std::uint32_t r = 0; r < transport_.ranks(); ++r)
    peers.push_back({.rank = Rank{r}, .slot = 0, .generation = 1, .block = nullptr});
  state.set_peers(peers);
  return std::unique_ptr<Group>(new Group(*this, state, waiter_));
}

std::unique_ptr<Group> CollectiveCore::make_group(Group& parent, std::span<const std::uint32_t> members) {
  BlockPlace mine{0, 0, kNowhere};
  GroupState* state = nullptr;
  if (!members.empty()) {
    const auto me = std::find(members.begin(), members.end(), parent.rank());
    KASANE_CHECK(me != members.end(), "the list of a group does not have the rank that gives it");
    state = &take_slot();
    const Memory memory = take_memory(static_cast<std::uint32_t>(members.size()));
    memory_[state->slot()] = memory;
    state->open(static_cast<std::uint32_t>(members.size()), static_cast<std::uint32_t>(me - members.begin()),
                memory.own, memory.shared);
    mine = {.slot = state->slot(), .generation = state->generation(), .offset = memory.offset};
  }
  std::vector<BlockPlace> places(parent.size());
  parent.allgather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(places)));
  if (state == nullptr) return nullptr;
  std::vector<PeerPlace> peers;
  for (const std::uint32_t m : members) {
    const Rank rank = parent.member(m);
    peers.push_back({.rank = rank,
                     .slot = places[m].slot,
                     .generation = places[m].generation,
                     .block = block_of(rank, places[m].offset)});
  }
  state->set_peers(peers);
  return std::unique_ptr<Group>(new Group(*this, *state, *parent.waiter_));
}

void CollectiveCore::close(GroupState& state, Waiter& waiter) {
  state.close(waiter);
  give_memory(std::exchange(memory_[state.slot()], {}));
  const std::lock_guard lock(mutex_);
  taken_[state.slot()] = false;
}

}  // namespace kasane::comm
