// SPDX-License-Identifier: Apache-2.0
// acp_malloc, acp_free, acp_copy: see job.h for how blocks are kept.
#include <bit>
#include <kasane/containers/access.hpp>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "acp/job.h"

namespace kasane::acp {
namespace {

using detail::containers::fail;
using detail::containers::Far;

constexpr Word kMark = 0x6B61'7361'6E65'6163u;
constexpr unsigned kSizeAt = 56;  ///< in a depot's words, above the address

}  // namespace

void Gate::lock() noexcept {
  while (held_.test_and_set(std::memory_order_acquire)) std::this_thread::yield();  // sees earlier holders
}

// ---- getting a block --------------------------------------------------------------------------------------

/// Fixed pages at header.rank, in multiples of a chunk, which begin with the header.
char* Memory::pages(std::size_t bytes, const Header& header) {
  void* const p = kasane_allocate_placed(
      bytes, kChunk, static_cast<kasane_placement_t>(KASANE_PLACEMENT_ONE_RANK | KASANE_PLACEMENT_FIXED),
      header.rank, KASANE_PAGE_DEFAULT);
  if (p == nullptr) kasane::detail::throw_last_error();
  Far::write(p, &header, sizeof header);
  return static_cast<char*>(p);
}

acp_ga_t Memory::take(std::uint32_t rank, std::size_t size) {
  const std::lock_guard lock(gate_);
  std::vector<Word>& blocks = kept(rank, size);
  if (blocks.empty()) return ACP_GA_NULL;
  const acp_ga_t ga = blocks.back();
  blocks.pop_back();
  return ga;
}

void Memory::ask_depot(std::uint32_t rank) {
  Word words[kBatch];
  const std::size_t n = depots_[rank].try_pop_front(words);
  const std::lock_guard lock(gate_);
  for (std::size_t i = 0; i < n; ++i)
    kept(rank, words[i] >> kSizeAt).push_back(words[i] & ((Word{1} << kSizeAt) - 1));
}

void Memory::cut_chunk(std::uint32_t rank, std::size_t size) {
  const Header header{kMark, static_cast<std::uint32_t>(size), rank};
  char* const chunk = pages(kChunk, header);
  const std::lock_guard lock(gate_);
  cut_.push_back(chunk);
  chunks_[address(chunk)] = header;
  for (std::size_t at = kChunk - (kLeast << size); at >= first(size); at -= kLeast << size)
    kept(rank, size).push_back(address(chunk + at));
}

acp_ga_t Memory::allocate(std::size_t bytes, std::uint32_t rank) {
  if (rank >= ranks_) fail(EINVAL, "there is no rank " + std::to_string(rank));
  if (bytes > kMost) {
    if (bytes > SIZE_MAX - 2 * kChunk) throw std::bad_alloc();
    const std::size_t all = (bytes + 64 + kChunk - 1) / kChunk * kChunk;
    return address(pages(all, {kMark, kSizes, rank}) + 64);
  }
  const auto size = static_cast<std::size_t>(std::bit_width((bytes + kLeast - 1) / kLeast | 1)) - 1;
  const std::size_t fits = (kLeast << size) < bytes ? size + 1 : size;
  if (const acp_ga_t ga = take(rank, fits); ga != ACP_GA_NULL) return ga;
  ask_depot(rank);
  for (;;) {
    if (const acp_ga_t ga = take(rank, fits); ga != ACP_GA_NULL) return ga;
    cut_chunk(rank, fits);
  }
}

// ---- giving it back ---------------------------------------------------------------------------------------

Memory::Header Memory::header_of(acp_ga_t ga) {
  const Word chunk = ga & ~Word{kChunk - 1};
  {
    const std::lock_guard lock(gate_);
    if (const auto known = chunks_.find(chunk); known != chunks_.end()) return known->second;
  }
  Header header{};
  if (ga == chunk || kasane_get(&header, pointer(chunk), sizeof header) != 0 || header.mark != kMark ||
      header.size > kSizes || header.rank >= ranks_)
    fail(EINVAL, "no block of acp_malloc begins there");
  if (header.size != kSizes) {
    const std::lock_guard lock(gate_);
    chunks_[chunk] = header;
  }
  return header;
}

void Memory::free(acp_ga_t ga) {
  const Header header = header_of(ga);
  const Word offset = ga & (kChunk - 1);
  if (header.size == kSizes) {
    if (offset != 64) fail(EINVAL, "no block of acp_malloc begins there");
    const Header gone{};
    Far::write(pointer(ga - 64), &gone, sizeof gone);
    return deallocate(pointer(ga - 64));
  }
  const std::size_t size = header.size, bytes = kLeast << size;
  if (offset % bytes != 0 || offset < first(size)) fail(EINVAL, "no block of acp_malloc begins there");
  Word surplus[kBatch];
  {
    const std::lock_guard lock(gate_);
    std::vector<Word>& blocks = kept(header.rank, size);
    blocks.push_back(ga);
    if (blocks.size() < 2 * (kChunk / bytes) + kBatch) return;
    for (Word& word : surplus) {
      word = blocks.back() | Word{size} << kSizeAt;
      blocks.pop_back();
    }
  }
  depots_[header.rank].push_back(std::span<const Word>(surplus));
}

void Memory::end() noexcept {
  for (void* chunk : std::exchange(cut_, {})) deallocate(chunk);
}

// ---- copies -----------------------------------------------------------------------------------------------

namespace {

/// The copies of a rank that are under way; they are waited for together. begun: handles given out, done:
/// those of them that are complete. The gate is held over calls of Kasane, in a polling_scope: so its holder
/// keeps its worker.
struct Copies {
  Gate gate;
  kasane_pending_t pending{};
  acp_handle_t begun = 0, done = 0;

  void complete(acp_handle_t handle) {
    if (handle == ACP_HANDLE_ALL || handle == ACP_HANDLE_CONT) handle = begun;
    if (handle <= done || handle > begun) return;
    detail::check(kasane_wait(&pending));
    done = begun;
  }
} g_copies;

}  // namespace
}  // namespace kasane::acp

using namespace kasane::acp;

extern "C" {

acp_ga_t acp_malloc(size_t size, int rank) {
  return attempt(__func__, ACP_GA_NULL, [&] { return Job::here().memory.allocate(size, rank_named(rank)); });
}

void acp_free(acp_ga_t ga) {
  if (ga != ACP_GA_NULL) must(__func__, [&] { Job::here().memory.free(ga); });
}

acp_handle_t acp_copy(acp_ga_t dst, acp_ga_t src, size_t size, acp_handle_t order) {
  return attempt(__func__, ACP_HANDLE_NULL, [&] {
    const std::lock_guard lock(g_copies.gate);
    g_copies.complete(order);
    kasane::detail::check(kasane_copy(pointer(dst), pointer(src), size, &g_copies.pending));
    return ++g_copies.begun;
  });
}

void acp_complete(acp_handle_t handle) {
  must(__func__, [&] {
    const std::lock_guard lock(g_copies.gate);
    g_copies.complete(handle);
  });
}

}  // extern "C"
