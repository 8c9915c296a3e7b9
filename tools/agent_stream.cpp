// SPDX-License-Identifier: Apache-2.0
#include "agent_stream.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace kasane::tools {
namespace {

bool not_yet() noexcept { return errno == EAGAIN || errno == EINTR; }

}  // namespace

AgentStream::AgentStream(OwnedFd in, OwnedFd out) : in_(std::move(in)), out_(std::move(out)) {
  for (const int fd : {in_.get(), out_.get()}) ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
}

void AgentStream::send(std::uint32_t kind, std::uint32_t rank, std::string_view bytes) {
  if (out_.get() < 0) return;
  const Head head{.kind = kind, .rank = rank, .bytes = bytes.size()};
  out_bytes_.append(reinterpret_cast<const char*>(&head), sizeof head);
  out_bytes_.append(bytes);
}

bool AgentStream::next(Head& head, std::string& bytes) {
  if (in_bytes_.size() < sizeof head) return false;
  std::memcpy(&head, in_bytes_.data(), sizeof head);
  if (in_bytes_.size() - sizeof head < head.bytes) return false;
  bytes = in_bytes_.substr(sizeof head, head.bytes);
  in_bytes_.erase(0, sizeof head + head.bytes);
  return true;
}

void AgentStream::watch(std::vector<pollfd>& fds) const {
  if (in_.get() >= 0) fds.push_back({in_.get(), POLLIN, 0});
  if (out_.get() >= 0 && !out_bytes_.empty()) fds.push_back({out_.get(), POLLOUT, 0});
}

void AgentStream::flush() {
  while (out_.get() >= 0 && !out_bytes_.empty()) {
    const ssize_t n = ::write(out_.get(), out_bytes_.data(), out_bytes_.size());
    if (n > 0) {
      out_bytes_.erase(0, static_cast<std::size_t>(n));
    } else if (not_yet()) {
      break;
    } else {
      out_ = OwnedFd();
      out_bytes_.clear();
    }
  }
}

void AgentStream::receive() {
  char part[1 << 16];
  while (in_.get() >= 0) {
    const ssize_t n = ::read(in_.get(), part, sizeof part);
    if (n > 0)
      in_bytes_.append(part, static_cast<std::size_t>(n));
    else if (n < 0 && not_yet())
      break;
    else
      in_ = OwnedFd();
  }
}

std::string words(const std::vector<std::string>& list) {
  std::string text;
  for (const std::string& word : list) text.append(word).push_back('\0');
  return text;
}

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> list;
  for (std::size_t at; (at = text.find('\0')) != std::string_view::npos; text.remove_prefix(at + 1))
    list.emplace_back(text.substr(0, at));
  return list;
}

}  // namespace kasane::tools
