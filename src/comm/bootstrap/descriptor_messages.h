// SPDX-License-Identifier: Apache-2.0
// Messages with copies of descriptors (SCM_RIGHTS) beside a few bytes, between processes of one host.
// Thread safety: as the calls of the socket.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <span>
#include <vector>

#include "base/owned_fd.h"

namespace kasane::comm {

/// The most descriptors in one message. The kernel's limit is 253.
inline constexpr std::size_t kMostDescriptors = 250;

/// Returns what sendmsg() does.
ssize_t send_with(int socket, std::span<const std::byte> bytes, std::span<const int> descriptors) noexcept;
/// Returns what recvmsg() does. flags: recvmsg's; afterwards those of the message. Adds the descriptors that
/// came, which exec closes.
ssize_t receive_with(int socket, std::span<std::byte> bytes, int& flags, std::vector<OwnedFd>& descriptors);

}  // namespace kasane::comm
