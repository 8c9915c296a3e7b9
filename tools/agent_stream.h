// SPDX-License-Identifier: Apache-2.0
// Messages over a pair of descriptors (comm/bootstrap/from_host_agent.h says what they look like), between
// kasane run --hosts and its agents, and between an agent and its ranks. Neither side waits for the other:
// what cannot be written yet stays here.
// Thread safety: one thread.
#pragma once

#include <poll.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/owned_fd.h"
#include "comm/bootstrap/from_host_agent.h"

namespace kasane::tools {

using Head = comm::AgentMessage;

/// Kinds of messages beside those of AgentMessage.
enum : std::uint32_t {
  kStart = Head::kFirstOfAgents,  ///< to an agent, words(): version, folder, ranks, first, here, arguments…
  kInput,                         ///< to the agent of rank 0: its standard input; no bytes: the end of that
  kSignal,                        ///< to an agent: for its rank; the number is in the bytes, as text
  kEnd,                           ///< to an agent: its ranks end now
  kOutput,                        ///< from an agent: what the rank has printed
  kErrors,                        ///< likewise to standard error
  kEnded,                         ///< from an agent: the rank has; its status as waitpid(2) gives it, as text
  kRefused,                       ///< from an agent: why it cannot start its ranks
};

class AgentStream {
 public:
  /// Both may be one socket. They become non-blocking.
  AgentStream(OwnedFd in, OwnedFd out);

  void send(std::uint32_t kind, std::uint32_t rank, std::string_view bytes);
  /// The next message that has arrived whole. False: none has.
  bool next(Head& head, std::string& bytes);

  /// Appends what poll(2) should watch.
  void watch(std::vector<pollfd>&) const;
  /// Without waiting; next() then has all that has arrived.
  void receive();
  void flush();
  /// So much waits here to be written.
  [[nodiscard]] std::size_t waiting() const noexcept { return out_bytes_.size(); }
  [[nodiscard]] bool ended() const noexcept { return in_.get() < 0; }  ///< nothing more arrives

 private:
  OwnedFd in_, out_;
  std::string in_bytes_, out_bytes_;
};

/// Texts without a zero byte, as one text.
std::string words(const std::vector<std::string>&);
std::vector<std::string> words_of(std::string_view);

}  // namespace kasane::tools
