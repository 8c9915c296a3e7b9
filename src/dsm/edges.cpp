// SPDX-License-Identifier: Apache-2.0
// Edges between ranks: one rank asks another to release, which its service thread or a worker does between two threads' steps (rule 1).
#include <algorithm>

#include "base/assert.h"
#include "dsm/coherence.h"

namespace kasane::dsm {

void Coherence::ask_release(ThreadContext& ctx, Rank source) {
  if (source == transport_.rank()) return release_all(ctx);
  // The fact was fixed before we look. What was changed before it counts until its bytes have arrived and its readers were told.
  if (sharing_.nothing_to_release(ctx.io, source)) return;
  ctx.io.request(source, gas::kReleaseHandler, {}, comm::kPatienceNs);
}

void Coherence::on_release(void* self, const comm::Message& message) noexcept {
  auto& c = *static_cast<Coherence*>(self);
  if (c.sharing_.nothing_to_release()) return c.transport_.reply(message.token, 0);
  while (c.asking_.test_and_set(std::memory_order_acquire)) relax();
  const std::uint32_t n = c.asked_.load(std::memory_order_relaxed);   // asking_ is held
  KASANE_CHECK_OP(n, <, kMaxAsked);
  c.tokens_[n] = message.token;
  c.asked_.store(n + 1);
  c.asking_.clear(std::memory_order_release);
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
  if (asked_.load() == 0) return false;
  comm::ReplyToken tokens[64];
  while (asking_.test_and_set(std::memory_order_acquire)) relax();
  const std::uint32_t n = std::min<std::uint32_t>(asked_.load(std::memory_order_relaxed), 64);   // asking_ is held
  const std::uint32_t left = asked_.load(std::memory_order_relaxed) - n;
  std::copy_n(tokens_ + left, n, tokens);
  asked_.store(left);
  asking_.clear(std::memory_order_release);
  release_all(ctx);
  for (std::uint32_t i = 0; i < n; ++i) transport_.reply(tokens[i], 0);
  return n != 0;
}

}  // namespace kasane::dsm
