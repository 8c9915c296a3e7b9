// SPDX-License-Identifier: Apache-2.0
#include "gas/giver.h"

#include <algorithm>
#include <cstring>

#include "base/assert.h"

namespace kasane::gas {
namespace {

/// An answer: 0, kAgain, or why 8 | page 56.
std::uint64_t as_answer(const std::optional<Refusal>& refusal) noexcept {
  return refusal ? (static_cast<std::uint64_t>(refusal->why) + 1) << 56 | raw(refusal->page) : 0;
}

std::optional<Refusal> as_refusal(std::uint64_t answer) noexcept {
  if (answer == 0) return {};
  return Refusal{static_cast<Errc>((answer >> 56) - 1), PageId{answer & ((std::uint64_t{1} << 56) - 1)}};
}

}  // namespace

Giver::Giver(comm::Transport& transport, Mover& mover) : transport_(transport), mover_(mover) {
  transport_.set_handler(kGiveHandler, &Giver::on_give, this);
}

std::optional<Refusal> Giver::give(comm::Blocking& io, PageId first, std::uint64_t pages, Rank to) {
  if (pages == 0) return {};
  if (to == transport_.rank()) return mover_.bring_all(io, first, pages);
  const Gift gift{first, pages};
  for (;;) {
    const std::uint64_t answer = io.request(to, kGiveHandler, comm::as_payload(gift));
    if (answer != kAgain) return as_refusal(answer);
    io.waiter().pause();
  }
}

void Giver::on_give(void* self, const comm::Message& message) noexcept {
  auto& giver = *static_cast<Giver*>(self);
  Noted noted{.gift = {}, .token = message.token};
  KASANE_CHECK_OP(message.payload.size(), ==, sizeof noted.gift);
  std::memcpy(&noted.gift, message.payload.data(), sizeof noted.gift);
  if (!giver.noted_.add(noted)) return giver.transport_.reply(message.token, kAgain);
  giver.transport_.wake(giver.transport_.rank(), comm::Doorbell::messages);   // we may run on a worker: the service thread must look
}

bool Giver::serve(comm::Blocking& io) {
  Noted noted;
  if (!noted_.take(noted)) return false;
  // What is left of a gift keeps its turn here: other messages are served between the turns, other gifts after it.
  while (noted.gift.pages != 0) {
    const std::uint64_t now = std::min(kTurn, noted.gift.pages);
    if (const auto refusal = mover_.bring_all(io, noted.gift.first, now)) {
      transport_.reply(noted.token, as_answer(refusal));
      return true;
    }
    noted.gift = {PageId{raw(noted.gift.first) + now}, noted.gift.pages - now};
    if (noted.gift.pages != 0 && noted_.add(noted)) return true;   // at the end, so that gifts take turns; no room: go on
  }
  mover_.await_named(io);
  transport_.reply(noted.token, 0);
  return true;
}

}  // namespace kasane::gas
