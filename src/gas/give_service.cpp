// SPDX-License-Identifier: Apache-2.0
#include "gas/give_service.h"

#include <algorithm>

namespace kasane::gas {
namespace {

/// An answer: 0, kAgain, or why 8 | page 56.
std::uint64_t as_answer(const std::optional<MoveRefusal>& refusal) noexcept {
  return refusal ? (static_cast<std::uint64_t>(refusal->why) + 1) << 56 | raw(refusal->page) : 0;
}

std::optional<MoveRefusal> as_refusal(std::uint64_t answer) noexcept {
  if (answer == 0) return {};
  return MoveRefusal{static_cast<Errc>((answer >> 56) - 1), PageId{answer & ((std::uint64_t{1} << 56) - 1)}};
}

}  // namespace

GiveService::GiveService(comm::Transport& transport, Mover& mover) : transport_(transport), mover_(mover) {
  transport_.set_handler(kGiveHandler, &GiveService::on_give, this);
}

std::optional<MoveRefusal> GiveService::give(comm::Blocking& io, PageId first, std::uint64_t pages, Rank to) {
  if (pages == 0) return {};
  if (to == transport_.rank()) return mover_.bring_all(io, first, pages);
  const Request request{first, pages};
  for (;;) {
    const std::uint64_t answer = io.request(to, kGiveHandler, comm::as_payload(request));
    if (answer != kAgain) return as_refusal(answer);
    io.waiter().pause();
  }
}

void GiveService::on_give(void* self, const comm::Message& message) noexcept {
  auto& give_service = *static_cast<GiveService*>(self);
  if (!give_service.noted_.add({value_of<Request>(message), message.token}))
    return give_service.transport_.reply(message.token, kAgain);
  // this may run on a worker: the service thread must look
  give_service.transport_.wake(give_service.transport_.rank(), comm::Doorbell::messages);
}

bool GiveService::serve(comm::Blocking& io) {
  Noted noted;
  if (!noted_.take(noted)) return false;
  // The rest of a request is queued again: other messages are served between the turns, and other requests
  // take their turns.
  while (noted.request.pages != 0) {
    const std::uint64_t now = std::min(kPagesPerTurn, noted.request.pages);
    if (const auto refusal = mover_.bring_all(io, noted.request.first, now)) {
      transport_.reply(noted.token, as_answer(refusal));
      return true;
    }
    noted.request = {PageId{raw(noted.request.first) + now}, noted.request.pages - now};
    // at the end, so that requests take turns; no room: go on
    if (noted.request.pages != 0 && noted_.add(noted)) return true;
  }
  mover_.await_entry_updates(io);
  transport_.reply(noted.token, 0);
  return true;
}

}  // namespace kasane::gas
