// SPDX-License-Identifier: Apache-2.0
#include "runtime/rank/own_addresses.h"

#include <fcntl.h>
#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "ult/sanitizer.h"

namespace kasane::runtime {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::uint64_t kStep = std::uint64_t{64} << 30;  ///< private memory of a rank that stays apart
constexpr std::uint64_t kAllSteps = std::uint64_t{1} << 40;

struct Range {
  std::uintptr_t first, end;
};

void* reserve(void* at, std::size_t bytes, int flags) noexcept {
  return ::mmap(at, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1, 0);
}

/// What is mapped below the first OS thread's stack, which grows. name: only what has it in the kernel's
/// list.
std::vector<Range> mapped(const char* name) {
  std::vector<Range> ranges;
  const auto close = [](std::FILE* f) { std::fclose(f); };
  const std::unique_ptr<std::FILE, decltype(close)> maps(std::fopen("/proc/self/maps", "re"), close);
  std::array<char, 4352> line;
  while (maps != nullptr && std::fgets(line.data(), static_cast<int>(line.size()), maps.get()) != nullptr) {
    std::uintptr_t first = 0, end = 0;
    if (std::strstr(line.data(), "[stack]") != nullptr) break;
    if (std::sscanf(line.data(), "%" SCNxPTR "-%" SCNxPTR, &first, &end) == 2 &&
        std::strstr(line.data(), name) != nullptr)
      ranges.push_back({first, end});
  }
  return ranges;
}

/// Reserves the free places between what is mapped there.
void fill_gaps(std::uintptr_t from) {
  const std::vector<Range> ranges = mapped("");
  for (std::size_t i = 1; i < ranges.size(); ++i) {
    const std::uintptr_t gap = ranges[i - 1].end;
    if (ranges[i - 1].first >= from && ranges[i].first > gap)
      reserve(reinterpret_cast<void*>(gap), ranges[i].first - gap, MAP_FIXED_NOREPLACE);
  }
}

/// libc's heap: empty where malloc is another one, or has mapped all that it gave.
Range find_heap() {
  for (const Range& range : mapped("[heap]")) return range;
  return {};
}

/// Takes what malloc can still give of this size in the heap.
void take_all_of(const Range& heap, std::size_t bytes) noexcept {
  for (;;) {
    void* p = std::malloc(bytes);
    asm volatile("" : "+r"(p));  // kept, though never used
    const auto at = reinterpret_cast<std::uintptr_t>(p);
    if (at >= heap.first && at < heap.end) continue;
    std::free(p);
    return;
  }
}

}  // namespace

void take_own_addresses(Rank rank, std::uint32_t ranks) noexcept {
  if (ranks == 1 || ult::kSanitized) return;
  const std::uint64_t step = std::min(kStep, kAllSteps / ranks) / kPage * kPage;
  // The highest free place for so much lies below all that is mapped. One step is for what the ranks' own
  // mappings differ by.
  void* const place = reserve(nullptr, step * (raw(rank) + 1), 0);
  if (place != MAP_FAILED) fill_gaps(reinterpret_cast<std::uintptr_t>(place));
  ::malloc_trim(0);
  const auto end = reinterpret_cast<std::uintptr_t>(::sbrk(0));
  reserve(reinterpret_cast<void*>((end + kPage - 1) / kPage * kPage), kPage, MAP_FIXED_NOREPLACE);
}

void leave_common_heap(std::uint32_t ranks) noexcept {
  if (ranks == 1 || ult::kSanitized) return;
  const Range heap = find_heap();
  constexpr std::size_t kLargest = 1 << 20, kSmall = 1024, kStepOfSizes = 16;
  for (std::size_t bytes = kLargest; bytes != 0; bytes = bytes > kSmall ? bytes / 2 : bytes - kStepOfSizes)
    take_all_of(heap, bytes);
}

}  // namespace kasane::runtime
