// SPDX-License-Identifier: Apache-2.0
// What programs do with global memory through the direct view: every form blocking and asynchronous, over gas::Access. Joins it with user-level threads (who
// waits lets others run) and with buffers that lie in V.
//
//   buffer in V   source: copied aside before anything is issued. Target: the bytes land in staging, and the waiting thread copies them (gas/pending.h).
//                 Where every peer is mapped neither is needed: the calling thread copies straight, holding nothing that another could wait for.
//   asynchronous  a slot that names the operation on every rank. Is there no slot or no staging left, the call waits until the bytes are there and gives no
//                 handle: so whoever holds handles can go on issuing.
//
// Thread safety: every call from any thread of the rank, not from fault handlers. Invariant: nothing here, and no callback, touches V but the calling thread.
#pragma once

#include <atomic>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

#include "base/result.h"
#include "comm/engine/cursor.h"
#include "gas/access.h"
#include "gas/pending.h"
#include "mem/space.h"
#include "runtime/thread_contexts.h"

namespace kasane::runtime {

class MixingCheck;

class Direct {
 public:
  /// What the caller of an asynchronous form gets: a number that wait() and test() know. 0: the operation has completed.
  using Id = std::uint64_t;

  /// pending_region: this rank's region kPending. mixing: null, or what is asked before each access.
  Direct(gas::Access&, mem::Space&, ThreadContexts&, std::byte* pending_region, MixingCheck* mixing);
  ~Direct();

  /// get() of a few bytes that can be copied here at once. False: nothing happened.
  [[nodiscard]] bool get_here(void* to, const void* from, std::size_t bytes) noexcept {
    // relaxed: whoever set it before has told this thread otherwise, too.
    if (not_here_.load(std::memory_order_relaxed)) [[unlikely]] return false;
    return access_.read_near(to, space_.offset(from), bytes);
  }

  /// Likewise put(), from memory outside V or of a few words.
  [[nodiscard]] bool put_here(void* to, const void* from, std::size_t bytes) {
    if (not_here_.load(std::memory_order_relaxed)) [[unlikely]] return false;   // relaxed: as above
    std::byte words[64];
    if (in_space(from)) {   // it may fault: not while the page is in use
      if (bytes > sizeof words) return false;
      from = std::memcpy(words, from, bytes);
    }
    return access_.write_near(contexts_.here().io, space_.offset(to), from, bytes);
  }

  /// The job has ended: nothing of other ranks can be reached any more.
  void close() noexcept {
    closed_.store(true);
    not_here_.store(true);
  }
  /// --check mixing: asks about a direct access that the program makes at `site`.
  void check(const void* global, const comm::Cursor& cursor, bool changes, const char* call, const void* site) noexcept {
    if (mixing_ != nullptr) [[unlikely]] check_mixing(global, cursor, changes, call, site);
  }

  [[nodiscard]] gas::Access& access() noexcept { return access_; }

  // id null: blocking. Else *id is 0, or what an earlier call of put, accumulate or copy gave: then this one counts on it, too (another kind is waited for first).
  // A Cursor's pieces are relative to both addresses.
  Result<void> get(void* to, const void* from, const comm::Cursor&, Id* id);
  Result<void> put(void* to, const void* from, const comm::Cursor&, Id* id);
  Result<void> accumulate(void* to, const void* from, const comm::Cursor&, comm::Element, std::complex<double> scale, Id* id);
  /// old: any memory of 8 bytes, or null; gets the old value, zero-extended.
  Result<void> atomic(comm::AtomicOp, comm::Width, void* at, std::uint64_t operand, std::uint64_t compare, std::uint64_t* old, Id* id);
  Result<void> copy(void* to, const void* from, std::size_t bytes, Id* id);
  /// As put, and nobody waits for it but flush().
  Result<void> put_detached(void* to, const void* from, const comm::Cursor&);

  /// Waits, and brings what was read to its destination; *id is 0 then. On any rank.
  Result<void> wait(Id& id);
  /// Whether wait() would not wait; does the same then.
  Result<bool> test(Id& id);
  /// Until everything that this rank issued before has completed at its owner.
  Result<void> flush();

 private:
  struct Record;
  class RecordHere;
  struct Waiting;

  void check_mixing(const void* global, const comm::Cursor&, bool changes, const char* call, const void* site) noexcept;
  [[nodiscard]] bool in_space(const void* p) const noexcept { return space_.contains(p); }
  [[nodiscard]] bool touches_space(const std::byte* local, comm::Cursor) const;
  [[nodiscard]] Result<std::uint64_t> offset_of(const void* p, const char* what) const;
  Result<void> await(Waiting&, gas::Outstanding&, Result<void> issued);
  Result<void> get_staged(Waiting&, std::byte* to, std::uint64_t from, comm::Cursor);
  Result<bool> get_pending(Waiting&, std::byte* to, std::uint64_t from, const comm::Cursor&, Id* id);
  template <class Issue>
  Result<void> change(Id* id, const Issue& issue);
  template <class Issue>
  Result<void> counted(Waiting&, Id* id, const Issue& issue, bool& done);
  Result<void> finish(gas::PendingSlot&);
  Result<void> finish_elsewhere(Waiting&, Id id);
  Result<bool> done_elsewhere(Waiting&, Id id);
  Result<std::uint64_t> read_packed(comm::Blocking&, gas::Outstanding&, std::uint64_t from, comm::Cursor&, std::byte* data, std::uint64_t room);

  gas::Access& access_;
  mem::Space& space_;
  ThreadContexts& contexts_;
  comm::Transport& transport_;
  MixingCheck* mixing_;
  std::atomic<bool> closed_{false}, not_here_;   ///< not_here_: closed, or each access is to be checked
  const bool all_mapped_;
  gas::PendingTable pending_;
  std::unique_ptr<Record[]> records_;   ///< of blocking operations
  comm::IndexPool<> free_records_;
  gas::Outstanding detached_;
};

}  // namespace kasane::runtime
