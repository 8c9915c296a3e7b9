// SPDX-License-Identifier: Apache-2.0
#include "mem/bounce_buffers.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "base/assert.h"
#include "mem/populate.h"
#include "mem/size_signal.h"

namespace kasane::mem {
namespace {

/// The size of the frame that a touch makes there, where it is larger than an OS page; else 0.
std::uint64_t large_at(const MemoryFile& file, std::uint64_t offset) noexcept {
  return file.large_frame_bytes <= file.pages.page_bytes_at(offset) ? file.large_frame_bytes : 0;
}

}  // namespace

Result<std::unique_ptr<BounceBuffers>> BounceBuffers::create(MemoryFile file) {
  // One large frame where the machine has one: a transfer then looks up a single page. Twice the size is
  // reserved, for the alignment.
  void* const reserved =
      ::mmap(nullptr, 2 * kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED)
    return fail_errno(Errc::limit, "no room for the staging memory of a spill file (see ulimit -v)");
  auto* const first = static_cast<std::byte*>(reserved);
  std::byte* const memory = first + (kBytes - reinterpret_cast<std::uintptr_t>(first) % kBytes) % kBytes;
  if (memory != first) ::munmap(first, static_cast<std::size_t>(memory - first));
  ::munmap(memory + kBytes, static_cast<std::size_t>(first + kBytes - memory));
  if (::mprotect(memory, kBytes, PROT_READ | PROT_WRITE) != 0) {
    const int number = errno;
    ::munmap(memory, kBytes);
    return fail_errno(Errc::limit, "no memory for the staging of a spill file", number);
  }
  ::madvise(memory, kBytes, MADV_HUGEPAGE);
  return std::unique_ptr<BounceBuffers>(new BounceBuffers(file, memory));
}

BounceBuffers::~BounceBuffers() {
  KASANE_CHECK(free_.load() == ~std::uint64_t{0}, "staging memory ends while reads are under way");
  ::munmap(memory_, kBytes);
}

BounceBuffers::FirstRead BounceBuffers::first_read(const std::byte* base, std::uint64_t offset,
                                                   std::uint64_t bytes) const noexcept {
  if (base != file_.base) return {bytes, false};
  const std::uint64_t large = large_at(file_, offset);
  if (large == 0) return {bytes, true};
  if (offset % large == 0 && bytes >= large) return {bytes - bytes % large, false};
  // In place, a part of a large frame would make all of it
  return {std::min(bytes, large - offset % large), true};
}

std::span<std::byte> BounceBuffers::take(std::uint64_t bytes) noexcept {
  // relaxed: a guess, which the compare-swap checks.
  std::uint64_t free = free_.load(std::memory_order_relaxed);
  // acquire: pairs with give_back(): the last user of the buffer has finished with it.
  while (free != 0 && !free_.compare_exchange_weak(free, free & (free - 1), std::memory_order_acquire,
                                                   std::memory_order_relaxed)) {
  }
  if (free == 0) return {};
  return {memory_ + static_cast<std::size_t>(std::countr_zero(free)) * kBufferBytes,
          static_cast<std::size_t>(std::min<std::uint64_t>(bytes, kBufferBytes))};
}

int BounceBuffers::deliver(std::uint64_t offset, std::span<const std::byte> bytes,
                           const View& view) const noexcept {
  if (view.engine == nullptr) return write(offset, bytes);
  const std::uint64_t first = raw(block_of(offset)), end = first + bytes.size() / kBlockBytes;
  const std::uint64_t hidden = std::clamp(raw(view.but.first), first, end),
                      hidden_end = std::clamp(raw(view.but.first) + view.but.count, hidden, end);
  int error = 0;
  const auto part = [&](std::uint64_t from, std::uint64_t to, bool shown) {
    if (shown && from != to)
      from += view.engine->fill({BlockId{from}, to - from}, bytes.data() + (from - first) * kBlockBytes,
                                view.access);
    if (from != to && error == 0)
      error =
          write(from * kBlockBytes, bytes.subspan((from - first) * kBlockBytes, (to - from) * kBlockBytes));
  };
  part(first, hidden, true);
  part(hidden, hidden_end, false);
  part(hidden_end, end, true);
  return error;
}

int BounceBuffers::write(std::uint64_t offset, std::span<const std::byte> bytes) const noexcept {
  const int saved = errno;
  int error = 0;
  NoSizeSignal held;
  while (!bytes.empty() && error == 0) {
    const ssize_t moved = ::pwrite(file_.fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (moved > 0)
      offset += static_cast<std::uint64_t>(moved), bytes = bytes.subspan(static_cast<std::size_t>(moved));
    else if (moved == 0)
      error = EIO;
    else if (errno == EFBIG)
      break;
    else if (errno != EINTR)
      error = errno;
  }
  // The limit of file sizes was lowered. It holds for memory files, too, but not for stores.
  if (!bytes.empty() && error == 0) {
    held.may_be_sent();
    std::byte* const frames = map_small(offset, bytes.size());
    if (frames == nullptr) {
      error = errno;
    } else {
      std::memcpy(frames, bytes.data(), bytes.size());
      ::munmap(frames, bytes.size());
    }
  }
  errno = saved;
  return error;
}

/// A mapping of the bytes in which each OS page gets a frame of its own. Null: the process has no room for
/// one.
std::byte* BounceBuffers::map_small(std::uint64_t offset, std::uint64_t bytes) const noexcept {
  void* const mapped =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_.fd, static_cast<off_t>(offset));
  if (mapped == MAP_FAILED) return nullptr;
  ::madvise(mapped, bytes, MADV_NOHUGEPAGE);
  return static_cast<std::byte*>(mapped);
}

/// Where the kernel refuses for lack of memory, the transfer reports it.
void BounceBuffers::make_small(std::uint64_t offset, std::uint64_t bytes) const noexcept {
  if (large_at(file_, offset) == 0) return;
  const int saved = errno;
  if (std::byte* const frames = map_small(offset, bytes); frames != nullptr) {
    populate(frames, bytes);
    ::munmap(frames, bytes);
  }
  errno = saved;
}

void BounceBuffers::give_back(std::span<std::byte> taken) noexcept {
  free_.fetch_or(bit_of(taken), std::memory_order_release);  // release: see take()
}

std::uint64_t BounceBuffers::bit_of(std::span<const std::byte> taken) const noexcept {
  return std::uint64_t{1} << static_cast<std::uint64_t>(taken.data() - memory_) / kBufferBytes;
}

}  // namespace kasane::mem
