// SPDX-License-Identifier: Apache-2.0
#include "mem/stack_frames.h"

#include <sys/mman.h>

#include <algorithm>
#include <utility>

#include "base/clock.h"

namespace kasane::mem {
namespace {

// A measurement takes longer the more stacks there are: it may take this part of the time.
constexpr std::uint64_t kLookingShare = 50;

}  // namespace

Result<std::unique_ptr<StackFrames>> StackFrames::create(const Space& space, Layout layout,
                                                         std::uint64_t each_ns) {
  auto known = Set<StackId>::create(layout.stacks);
  KASANE_TRY(known);
  auto fresh = Set<StackId>::create(layout.stacks);
  KASANE_TRY(fresh);
  return std::unique_ptr<StackFrames>(
      new StackFrames(space.v(layout.offset), layout, std::move(*known), std::move(*fresh), each_ns));
}

StackFrames::StackFrames(std::byte* first, Layout layout, Set<StackId> known, Set<StackId> fresh,
                         std::uint64_t each_ns) noexcept
    : first_(first),
      layout_(layout),
      presumed_of_one_(std::min(kPresumed, layout.stack_bytes / kBlockBytes)),
      known_(std::move(known)),
      new_(std::move(fresh)),
      each_ns_(each_ns) {}

std::uint64_t StackFrames::note(StackId stack) noexcept {
  if (!known_.insert(stack)) return 0;
  // Before it is presumed: what a measurement takes off, it has found.
  new_.insert(stack);
  stacks_known_.fetch_add(1, std::memory_order_relaxed);
  presumed_.fetch_add(presumed_of_one_, std::memory_order_relaxed);
  return presumed_of_one_;
}

void StackFrames::forget(StackId stack) noexcept {
  if (!known_.contains(stack)) return;
  known_.erase(stack);
  new_.erase(stack);
  stacks_known_.fetch_sub(1, std::memory_order_relaxed);
}

std::optional<Measured> StackFrames::measure() noexcept {
  // acquire, and release below: look_, and one measurement after the other.
  if (measuring_.test_and_set(std::memory_order_acquire)) return std::nullopt;
  const std::uint64_t begin = now_ns();
  // Before the look, which finds their frames
  const std::uint64_t presumed = presumed_.load(std::memory_order_relaxed);
  const std::uint64_t before = measured_.load(std::memory_order_relaxed), now = frames(known_);
  measured_.store(now, std::memory_order_relaxed);
  presumed_.fetch_sub(presumed, std::memory_order_relaxed);
  const std::uint64_t end = now_ns();
  next_ns_.store(end + std::max(each_ns_, kLookingShare * (end - begin)), std::memory_order_relaxed);
  // release: for the next measurement's acquire
  measuring_.clear(std::memory_order_release);
  return Measured{before + presumed, now};
}

std::optional<Measured> StackFrames::measure_new() noexcept {
  // acquire, and release below: as in measure()
  if (measuring_.test_and_set(std::memory_order_acquire)) return std::nullopt;
  const std::uint64_t presumed = presumed_.load(std::memory_order_relaxed), now = frames(new_);
  measured_.fetch_add(now, std::memory_order_relaxed);
  presumed_.fetch_sub(presumed, std::memory_order_relaxed);
  measuring_.clear(std::memory_order_release);
  return Measured{presumed, now};
}

std::uint64_t StackFrames::ns_until_due() const noexcept {
  const std::uint64_t next = next_ns_.load(std::memory_order_relaxed), now = now_ns();
  return next - std::min(next, now);
}

/// One system call for neighbouring stacks.
std::uint64_t StackFrames::frames(const Set<StackId>& stacks) noexcept {
  const std::uint64_t blocks_of_one = layout_.stack_bytes / kBlockBytes;
  const auto id = [](std::uint64_t stack) { return StackId{static_cast<std::uint32_t>(stack)}; };
  std::uint64_t n = 0;
  for (std::uint64_t first = stacks.next(0), end = 0; first < layout_.stacks; first = stacks.next(end)) {
    for (end = first; end < layout_.stacks && stacks.contains(id(end)); ++end) new_.erase(id(end));
    n += frames_in(first_ + first * layout_.stack_bytes, (end - first) * blocks_of_one);
  }
  return n;
}

std::uint64_t StackFrames::frames_in(std::byte* begin, std::uint64_t blocks) noexcept {
  std::uint64_t n = 0;
  for (std::uint64_t at = 0, count; at < blocks; at += count) {
    count = std::min<std::uint64_t>(kLookBlocks, blocks - at);
    const std::span<unsigned char> has(look_.data(), count);
    look_for_frames(begin + at * kBlockBytes, has);
    n += static_cast<std::uint64_t>(std::ranges::count_if(has, [](unsigned char c) { return (c & 1) != 0; }));
  }
  return n;
}

}  // namespace kasane::mem
