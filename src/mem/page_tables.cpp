// SPDX-License-Identifier: Apache-2.0
#include "mem/page_tables.h"

#include <fcntl.h>
#include <linux/membarrier.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "mem/madvise.h"
#include "mem/mappings.h"

namespace kasane::mem {
namespace {

// What the kernel takes for each mapping: the mapping's record, and its part of a tree node.
constexpr std::uint64_t kMappingBytes = 256;
// Counting takes a µs a mapping: it may take this part of the time.
constexpr std::uint64_t kCountingShare = 100;

}  // namespace

std::uint64_t page_table_bytes() noexcept {
  const int saved = errno;
  const int fd = ::open("/proc/self/status", O_RDONLY | O_CLOEXEC);
  char text[4096];  // the line is in the first 1.5 KiB
  const ssize_t n = fd < 0 ? -1 : ::read(fd, text, sizeof text - 1);
  if (fd >= 0) ::close(fd);
  errno = saved;
  if (n <= 0) return 0;
  text[n] = '\0';
  constexpr std::string_view kName = "VmPTE:";
  const std::size_t at = std::string_view(text, static_cast<std::size_t>(n)).find(kName);
  return at == std::string_view::npos ? 0 : std::strtoull(text + at + kName.size(), nullptr, 10) << 10;
}

bool page_tables_go_back() noexcept {
  constexpr std::size_t kTables = 64, kBytes = (kTables + 1) * PageTables::kTableBytes;
  void* got =
      ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (got == MAP_FAILED) return false;
  auto* first =
      reinterpret_cast<std::byte*>((reinterpret_cast<std::uintptr_t>(got) + PageTables::kTableBytes - 1) /
                                   PageTables::kTableBytes * PageTables::kTableBytes);
  for (std::size_t i = 0; i < kTables; ++i)
    *static_cast<volatile std::byte*>(first + i * PageTables::kTableBytes) = std::byte{1};
  const std::uint64_t with = page_table_bytes();
  drop_translations(first, kTables * PageTables::kTableBytes);
  const std::uint64_t without = page_table_bytes();
  ::munmap(got, kBytes);
  return without + kTables / 2 * kBlockBytes <= with;  // half: other threads may have made some meanwhile
}

// EINVAL: the program has locked its memory. Then it stays as it is.
bool drop_translations(std::byte* address, std::size_t bytes) noexcept {
  return advise(address, bytes, MADV_DONTNEED);
}

void wait_until_tables_are_freed() noexcept {
  const int saved = errno;
  // This call waits for a grace period, and does nothing else
  ::syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0);
  errno = saved;
}

Result<PageTables> PageTables::create(std::uint64_t space_bytes, const Pages& pages) {
  auto known = NumberSet::create((space_bytes + kRangeBytes - 1) / kRangeBytes);
  KASANE_TRY(known);
  auto met = NumberSet::create((space_bytes + kRegionBytes - 1) / kRegionBytes);
  KASANE_TRY(met);
  return PageTables(space_bytes, pages, std::move(*known), std::move(*met));
}

PageTables::PageTables(std::uint64_t space_bytes, const Pages& pages, NumberSet known, NumberSet met) noexcept
    : space_bytes_(space_bytes),
      whole_ranges_(space_bytes / kRangeBytes),
      pages_(pages),
      known_(std::move(known)),
      met_(std::move(met)),
      at_start_(page_table_bytes()) {
  count();
  mappings_at_start_ = mappings_;
}

PageTables::PageTables(PageTables&& o) noexcept
    : space_bytes_(o.space_bytes_),
      whole_ranges_(o.whole_ranges_),
      pages_(o.pages_),
      known_(std::move(o.known_)),
      met_(std::move(o.met_)),
      at_start_(o.at_start_),
      mappings_(o.mappings_),
      mappings_at_start_(o.mappings_at_start_),
      count_again_ns_(o.count_again_ns_) {}

std::uint64_t PageTables::entries_that_stay(std::uint64_t region) const noexcept {
  const std::uint64_t offset = region * kRegionBytes;
  return 3 + pages_.in(offset, std::min(kRegionBytes, space_bytes_ - offset)).size() / 1024;
}

PageTables::Fresh PageTables::note(BlockRange blocks) noexcept {
  Fresh fresh;
  if (blocks.count == 0) return fresh;
  const std::uint64_t last = (raw(blocks.first) + blocks.count - 1) / kRangeBlocks;
  for (std::uint64_t r = raw(blocks.first) / kRangeBlocks; r <= last; ++r) {
    if (known_.contains(r) || !known_.insert(r)) continue;
    fresh.tables += kPresumed;
    fresh.entries += 1;
    const std::uint64_t region = r / kRegionRanges;
    if (met_.insert(region)) fresh.entries += entries_that_stay(region);
  }
  if (fresh.tables == 0) return fresh;
  presumed_.fetch_add(fresh.tables, std::memory_order_relaxed);
  entries_.fetch_add(fresh.entries, std::memory_order_relaxed);
  return fresh;
}

Measured PageTables::measure() noexcept {
  // Before the look, which finds their tables.
  const std::uint64_t presumed = presumed_.load(std::memory_order_relaxed);
  const std::uint64_t before = measured_.load(std::memory_order_relaxed), now = taken();
  measured_.store(now, std::memory_order_relaxed);
  presumed_.fetch_sub(presumed, std::memory_order_relaxed);
  return {before + presumed, now};
}

void PageTables::count() noexcept {
  const std::uint64_t begin = now_ns();
  if (begin < count_again_ns_) return;
  if (const std::uint64_t n = count_mappings(); n != ~std::uint64_t{0}) mappings_ = n;
  const std::uint64_t end = now_ns();
  count_again_ns_ = end + kCountingShare * (end - begin);
}

std::uint64_t PageTables::taken() noexcept {
  count();
  const std::uint64_t bytes = page_table_bytes();
  const std::uint64_t more = bytes - std::min(bytes, at_start_) +
                             (mappings_ - std::min(mappings_, mappings_at_start_)) * kMappingBytes;
  return (more + kBlockBytes - 1) / kBlockBytes;
}

}  // namespace kasane::mem
