// SPDX-License-Identifier: Apache-2.0
#include "runtime/report/polling_check.h"

#include "runtime/rank/process_state.h"
#include "runtime/rank/warn.h"
#include "runtime/report/crash_stack.h"

namespace kasane::runtime {
namespace {

constexpr std::uint64_t kWithoutCallNs = 2'000'000'000;
constexpr std::size_t kShownFrames = 8;

}  // namespace

PollingCheck::PollingCheck(const ult::Pool& pool, const mem::Space& space)
    : pool_(pool), space_(space), seen_(pool.config().workers), watched_(pool.config().workers) {}

bool PollingCheck::look(std::uint64_t now_ns) noexcept {
  bool acquire = false;
  for (std::uint32_t w = 0; w < seen_.size(); ++w) {
    const ult::Pool::WorkerState now = pool_.state_of(w);
    Seen& seen = seen_[w];
    if (now.slot == kNoSlot || now.slot != seen.slot || now.calls_left != seen.calls_left ||
        now.activity != seen.activity)
      seen = {now.slot, now.calls_left, now.activity, now_ns};
    const bool watched = now.slot != kNoSlot && now_ns - seen.since_ns >= kWithoutCallNs;
    // relaxed: the fault that it is for comes after the acquire, which orders memory
    watched_[w].store(watched, std::memory_order_relaxed);
    acquire |= watched;
  }
  return acquire;
}

std::uint64_t PollingCheck::word_at(std::uint64_t offset) const noexcept {
  // relaxed: a copy of a word that another rank changes
  return __atomic_load_n(reinterpret_cast<const std::uint64_t*>(space_.a(offset & ~std::uint64_t{7})),
                         __ATOMIC_RELAXED);
}

PollingCheck::Watched PollingCheck::before(std::uint64_t offset) const noexcept {
  if (ult::Pool::current() == nullptr || !ult::Pool::in_user_code() ||
      !watched_[ult::Pool::worker()].load(std::memory_order_relaxed))
    return {};
  return {true, word_at(offset)};
}

void PollingCheck::after(std::uint64_t offset, Watched watched) noexcept {
  const std::uint64_t now = watched.yes ? word_at(offset) : 0;
  if (!watched.yes || now == watched.before || !reported_.first(offset)) return;
  CrashText text;
  text.add("kasane: rank ")
      .decimal(raw(process().rank))
      .add(": polling: thread ")
      .decimal(raw(ult::Pool::self()))
      .add(" has run for 2 s without a call, and reads the word at ");
  warn(describe_data(text, space_.v(offset))
           .add(", which another rank has changed from ")
           .hex(watched.before)
           .add(" to ")
           .hex(now)
           .add(". It would not have seen that: wait for it (kasane::atomic::wait, a condition variable), or "
                "read it by kasane::atomic.\n"));
  Backtrace trace;
  unwind(nullptr, trace);
  leave_out_runtime(trace);
  for (std::size_t i = 0; i < trace.count && i < kShownFrames; ++i) {
    CrashText line;
    line.add("kasane:   #").decimal(i).add(" ");
    describe(line, trace.frames[i]);
    warn(line.add("\n"));
  }
}

}  // namespace kasane::runtime
