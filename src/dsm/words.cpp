// SPDX-License-Identifier: Apache-2.0
// What an atomic of the program needs of the block in which it lies, where another rank owns the block: plain
// stores of this rank to its bytes, such as its initialisation, reach the owner before; and a copy here has
// the new bytes afterwards, since a later plain store of the same value as the old bytes would be no change.
// Other ranks' changes need neither: their notices come with their releases.
#include <cstring>

#include "dsm/fences.h"

namespace kasane::dsm {

void Fences::send_bytes(ThreadContext& ctx, std::uint64_t offset, std::size_t bytes) {
  const BlockId b = mem::block_of(offset);
  const BlockState s = blocks_.state(b);
  if (!s.dirty()) return;
  // Other bytes of the block can wait. If a thread holds the bit, it may be sending these.
  if (!s.busy && s.twin && std::memcmp(p_.space.a(offset), p_.space.t(offset), bytes) == 0 &&
      blocks_.state(b) == s)
    return;
  fence(ctx.io, &ctx.counters, b, BlockEvent::release);
}

void Fences::renew_bytes(ThreadContext& ctx, std::uint64_t offset, std::size_t bytes) {
  // seq_cst: a fetch inserts its block before it reads the owner's bytes. Either it is seen here, or it reads
  // after the change.
  if (!blocks_.cached().contains(mem::block_of(offset))) return;
  Held held(blocks_, mem::block_of(offset));
  for (;;) {
    const BlockStep step = held.claim(ctx.io, 0, BlockEvent::renew);
    if (step.verdict != Verdict::proceed) return;
    if (fetches_.refresh(ctx.io, offset, bytes, step.claimed.twin) != Fetches::Again::absent) return;
    held.give_back();
    fetches_.page_in(ctx.io, pages_.page_of(held[0]));
  }
}

}  // namespace kasane::dsm
