// SPDX-License-Identifier: Apache-2.0
#include "comm/bootstrap/from_host_agent.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace kasane::comm {
namespace {

class ByAgent final : public OutOfBand {
 public:
  ByAgent(OwnedFd socket, Rank rank, std::uint32_t ranks) noexcept
      : socket_(std::move(socket)), rank_(rank), ranks_(ranks) {}
  [[nodiscard]] Rank rank() const noexcept override { return rank_; }
  [[nodiscard]] std::uint32_t ranks() const noexcept override { return ranks_; }

  Result<std::vector<std::string>> allgather(std::string_view mine) override {
    AgentMessage head{.kind = AgentMessage::kMine, .rank = raw(rank_), .bytes = mine.size()};
    std::string text(reinterpret_cast<const char*>(&head), sizeof head);
    text += mine;
    KASANE_TRY(move(POLLOUT, text.data(), text.size()));
    KASANE_TRY(move(POLLIN, reinterpret_cast<char*>(&head), sizeof head));
    if (head.kind != AgentMessage::kAll) return broken();
    text.resize(head.bytes);
    KASANE_TRY(move(POLLIN, text.data(), text.size()));
    std::vector<std::string> all;
    for (std::string_view rest = text; all.size() < ranks_;) {
      std::uint64_t bytes = 0;
      if (rest.size() < sizeof bytes) return broken();
      std::memcpy(&bytes, rest.data(), sizeof bytes);
      rest.remove_prefix(sizeof bytes);
      if (rest.size() < bytes) return broken();
      all.emplace_back(rest.substr(0, bytes));
      rest.remove_prefix(bytes);
    }
    return all;
  }

  void end() noexcept override { tell_agent_of_leaving(socket_.get(), rank_); }

 private:
  static tl::unexpected<Error> broken() {
    return fail(Errc::internal, "the agent of this host sent something else than what the ranks have");
  }

  /// Sends or receives all the bytes.
  Result<void> move(short which, char* data, std::size_t bytes) {
    while (bytes != 0) {
      const ssize_t n = which == POLLIN ? ::recv(socket_.get(), data, bytes, MSG_DONTWAIT)
                                        : ::send(socket_.get(), data, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (n > 0) {
        data += n;
        bytes -= static_cast<std::size_t>(n);
      } else if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        progress_built();
        pollfd ready{.fd = socket_.get(), .events = which, .revents = 0};
        ::poll(&ready, 1, has_built() ? 1 : 1000);
      } else {
        return fail(Errc::peer_lost, "the agent of this host, which kasane run started, has ended");
      }
    }
    return {};
  }

  const OwnedFd socket_;
  const Rank rank_;
  const std::uint32_t ranks_;
};

}  // namespace

std::unique_ptr<OutOfBand> out_of_band_by_agent(OwnedFd socket, Rank rank, std::uint32_t ranks) {
  return std::make_unique<ByAgent>(std::move(socket), rank, ranks);
}

void tell_agent_of_leaving(int socket, Rank rank) noexcept {
  const AgentMessage left{.kind = AgentMessage::kLeft, .rank = raw(rank), .bytes = 0};
  static_cast<void>(::send(socket, &left, sizeof left, MSG_NOSIGNAL));  // where none is, nobody asks
}

}  // namespace kasane::comm
