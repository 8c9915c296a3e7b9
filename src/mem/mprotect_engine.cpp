// SPDX-License-Identifier: Apache-2.0
// See mprotect_engine.h. mprotect returns after every core has dropped the old translations, which is what protect() promises.
//
// Invariant: between two exact counts the process got at most (runs protected × 2) new mappings from here; the next exact count is due
// when that could have carried it over the limit, or an eighth of the limit further once it is over.
#include "mem/mprotect_engine.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>

#include "base/assert.h"
#include "mem/signal_dispatch.h"

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

constexpr int protection(Access access) {
  switch (access) {
    case Access::none: return PROT_NONE;
    case Access::read: return PROT_READ;
    case Access::write: return PROT_READ | PROT_WRITE;
  }
  return PROT_NONE;
}

class MprotectEngine final : public FaultEngine {
 public:
  MprotectEngine(const Space& space, std::uint64_t limit)
      : base_(space.v(0)), bytes_(space.bytes()), limit_(limit != 0 ? limit : max_map_count() / 2) {
    recount();
  }
  ~MprotectEngine() override { stop(); }

  std::string_view name() const noexcept override { return "mprotect"; }

  Result<void> start(FaultHandler handler, void* context) override {
    KASANE_CHECK(handler != nullptr && handler_ == nullptr);
    handler_ = handler;
    context_ = context;
    auto registered = register_range(base_, bytes_, on_fault, this);
    if (!registered) handler_ = nullptr;
    return registered;
  }

  void stop() noexcept override {
    if (handler_ == nullptr) return;
    unregister_range(base_);
    handler_ = nullptr;
  }

  bool protect(BlockRange run, Access access) noexcept override {
    const std::uint64_t offset = offset_of(run.first), bytes = run.count * kBlockBytes;
    KASANE_CHECK(offset <= bytes_ && bytes <= bytes_ - offset);   // a stray mprotect would hit somebody else's memory
    if (bytes == 0) return true;
    // relaxed: a number, no order; taken before, so that the bound holds while mprotect runs.
    credit_.fetch_sub(kBoundariesOfARun, std::memory_order_relaxed);
    if (::mprotect(base_ + offset, bytes, protection(access)) == 0) return true;
    KASANE_CHECK_OP(errno, ==, ENOMEM);
    // What the bound missed: mappings that others made. So the next crowded() counts. relaxed, as below.
    credit_.store(0, std::memory_order_relaxed);
    return false;
  }

  bool crowded() const noexcept override {
    // relaxed, here and in recount(): a hint for when to drop blocks; no data is ordered by it.
    if (credit_.load(std::memory_order_relaxed) <= 0) recount();
    return crowded_.load(std::memory_order_relaxed);
  }

 private:
  static bool on_fault(void* self, void* address, bool write, void*) {
    const auto* engine = static_cast<const MprotectEngine*>(self);
    const auto offset = static_cast<std::uint64_t>(static_cast<std::byte*>(address) - engine->base_);
    return engine->handler_(engine->context_, offset, write ? Access::write : Access::read);
  }

  // One thread counts, the others go by the last answer. The credit is set before counting: runs protected meanwhile use it up, so none is missed.
  void recount() const noexcept {
    if (counting_.exchange(true, std::memory_order_acquire)) return;   // acquire/release: one counter at a time
    const auto stride = static_cast<std::int64_t>(std::max<std::uint64_t>(limit_ / 8, kBoundariesOfARun));
    credit_.store(stride, std::memory_order_relaxed);
    const std::uint64_t mappings = count_mappings();
    crowded_.store(mappings >= limit_, std::memory_order_relaxed);
    if (mappings < limit_) {
      const auto room = static_cast<std::int64_t>(limit_ - mappings);
      if (room > stride) credit_.fetch_add(room - stride, std::memory_order_relaxed);
    }
    counting_.store(false, std::memory_order_release);
  }

  std::byte* const base_;
  const std::size_t bytes_;
  const std::uint64_t limit_;
  FaultHandler handler_ = nullptr;   // constant between start() and stop()
  void* context_ = nullptr;
  mutable std::atomic<std::int64_t> credit_{0};   // mappings that may still come before the next exact count
  mutable std::atomic<bool> crowded_{false};
  mutable std::atomic<bool> counting_{false};
};

}  // namespace

std::unique_ptr<FaultEngine> make_mprotect_engine(const Space& space, std::uint64_t mapping_limit) {
  return std::make_unique<MprotectEngine>(space, mapping_limit);
}

std::uint64_t count_mappings() noexcept {
  const int fd = ::open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return ~std::uint64_t{0};   // no descriptor left: better to drop blocks than to run into the kernel's limit
  std::uint64_t lines = 0;
  char part[4096];   // the kernel hands out a page at a time, and signal stacks are small
  ssize_t n;
  while ((n = ::read(fd, part, sizeof part)) > 0)
    lines += static_cast<std::uint64_t>(std::count(part, part + n, '\n'));
  ::close(fd);
  return n == 0 ? lines : ~std::uint64_t{0};
}

}  // namespace kasane::mem
