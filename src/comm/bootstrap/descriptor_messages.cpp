// SPDX-License-Identifier: Apache-2.0
#include "comm/bootstrap/descriptor_messages.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <cstring>

namespace kasane::comm {
namespace {

struct SocketMessage {
  alignas(cmsghdr) char control[CMSG_SPACE(kMostDescriptors * sizeof(int))] = {};
  iovec part;
  msghdr header{};

  SocketMessage(std::byte* bytes, std::size_t n, std::size_t control_bytes) noexcept : part{bytes, n} {
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = control_bytes;
  }
};

}  // namespace

ssize_t send_with(int socket, std::span<const std::byte> bytes, std::span<const int> descriptors) noexcept {
  SocketMessage m(const_cast<std::byte*>(bytes.data()), bytes.size(), CMSG_SPACE(descriptors.size_bytes()));
  auto* const rights = reinterpret_cast<cmsghdr*>(m.control);  // the first
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(descriptors.size_bytes());
  std::memcpy(CMSG_DATA(rights), descriptors.data(), descriptors.size_bytes());
  return ::sendmsg(socket, &m.header, MSG_NOSIGNAL);
}

ssize_t receive_with(int socket, std::span<std::byte> bytes, int& flags, std::vector<OwnedFd>& descriptors) {
  SocketMessage m(bytes.data(), bytes.size(), sizeof m.control);
  const ssize_t n = ::recvmsg(socket, &m.header, flags | MSG_CMSG_CLOEXEC);
  if (n < 0) return n;
  flags = m.header.msg_flags;
  for (cmsghdr* c = CMSG_FIRSTHDR(&m.header); c != nullptr; c = CMSG_NXTHDR(&m.header, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    for (std::size_t at = 0; at + sizeof(int) <= c->cmsg_len - CMSG_LEN(0); at += sizeof(int)) {
      int descriptor;
      std::memcpy(&descriptor, CMSG_DATA(c) + at, sizeof descriptor);
      descriptors.emplace_back(descriptor);
    }
  }
  return n;
}

}  // namespace kasane::comm
