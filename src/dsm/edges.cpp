// SPDX-License-Identifier: Apache-2.0
// Edges between ranks: one rank asks another to release; that rank's service thread does so, or a worker
// between two threads' steps (rule 1).
#include <iterator>

#include "base/assert.h"
#include "base/time_spent.h"
#include "dsm/coherence.h"

namespace kasane::dsm {

std::uint32_t Coherence::ask_release(ThreadContext& ctx, Rank source, Account account, std::uint32_t since) {
  if (source == transport_.rank()) {
    release_all(ctx, account);
    return 0;
  }
  // The fact of the edge was fixed before this look. What was changed before it counts as unreleased until
  // its bytes have arrived and the notices are sent.
  if (const std::uint32_t releases = sharing_.releases(ctx.io, source, since); releases != 0) return releases;
  const Spent spent(ctx.counters, account);
  count(ctx.counters.releases_asked);
  ctx.io.request(source, gas::kReleaseHandler, {}, comm::kDoorbellDelayNs);
  return 0;
}

void Coherence::on_release(void* self, const comm::Message& message) noexcept {
  auto& c = *static_cast<Coherence*>(self);
  if (c.sharing_.nothing_to_release()) return c.transport_.reply(message.token, 0);
  KASANE_CHECK(c.asked_.add(message.token), "more requests for a release than a rank keeps");
  // A thread that answers decrements answering_ and then reads asked_; here asked_ is written before
  // answering_ is read (seq_cst, all four). So that thread sees this request, or this handler sees that it
  // has finished.
  if (c.answering_.load() != 0) return;
  // this may run on a worker: the service thread must look
  c.transport_.wake(c.transport_.rank(), comm::Doorbell::messages);
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
  release_all(ctx, Account::fence_asked);
  for (std::uint32_t i = 0; i < n; ++i) transport_.reply(tokens[i], 0);
  return true;
}

}  // namespace kasane::dsm
