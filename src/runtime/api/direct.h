// SPDX-License-Identifier: Apache-2.0
// The direct view of global memory for programs: every form blocking and asynchronous, over
// gas::DirectAccess. Adds what user-level threads need (a thread that waits lets others run) and buffers that
// lie in V.
//
//   buffer in V   A source is copied before anything is issued. For a target the bytes arrive in staging
//                 memory, and the waiting thread copies them (gas/pending.h). Where every peer is mapped
//                 neither is needed: the calling thread copies directly, and holds nothing that another
//                 thread could wait for.
//   asynchronous  A slot names the operation on every rank. Where no slot or no staging memory is left, the
//                 call waits until the bytes are there and returns no handle, so that threads that hold
//                 handles can go on issuing.
//
// Thread safety: every call from any thread of the rank, not from fault handlers. Invariant: only the calling
// thread touches V, no callback does.
#pragma once

#include <algorithm>
#include <atomic>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

#include "base/result.h"
#include "comm/engine/cursor.h"
#include "gas/direct_access.h"
#include "gas/pending.h"
#include "mem/space.h"
#include "runtime/rank/one_rank_variables.h"
#include "runtime/rank/thread_contexts.h"

namespace kasane::runtime {

class Atomics;
class MixingCheck;

class Direct {
 public:
  /// What an asynchronous form returns: a number for wait() and test(). 0: the operation has completed.
  using Id = std::uint64_t;

  /// pending_region: this rank's region kPending. mixing: called before each access; may be null.
  Direct(gas::DirectAccess&, mem::Space&, ThreadContexts&, std::byte* pending_region, MixingCheck* mixing,
         const OneRankVariables&);
  ~Direct();

  /// get() of a few bytes that can be copied here at once. False: nothing happened.
  [[nodiscard]] bool get_here(void* to, const void* from, std::size_t bytes) noexcept {
    // relaxed: a thread that set it before this access has synchronised with this one by other means.
    if (not_here_.load(std::memory_order_relaxed)) [[unlikely]]
      return false;
    return access_.read_near(to, space_.offset(from), bytes);
  }

  /// put() in a few instructions, from memory outside V or of a few words.
  [[nodiscard]] bool put_here(void* to, const void* from, std::size_t bytes) {
    if (not_here_.load(std::memory_order_relaxed)) [[unlikely]]
      return false;  // relaxed: synchronised by other means
    std::byte words[64];
    if (in_space(from)) {  // it may fault: not while the page is in use
      if (bytes > sizeof words) return false;
      from = std::memcpy(words, from, bytes);
    }
    return access_.write_near(contexts_.here().io, space_.offset(to), from, bytes);
  }

  /// accumulate(), as put_here() is put(). Returns how many bytes it has done.
  [[nodiscard]] std::size_t accumulate_here(void* to, const void* from, std::size_t bytes,
                                            comm::Element element, std::complex<double> scale) {
    if (not_here_.load(std::memory_order_relaxed)) [[unlikely]]
      return 0;  // relaxed: synchronised by other means
    alignas(16) std::byte words[64];
    if (in_space(from)) {
      if (bytes > sizeof words) return 0;
      from = std::memcpy(words, from, bytes);
    }
    comm::Blocking& io = contexts_.here().io;
    const std::uint64_t offset = space_.offset(to);
    std::size_t done = 0;
    while (done < bytes && in_space(static_cast<std::byte*>(to) + done)) {
      const std::size_t n = std::min<std::size_t>(bytes - done, access_.to_page_end(offset + done));
      if (!access_.accumulate_near(io, element, scale, offset + done,
                                   static_cast<const std::byte*>(from) + done, n))
        break;
      done += n;
    }
    return done;
  }

  // get() and its like of a walk, which is left where it could not go on. False: something is left.
  [[nodiscard]] bool get_here(void* to, const void* from, comm::Cursor& cursor) noexcept {
    if (not_here_.load(std::memory_order_relaxed)) [[unlikely]]
      return false;  // relaxed: synchronised by other means
    return access_.read_near(space_.offset(from), static_cast<std::byte*>(to), cursor);
  }
  [[nodiscard]] bool put_here(void* to, const void* from, comm::Cursor& cursor) {
    const auto* const source = static_cast<const std::byte*>(from);
    if (not_here_.load(std::memory_order_relaxed) || touches_space(source, cursor)) [[unlikely]]
      return false;  // relaxed: synchronised by other means
    return access_.write_near(contexts_.here().io, space_.offset(to), source, cursor);
  }
  [[nodiscard]] bool accumulate_here(void* to, const void* from, comm::Cursor& cursor, comm::Element element,
                                     std::complex<double> scale) {
    const auto* const source = static_cast<const std::byte*>(from);
    if (not_here_.load(std::memory_order_relaxed) || touches_space(source, cursor)) [[unlikely]]
      return false;  // relaxed: synchronised by other means
    return access_.accumulate_near(contexts_.here().io, element, scale, space_.offset(to), source, cursor);
  }

