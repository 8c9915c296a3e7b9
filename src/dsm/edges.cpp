// SPDX-License-Identifier: Apache-2.0
// Edges between ranks: one rank asks another to release, which its service thread or a worker does between two threads' steps (rule 1).
#include <iterator>

#include "base/assert.h"
#include "dsm/coherence.h"

namespace kasane::dsm {

void Coherence::ask_release(ThreadContext& ctx, Rank source) {
  if (source == transport_.rank()) return release_all(ctx);
  // The fact was fixed before we look. What was changed before it counts until its bytes have arrived and its readers were told.
  if (sharing_.nothing_to_release(ctx.io, source)) return;
  ctx.io.request(source, gas::kReleaseHandler, {}, comm::kDoorbellDelayNs);
}

void Coherence::on_release(void* self, const comm::Message& message) noexcept {
  auto& c = *static_cast<Coherence*>(self);
  if (c.sharing_.nothing_to_release()) return c.transport_.reply(message.token, 0);
  KASANE_CHECK(c.asked_.add(message.token), "more requests for a release than a rank keeps");
  // Whoever answers takes back his word and then looks at asked_ (seq_cst, all four): he sees what we have noted, or we see that he is through.
  if (c.answering_.load() != 0) return;
  c.transport_.wake(c.transport_.rank(), comm::Doorbell::messages);   // we may run on a worker: the service thread must look
}

void Coherence::answer(ThreadContext& ctx) {
  answering_.fetch_add(1);
  transport_.progress();
  answering_.fetch_sub(1);
  while (serve(ctx)) {
  }
}

bool Coherence::serve(ThreadContext& ctx) {
  comm::ReplyToken tokens[64];
  std::uint32_t n = 0;
  while (n != std::size(tokens) && asked_.take(tokens[n])) ++n;
  if (n == 0) return false;
  release_all(ctx);
  for (std::uint32_t i = 0; i < n; ++i) transport_.reply(tokens[i], 0);
  return true;
}

}  // namespace kasane::dsm
