// SPDX-License-Identifier: Apache-2.0
// Inside the collectives: the groups of one rank, the memory of their blocks, and the handler that finds the
// group of a message.
//
// Thread safety: groups are made and closed by any thread (a lock, held for a few lines, never across
// communication); step() and the handler run in any thread and take no lock.
// Invariant: a GroupState lives as long as this object, so a late message finds at worst another generation.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>

#include "base/result.h"
#include "comm/collective_group.h"
#include "comm/group.h"

namespace kasane::comm {

class CollectiveCore {
 public:
  static constexpr std::uint32_t kMaxGroups = 256;

  CollectiveCore(Transport&, Waiter&);
  ~CollectiveCore();
  CollectiveCore(const CollectiveCore&) = delete;
  CollectiveCore& operator=(const CollectiveCore&) = delete;

  /// The group of all ranks, which needs no communication: slot 0 everywhere.
  std::unique_ptr<Group> make_world();
  /// Makes the collectives' region (collective over all ranks) and moves the world into it.
  Result<void> attach(Group& world);
  /// Collective over parent. members: numbers in parent, in the new group's order; empty: this rank takes
  /// part, but is in no new group.
  std::unique_ptr<Group> make_group(Group& parent, std::span<const std::uint32_t> members);
  void close(GroupState&, Waiter&);

  void step() noexcept;
  void peer_lost(Rank) noexcept;
  [[nodiscard]] Transport& transport() const noexcept { return transport_; }

 private:
  /// The blocks of a group here: one in private memory, and one in the region if that has room.
  struct Memory {
    CollectiveBlock* own = nullptr;
    CollectiveBlock* shared = nullptr;
    std::size_t bytes = 0;            ///< of each
    std::uint64_t offset = kNowhere;  ///< of shared in the region
  };
  static constexpr std::uint64_t kNowhere = ~std::uint64_t{0};

  static void arrived(void* context, const Message&) noexcept;
  GroupState& take_slot();
  Memory take_memory(std::uint32_t members);
  void take_shared(Memory&);
  void give_memory(const Memory&);
  [[nodiscard]] CollectiveBlock* block_of(Rank, std::uint64_t offset) const noexcept;

  Transport& transport_;
  Waiter& waiter_;
  std::array<std::atomic<GroupState*>, kMaxGroups> groups_{};
  std::atomic<std::uint32_t> used_{0};  ///< slots used so far
  std::mutex mutex_;                    ///< guards the members below
  std::array<std::unique_ptr<GroupState>, kMaxGroups> owned_;
  std::array<bool, kMaxGroups> taken_{};
  std::array<Memory, kMaxGroups> memory_{};
  std::byte* region_ = nullptr;
  std::size_t region_bytes_ = 0;
  std::map<std::uint64_t, std::uint64_t> free_;  ///< of the region: offset → bytes
};

}  // namespace kasane::comm
