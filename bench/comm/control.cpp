// SPDX-License-Identifier: Apache-2.0
#include "control.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <system_error>

namespace kasane::bench {
namespace {

constexpr char kDigits[] = "0123456789abcdef";

std::string to_hex(const std::string& bytes) {
  std::string text;
  text.reserve(2 * bytes.size());
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

std::string from_hex(const std::string& text) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2)
    bytes += static_cast<char>(std::stoi(text.substr(i, 2), nullptr, 16));
  return bytes;
}

}  // namespace

Control::Control(unsigned rank) : fd_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  const char* name = std::getenv(kSocketVariable);
  if (name == nullptr)
    throw std::runtime_error(
        "this program is a part of kasane bench pingpong and kasane bench comm, which start it");
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  // abstract: the first byte stays zero
  std::strncpy(address.sun_path + 1, name, sizeof(address.sun_path) - 2);
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + std::strlen(name));
  if (fd_ < 0 || ::connect(fd_, reinterpret_cast<const sockaddr*>(&address), length) != 0) {
    throw std::system_error(errno, std::generic_category(), "kasane bench: the harness's socket");
  }
  answer("hello " + std::to_string(rank));
}

Control::~Control() { ::close(fd_); }

std::string Control::exchange(const std::string& mine) {
  answer("share " + to_hex(mine));
  auto theirs = next();
  if (!theirs) throw std::runtime_error("the harness has gone");
  return from_hex(*theirs);
}

std::optional<std::string> Control::next() {
  for (;;) {
    if (const auto end = pending_.find('\n'); end != std::string::npos) {
      std::string line = pending_.substr(0, end);
      pending_.erase(0, end + 1);
      return line;
    }
    char buffer[4096];
    const ssize_t n = ::read(fd_, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return std::nullopt;
    pending_.append(buffer, static_cast<std::size_t>(n));
  }
}

void Control::answer(const std::string& line) const {
  const std::string text = line + "\n";
  for (std::size_t sent = 0; sent < text.size();) {
    const ssize_t n = ::send(fd_, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;  // next() will say that the harness has gone
    sent += static_cast<std::size_t>(n);
  }
}

unsigned long Control::number(const char* variable, unsigned long otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoul(text, nullptr, 10);
}

}  // namespace kasane::bench
