// SPDX-License-Identifier: Apache-2.0
// --check mixing: reports data that a program uses through the coherent view (loads and stores) and the
// direct view (get, put, atomics …) without a fence between, from what this rank's block table knows. On
// standard error, once a place in the program:
//
//   reported                                           how it is noticed
//   direct access to bytes that this rank has          the block's twin says which bytes are changed
//   changed and no release has sent
//   a load or store of bytes that this rank changed    before the change the block is dropped from V and
//   directly while their block was cached here,        marked; the next access faults, and finds the mark
//   without an acquire between                         with the count of the last acquire
//
// It sees the first access of a block only, and nothing that other ranks hold. A program without such places
// behaves as without the check; a program that has them may compute other results, since dropped blocks are
// fetched again.
//
// Thread safety: everything from any thread; on_fault() in fault handlers. A spin lock is held for a few
// instructions, never across an access to V.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "comm/engine/cursor.h"
#include "dsm/coherence.h"
#include "mem/space.h"
#include "runtime/rank/reported_once.h"

namespace kasane::runtime {

class MixingCheck {
 public:
  MixingCheck(mem::Space& space, dsm::Coherence& coherence, Rank rank) noexcept
      : space_(space), coherence_(coherence), rank_(rank) {}

  /// Before a direct access at `site` (a return address) by `call`.
  void before(dsm::ThreadContext&, std::uint64_t offset, comm::Cursor, bool changes, const char* call,
              const void* site) noexcept;
  /// A load or store of this address faulted.
  void on_fault(std::uint64_t offset, bool store) noexcept;

 private:
  struct DirectUse {
    std::uint64_t block = 0;  ///< number + 1; 0: none
    std::uint64_t begin = 0, end = 0, acquires = 0;
    const char* call = nullptr;
    const void* site = nullptr;
  };
  static constexpr std::size_t kUses = 1024;
  class Locked;

  /// True once for each pair.
  bool first(const void* site, unsigned kind) noexcept {
    return reported_.first(reinterpret_cast<std::uintptr_t>(site) * 2 + kind);
  }
  void report_unreleased(std::uint64_t offset, const char* call, const void* site) noexcept;

  mem::Space& space_;
  dsm::Coherence& coherence_;
  Rank rank_;
  std::array<DirectUse, kUses> uses_{};  ///< by block number; a later one takes its place
  std::atomic_flag lock_;                ///< of uses_
  ReportedOnce<256> reported_;           ///< address · 2 + kind
};

}  // namespace kasane::runtime
