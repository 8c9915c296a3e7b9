// SPDX-License-Identifier: Apache-2.0
// A fault engine without faults: a table holds the access rights, and a script's loads and stores are calls
// that check it. Programs of (thread, offset, read | write) run through the real coherence code with many
// ranks in one process, and on one OS thread under a seeded schedule.
//
//   write(offset, …)   rights enough? ── yes ─► copy through A
//        ▲                  └─ no ─► FaultHandler ─► preemption callback ─┐    another script may run there,
//        └────────────────────────────────────────────────────────────────┘    and take the rights away again
//
// Thread safety: read(), write(), access() and protect() from any thread; start(), stop() and
// set_preemption() while no other call runs. A piece within one block is copied under the rights that were
// found: protect() waits for copies that began under the old rights, as mprotect waits for other cores.
// Nothing yields between check and copy, so on one OS thread protect() never waits.
// Invariant: no byte is read or written through here in a block that does not allow it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "mem/block_table.h"
#include "mem/fault_engine.h"

namespace kasane::mem {

class CheckedEngine final : public FaultEngine {
 public:
  /// The engine of this space, all blocks without access; the space's maps must outlive it.
  static Result<std::unique_ptr<CheckedEngine>> create(const Space& space);

  [[nodiscard]] std::string_view name() const noexcept override { return "checked"; }
  Result<void> start(FaultHandler handler, void* context) override;
  void stop() noexcept override;
  Result<void> leave_open(BlockRange run) override;
  [[nodiscard]] bool protect(BlockRange run, Access access) noexcept override;
  [[nodiscard]] bool crowded() const noexcept override { return false; }

  /// Loads n bytes at offset as an instruction of a user's program would. Blocks are read one after the
  /// other, not atomically. Errc::out_of_range: beyond the space, or the handler called the access wild; the
  /// blocks before it were read.
  Result<void> read(std::uint64_t offset, void* to, std::size_t n);
  /// Stores likewise.
  Result<void> write(std::uint64_t offset, const void* from, std::size_t n);
  /// What the block at offset allows now; for invariants.
  [[nodiscard]] Access access(std::uint64_t offset) const noexcept;

  /// Called each time the handler has made an access possible, before the rights are checked again; null:
  /// nothing.
  void set_preemption(void (*callback)(void* context), void* context) noexcept;

 private:
  CheckedEngine(const Space& space, BlockTable rights);
  template <class Copy>
  Result<void> each_piece(std::uint64_t offset, std::size_t n, Access wanted, Copy&& copy);
  Result<void> enter(std::uint64_t offset, Access wanted);
  [[nodiscard]] bool try_enter(BlockId block, Access wanted) noexcept;
  void leave(BlockId block) noexcept;

  std::byte* const a_;
  const std::size_t bytes_;
  mutable BlockTable rights_;  // per block: Access in the low two bits, copies in progress above
  FaultHandler handler_ = nullptr;
  void* handler_context_ = nullptr;
  void (*preemption_)(void*) = nullptr;
  void* preemption_context_ = nullptr;
};

}  // namespace kasane::mem
