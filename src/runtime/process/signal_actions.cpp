// SPDX-License-Identifier: Apache-2.0
#include "runtime/process/signal_actions.h"

#include "comm/requests.h"
#include "gas/regions.h"
#include "runtime/process/signals.h"

namespace kasane::runtime {
namespace {

/// With number 0 it asks for one.
struct Message {
  std::uint64_t number = 0;
  int signal = 0;
  struct sigaction action = {};
};

}  // namespace

SignalActions::SignalActions(comm::Transport& transport) : transport_(transport) {
  transport_.set_handler(gas::kSignalHandler, &SignalActions::on_message, this);
}

void SignalActions::tell_all(comm::Blocking& io, int signal, const struct sigaction& action) {
  Message message{0, signal, action};
  message.number = io.request(Rank{0}, gas::kSignalHandler, comm::as_payload(message));
  comm::request_all(io, gas::kSignalHandler, comm::as_payload(message), gas::kAgain,
                    [](Rank, std::uint64_t) {});
}

void SignalActions::on_message(void* self, const comm::Message& received) noexcept {
  auto& actions = *static_cast<SignalActions*>(self);
  const auto message = gas::value_of<Message>(received);
  // relaxed: the numbers order the actions, and the answer's message the rest
  if (message.number == 0)
    return actions.transport_.reply(received.token,
                                    actions.last_.fetch_add(1, std::memory_order_relaxed) + 1);
  take_action(message.signal, message.action, message.number);
  actions.transport_.reply(received.token, 0);
}

}  // namespace kasane::runtime
