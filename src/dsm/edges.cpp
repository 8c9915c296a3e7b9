// SPDX-License-Identifier: Apache-2.0
// Edges between ranks: one rank asks another to release; that rank's service thread does so, or a worker
// between two threads' steps (rule 1).
#include <iterator>

#include "base/assert.h"
#include "base/time_spent.h"
#include "dsm/fences.h"

namespace kasane::dsm {

std::uint32_t Fences::ask_release(ThreadContext& ctx, Rank source, Account account, std::uint32_t since) {
  if (source == p_.me()) {
    release_all(ctx, account);
    return 0;
  }
  // The fact of the edge was fixed before this look. What was changed before it counts as unreleased until
  // its bytes have arrived and the notices are sent.
  if (const std::uint32_t releases = p_.sharing.releases(ctx.io, source, since); releases != 0)
    return releases;
  const Spent spent(ctx.counters, account);
  count(ctx.counters.releases_asked);
  ctx.io.request(source, gas::kReleaseHandler, {}, comm::kDoorbellDelayNs);
  return 0;
}

void Fences::on_release(void* self, const comm::Message& message) noexcept {
  auto& c = *static_cast<Fences*>(self);
  if (c.p_.sharing.nothing_to_release()) return c.p_.transport.reply(message.token, 0);
  KASANE_CHECK(c.asked_.add(message.token), "more requests for a release than a rank keeps");
  // A thread that answers decrements answering_ and then reads asked_; here asked_ is written before
  // answering_ is read (seq_cst, all four). So that thread sees this request, or this handler sees that it
  // has finished.
  if (c.answering_.load() != 0) return;
  // this may run on a worker: the service thread must look
  c.p_.transport.wake(c.p_.transport.rank(), comm::Doorbell::messages);
}

void Fences::answer(ThreadContext& ctx) {
  answering_.fetch_add(1);
  p_.transport.progress();
  answering_.fetch_sub(1);
  while (serve(ctx)) {
  }
}

bool Fences::serve(ThreadContext& ctx) {
  comm::ReplyToken tokens[64];
  std::uint32_t n = 0;
  while (n != std::size(tokens) && asked_.take(tokens[n])) ++n;
  if (n == 0) return false;
  release_all(ctx, Account::fence_asked);
  for (std::uint32_t i = 0; i < n; ++i) p_.transport.reply(tokens[i], 0);
  return true;
}

}  // namespace kasane::dsm
