// SPDX-License-Identifier: Apache-2.0
#include "runtime/report/mixing_check.h"

#include <algorithm>

#include "runtime/rank/crash_text.h"
#include "runtime/rank/warn.h"
#include "runtime/report/crash_stack.h"

namespace kasane::runtime {
namespace {

void add_site(CrashText& text, const void* site) noexcept {
  describe(text, {.address = reinterpret_cast<std::uintptr_t>(site), .exact = false, .times = 1});
}

}  // namespace

class MixingCheck::Locked {
 public:
  explicit Locked(std::atomic_flag& flag) noexcept : flag_(flag) {
    while (flag_.test_and_set(std::memory_order_acquire)) {
    }  // acquire, release: what it guards
  }
  ~Locked() { flag_.clear(std::memory_order_release); }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

 private:
  std::atomic_flag& flag_;
};

void MixingCheck::before(dsm::ThreadContext& context, std::uint64_t offset, comm::Cursor cursor, bool changes,
                         const char* call, const void* site) noexcept {
  while (!cursor.done()) {
    const comm::Piece piece = cursor.piece();
    const std::uint64_t from = offset + piece.remote_offset, to = from + piece.bytes;
    cursor.consume(piece.bytes);
    // the access itself reports the error
    if (from >= space_.bytes() || to > space_.bytes() || to < from) return;
    for (std::uint64_t begin = from; begin < to;) {
      const std::uint64_t end = std::min(to, (begin / mem::kBlockBytes + 1) * mem::kBlockBytes);
      const BlockId block = mem::block_of(begin);
      const dsm::BlockState state = coherence_.blocks.state(block);
      if (state.dirty()) {
        const std::byte *now = space_.a(begin), *then = space_.t(begin);
        const auto differs =
            state.whole
                ? 0
                : static_cast<std::uint64_t>(std::mismatch(now, now + (end - begin), then).first - now);
        if (differs != end - begin && first(site, 0)) report_unreleased(begin + differs, call, site);
      }
      if (changes && !state.owned && state.access != mem::Access::none) {
        coherence_.moves.take(context.io, begin, end - begin);
        const Locked locked(lock_);
        uses_[raw(block) % kUses] = {raw(block) + 1, begin, end, coherence_.fences.acquires(), call, site};
      }
      begin = end;
    }
  }
}

void MixingCheck::report_unreleased(std::uint64_t offset, const char* call, const void* site) noexcept {
  CrashText text;
  text.add("kasane: rank ").decimal(raw(rank_)).add(": ").add(call).add(" at ");
  add_site(text, site);
  warn(describe_data(text.add(" uses "), space_.v(offset))
           .add(" directly, but this rank has changed it by a store that no release has sent: the owner's "
                "copy is older, and the "
                "change may come later. Call kasane::release_all() between the store and the direct "
                "access.\n"));
}

void MixingCheck::on_fault(std::uint64_t offset, bool store) noexcept {
  const std::uint64_t block = raw(mem::block_of(offset)) + 1;
  DirectUse mark;
  {
    const Locked locked(lock_);
    DirectUse& slot = uses_[raw(mem::block_of(offset)) % kUses];
    if (slot.block != block) return;
    mark = slot;
    slot.block = 0;
  }
  constexpr std::uint64_t widest = 63;  // an access that begins before the bytes may reach them
  if (mark.acquires != coherence_.fences.acquires() || offset + widest < mark.begin || offset >= mark.end ||
      !first(mark.site, 1))
    return;
  CrashText text;
  text.add("kasane: rank ").decimal(raw(rank_)).add(store ? ": a store to " : ": a load of ");
  describe_data(text, space_.v(offset)).add(" after ").add(mark.call).add(" at ");
  add_site(text, mark.site);
  warn(
      text.add(" changed it directly, without an acquire between: it may see the copy from before. Call "
               "kasane::acquire_all() between the direct access and the load or store.\n"));
}

}  // namespace kasane::runtime
