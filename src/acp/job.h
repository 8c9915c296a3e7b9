// SPDX-License-Identifier: Apache-2.0
// What a rank knows of the job between acp_init and acp_finalize, and how calls of kasane/acp.h fail.
#pragma once

#include <kasane/acp.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <kasane/containers/deque.hpp>
#include <kasane/kasane.hpp>
#include <new>
#include <unordered_map>
#include <vector>

namespace kasane::acp {

using Word = std::uint64_t;
using Depot = kasane::deque<Word>::handle;

[[nodiscard]] inline void* pointer(acp_ga_t ga) noexcept {
  return reinterpret_cast<void*>(static_cast<std::uintptr_t>(ga));
}
[[nodiscard]] inline acp_ga_t address(const void* p) noexcept { return reinterpret_cast<std::uintptr_t>(p); }

/// Of memory that is held for a few instructions, without a call of Kasane.
class Gate {
 public:
  void lock() noexcept;
  void unlock() noexcept { held_.clear(std::memory_order_release); }  // what the holder did is visible

 private:
  std::atomic_flag held_;
};

/// Small blocks of fixed memory of all ranks, from and to any rank.
///
/// A chunk is 64 KiB at one rank; its header says of which size its blocks are. A rank cuts up chunks at any
/// rank by itself, and keeps blocks of each rank and size, so that most calls make no trips. What it has too
/// many of goes to the depot of the rank where they lie, a kasane::deque, which ranks ask before they cut up
/// another chunk. Larger blocks have pages of their own.
/// Thread safety: any thread.
class Memory {
 public:
  explicit Memory(std::uint32_t ranks) : ranks_(ranks), kept_(ranks * kSizes) {}
  /// depots[r]: of rank r.
  void use(std::vector<Depot> depots) noexcept { depots_ = std::move(depots); }
  /// Throws error EINVAL: no such rank; out_of_memory.
  [[nodiscard]] acp_ga_t allocate(std::size_t bytes, std::uint32_t rank);
  /// Throws error EINVAL: no block begins there.
  void free(acp_ga_t ga);
  /// Gives back all chunks that this rank has cut up.
  void end() noexcept;

 private:
  static constexpr std::size_t kChunk = 65536, kLeast = 16, kSizes = 10, kBatch = 64;
  static constexpr std::size_t kMost = kLeast << (kSizes - 1);
  struct Header {
    Word mark;
    std::uint32_t size, rank;  ///< size: of the blocks, kLeast << size; kSizes: one block, with its own pages
  };
  [[nodiscard]] std::vector<Word>& kept(std::uint32_t rank, std::size_t size) noexcept {
    return kept_[rank * kSizes + size];
  }
  [[nodiscard]] static constexpr std::size_t first(std::size_t size) noexcept {
    return (kLeast << size) < 64 ? 64 : kLeast << size;
  }
  [[nodiscard]] acp_ga_t take(std::uint32_t rank, std::size_t size);
  void ask_depot(std::uint32_t rank);
  void cut_chunk(std::uint32_t rank, std::size_t size);
  [[nodiscard]] static char* pages(std::size_t bytes, const Header&);
  [[nodiscard]] Header header_of(acp_ga_t ga);

  std::uint32_t ranks_;
  std::vector<Depot> depots_;
  Gate gate_;  ///< of all that follows
  std::vector<std::vector<Word>> kept_;
  std::unordered_map<Word, Header> chunks_;  ///< of small blocks, which stay what they are
  std::vector<void*> cut_;
};

/// At rank 0, written by each rank in acp_init, read after its acp_sync.
struct Meeting {
  Word arrivals;  ///< of acp_sync, of all ranks, from the start on
  Word left;      ///< ranks that do not use it any more
  struct Place {
    acp_ga_t starter;
    Depot depot;
  } place[1];
};

struct Job {
  explicit Job(Meeting* m) : meeting(m), memory(kasane::ranks()) {}
  Meeting* meeting;
  Word syncs = 0;
  kasane::deque<Word> depot{kasane::rank()};  ///< this rank's
  std::vector<acp_ga_t> starters;
  Memory memory;
  /// The job of this rank; without acp_init it ends with a message.
  [[nodiscard]] static Job& here();
};

/// The rank that an argument names. Throws error EINVAL.
[[nodiscard]] std::uint32_t rank_named(int rank);

// ---- failures ---------------------------------------------------------------------------------------------

/// A handle names no container of its kind.
struct no_container : std::exception {
  explicit no_container(const char* k) noexcept : kind(k) {}
  const char* kind;
  [[nodiscard]] const char* what() const noexcept override { return kind; }
};

[[noreturn]] void end_job(const char* call, const char* text) noexcept;
[[noreturn]] void end_job(const char* call, const no_container& e) noexcept;

/// f(); a failure ends the job. Where the call holds something of this rank, a thread of Kasane stays here (a
/// polling_scope).
template <class Scope = kasane::polling_scope, class F>
auto must(const char* call, const F& f) noexcept {
  try {
    const Scope keep;
    return f();
  } catch (const no_container& e) {
    end_job(call, e);
  } catch (const std::exception& e) {
    end_job(call, e.what());
  }
}
/// f(), or `failure` and errno.
template <class R, class F>
R attempt(const char* call, const R& failure, const F& f) noexcept {
  try {
    const kasane::polling_scope keep;
    return f();
  } catch (const no_container& e) {
    end_job(call, e);
  } catch (const kasane::error& e) {
    if (e.code() == EIO) end_job(call, e.what());
    errno = e.code();
  } catch (const std::bad_alloc&) {
    errno = ENOMEM;
  } catch (const std::exception& e) {
    end_job(call, e.what());
  }
  return failure;
}

}  // namespace kasane::acp
