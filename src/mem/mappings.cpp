// SPDX-License-Identifier: Apache-2.0
#include "mem/mappings.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

namespace kasane::mem {
namespace {

constexpr std::int64_t kBoundariesOfARun = 2;

// vm.max_map_count, or the kernel's default where it cannot be read.
std::uint64_t max_map_count() {
  char digits[32] = {};
  const int fd = ::open("/proc/sys/vm/max_map_count", O_RDONLY | O_CLOEXEC);
  const ssize_t n = fd < 0 ? -1 : ::read(fd, digits, sizeof digits - 1);
  if (fd >= 0) ::close(fd);
  const std::uint64_t value = n > 0 ? std::strtoull(digits, nullptr, 10) : 0;
  return value != 0 ? value : 65530;
}

}  // namespace

// Without credit the first look counts: a rank of many has thousands of mappings, and most need no count.
MappingBudget::MappingBudget(std::uint64_t limit) : limit_(limit != 0 ? limit : max_map_count() / 2) {}

// relaxed, here and below: numbers, which only say when to make no more mappings; they order no data.
void MappingBudget::spend() noexcept { credit_.fetch_sub(kBoundariesOfARun, std::memory_order_relaxed); }

void MappingBudget::refused() noexcept { credit_.store(0, std::memory_order_relaxed); }

bool MappingBudget::crowded() const noexcept {
  if (credit_.load(std::memory_order_relaxed) <= 0) recount();
  return crowded_.load(std::memory_order_relaxed);
}

// One thread counts; the others use the last answer. The credit is set before counting: runs that are spent
// meanwhile reduce it, so none is missed.
void MappingBudget::recount() const noexcept {
  if (counting_.exchange(true, std::memory_order_acquire)) return;  // acquire/release: one counter at a time
  const auto stride = static_cast<std::int64_t>(std::max<std::uint64_t>(limit_ / 8, kBoundariesOfARun));
  credit_.store(stride, std::memory_order_relaxed);
  const std::uint64_t mappings = count_mappings();
  crowded_.store(mappings >= limit_, std::memory_order_relaxed);
  if (mappings < limit_) {
    const auto room = static_cast<std::int64_t>(limit_ - mappings);
    if (room > stride) credit_.fetch_add(room - stride, std::memory_order_relaxed);
  }
  // release: for the next thread that counts
  counting_.store(false, std::memory_order_release);
}

std::uint64_t count_mappings() noexcept {
  const int fd = ::open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  // No descriptor is left: dropping blocks is better than running into the kernel's limit.
  if (fd < 0) return ~std::uint64_t{0};
  std::uint64_t lines = 0;
  char part[4096];  // the kernel returns a page at a time, and signal stacks are small
  ssize_t n;
  while ((n = ::read(fd, part, sizeof part)) > 0)
    lines += static_cast<std::uint64_t>(std::count(part, part + n, '\n'));
  ::close(fd);
  return n == 0 ? lines : ~std::uint64_t{0};
}

}  // namespace kasane::mem
