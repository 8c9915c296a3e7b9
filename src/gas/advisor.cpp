// SPDX-License-Identifier: Apache-2.0
#include "gas/advisor.h"

#include "comm/requests.h"

namespace kasane::gas {

Advisor::Advisor(comm::Transport& transport, mem::AdviceTable& table, mem::Residency& residency)
    : transport_(transport), table_(table), residency_(residency) {
  transport_.set_handler(kAdviceHandler, &Advisor::on_advice, this);
}

void Advisor::tell(comm::Blocking& io, mem::PageRange pages, What what) {
  if (pages.size() == 0) return;
  const Advice advice{pages, what};
  comm::request_all(io, kAdviceHandler, comm::as_payload(advice), kAgain, [](Rank, std::uint64_t) {});
}

void Advisor::on_advice(void* self, const comm::Message& message) noexcept {
  auto& advisor = *static_cast<Advisor*>(self);
  const auto advice = value_of<Advice>(message);
  if (advice.what != What::leave) {
    advisor.take_note(advice);
    return advisor.transport_.reply(message.token, 0);
  }
  if (!advisor.evict_requests_.add({advice.pages, message.token}))
    return advisor.transport_.reply(message.token, kAgain);
  advisor.residency_.ring();
}

void Advisor::take_note(const Advice& advice) noexcept {
  static_assert(static_cast<int>(What::sequential) == static_cast<int>(mem::Usage::sequential) &&
                static_cast<int>(What::random) == static_cast<int>(mem::Usage::random));
  static_assert(static_cast<int>(What::once) == static_cast<int>(mem::Usage::once) &&
                static_cast<int>(What::normal) == static_cast<int>(mem::Usage::normal));
  if (advice.what == What::hold) {
    table_.hold(advice.pages);
  } else if (advice.what == What::end_hold) {
    table_.end_hold(advice.pages);
  } else {
    table_.use(advice.pages, static_cast<mem::Usage>(advice.what));
  }
}

void Advisor::report_evicted(const EvictRequest& request) noexcept { transport_.reply(request.token, 0); }

}  // namespace kasane::gas