  /// The job has ended: memory of other ranks cannot be reached any more.
  void close() noexcept {
    closed_.store(true);
    not_here_.store(true);
  }
  /// --check mixing: checks a direct access that the program makes at `site`.
  void check(const void* global, const comm::Cursor& cursor, bool changes, const char* call,
             const void* site) noexcept {
    if (mixing_ != nullptr) [[unlikely]]
      check_mixing(global, cursor, changes, call, site);
  }

  /// From now on atomic() comes after the release fences of the program that these count.
  void come_after_fences(Atomics& fences) noexcept { fences_ = &fences; }

  [[nodiscard]] gas::DirectAccess& access() noexcept { return access_; }

  // id null: blocking. Else *id is 0, or what an earlier call of put, accumulate or copy gave: then this
  // operation counts on it, too (an Id of another kind is waited for first).
  // A Cursor's pieces are relative to both addresses.
  Result<void> get(void* to, const void* from, const comm::Cursor&, Id* id);
  Result<void> put(void* to, const void* from, const comm::Cursor&, Id* id);
  Result<void> accumulate(void* to, const void* from, const comm::Cursor&, comm::Element,
                          std::complex<double> scale, Id* id);
  /// Any memory, or null; gets the first bytes (at most 8) of the old value, zero-extended.
  struct OldValue {
    void* to;
    std::size_t bytes;
    void store(std::uint64_t value) const noexcept {
      if (to != nullptr) std::memcpy(to, &value, bytes);
    }
  };
  Result<void> atomic(comm::AtomicOp, comm::Width, void* at, std::uint64_t operand, std::uint64_t compare,
                      OldValue, Id* id);
  Result<void> copy(void* to, const void* from, std::size_t bytes, Id* id);
  /// As put; only flush() waits for it.
  Result<void> put_detached(void* to, const void* from, const comm::Cursor&);

  /// Waits, and copies what was read to its destination; sets id to 0. On any rank.
  Result<void> wait(Id& id);
  /// Whether wait() would not wait; does the same then.
  Result<bool> test(Id& id);
  /// Waits until everything that this rank issued before has completed at its owner.
  Result<void> flush();

 private:
  struct Record;
  class RecordHere;
  struct Waiting;

  void check_mixing(const void* global, const comm::Cursor&, bool changes, const char* call,
                    const void* site) noexcept;
  [[nodiscard]] bool in_space(const void* p) const noexcept { return space_.contains(p); }
  [[nodiscard]] bool touches_space(const std::byte* local, const comm::Cursor&) const;
  [[nodiscard]] Result<std::uint64_t> offset_of(const void* p, const char* what) const;
  Result<void> await(Waiting&, gas::Outstanding&, Result<void> issued);
  Result<void> get_staged(Waiting&, std::byte* to, std::uint64_t from, comm::Cursor);
  Result<bool> get_pending(Waiting&, std::byte* to, std::uint64_t from, const comm::Cursor&, Id* id);

  // of the program's variables in a job of one rank
  template <class Here, class Elsewhere>
  Result<void> each_piece(const void* global, const void* local, comm::Cursor, const char* what, const Here&,
                          const Elsewhere&);
  Result<void> get_variables(void* to, const void* from, const comm::Cursor&);
  Result<void> put_variables(void* to, const void* from, const comm::Cursor&);
  Result<void> accumulate_variables(void* to, const void* from, const comm::Cursor&, comm::Element,
                                    std::complex<double> scale);
  Result<void> copy_variables(void* to, const void* from, std::uint64_t bytes);
  Result<void> atomic_in_variable(comm::AtomicOp, comm::Width, void* word, std::uint64_t operand,
                                  std::uint64_t compare, OldValue);
  static Result<void> outside(const void* p, const char* what);

  void bring(const void* global, const comm::Cursor&, bool changes);
  [[nodiscard]] bool may_replace(std::uint64_t to, const comm::Cursor&) const noexcept;
  template <class Issue>
  Result<void> change(Id* id, const Issue& issue);
  template <class Issue>
  Result<void> counted(Waiting&, Id* id, const Issue& issue, bool& done);
  Result<void> finish(gas::PendingSlot&);
  Result<void> finish_elsewhere(Waiting&, Id id);
  Result<bool> done_elsewhere(Waiting&, Id id);
  Result<std::uint64_t> read_packed(comm::Blocking&, gas::Outstanding&, std::uint64_t from, comm::Cursor&,
                                    std::byte* data, std::uint64_t room);

  gas::DirectAccess& access_;
  mem::Space& space_;
  ThreadContexts& contexts_;
  comm::Transport& transport_;
  MixingCheck* mixing_;
  Atomics* fences_ = nullptr;
  const OneRankVariables& variables_;
  std::atomic<bool> closed_{false}, not_here_;  ///< not_here_: closed, or each access is to be checked
  const bool all_mapped_;
  gas::PendingTable pending_;
  std::unique_ptr<Record[]> records_;  ///< of blocking operations
  comm::IndexPool<> free_records_;
  gas::Outstanding detached_;
};

}  // namespace kasane::runtime
