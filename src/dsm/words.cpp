// SPDX-License-Identifier: Apache-2.0
// What an atomic of the program needs of the block in which it lies, where another rank owns the block: plain
// stores of this rank to its bytes, such as its initialisation, reach the owner before; and a copy here has
// the new bytes afterwards, since a later plain store of the same value as the old bytes would be no change.
// Other ranks' changes need neither: their notices come with their releases.
#include <cstring>

#include "dsm/coherence.h"

namespace kasane::dsm {

void Coherence::send_bytes(ThreadContext& ctx, std::uint64_t offset, std::size_t bytes) {
  const BlockId b = mem::block_of(offset);
  const BlockState s = state(b);
  if (!s.dirty()) return;
  // Other bytes of the block can wait. If a thread holds the bit, it may be sending these.
  if (!s.busy && s.twin && std::memcmp(space_.a(offset), space_.t(offset), bytes) == 0 && state(b) == s)
    return;
  fence_block(ctx.io, &ctx.counters, b, BlockEvent::release);
}

void Coherence::renew_bytes(ThreadContext& ctx, std::uint64_t offset, std::size_t bytes) {
  const BlockId b = mem::block_of(offset);
  // seq_cst: a fetch inserts its block before it reads the owner's bytes. Either it is seen here, or it reads
  // after the change.
  if (!cached_.contains(b)) return;
  const BlockStep step = claim_block(ctx.io, b, BlockEvent::renew);
  if (step.verdict != Verdict::proceed) return;
  refresh(ctx.io, offset, bytes, step.claimed.twin);
  finish(b, step.after);
}

}  // namespace kasane::dsm
