// SPDX-License-Identifier: Apache-2.0
// See exchange.h.
#include "comm/shm/exchange.h"

#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "base/assert.h"
#include "base/futex.h"
#include "base/memory_file.h"

namespace kasane::comm::shm {
namespace {

/// A peer may fail, or take or make room, without waking our poll: look again that often.
constexpr int kPollMs = 10;

union ControlBuffer {
  cmsghdr align;
  char bytes[CMSG_SPACE(sizeof(int))];
};

std::string named(const OfferNote& note) {
  return "region " + std::to_string(note.region) + " of rank " + std::to_string(note.rank);
}

}  // namespace

Result<SharedMap> SharedMap::map(int fd, std::size_t bytes, const char* what) {
  struct stat st{};
  if (::fstat(fd, &st) != 0) return fail_errno(Errc::invalid_argument, std::string(what) + ": fstat of its descriptor " + std::to_string(fd));
  // Beyond the file's end a mapping raises SIGBUS at the first touch; better to hear of it here.
  if (static_cast<std::uint64_t>(st.st_size) < bytes) {
    return fail(Errc::invalid_argument, std::string(what) + ": its file has " + std::to_string(st.st_size) + " bytes, " +
                                            std::to_string(bytes) + " were promised");
  }
  void* p = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (p == MAP_FAILED) {
    return fail_errno(Errc::limit, std::string(what) + ": cannot map " + std::to_string(bytes) +
                                       " bytes (ranks times --space must fit 47 bits of address)");
  }
  // A core dump of this rank should not walk its peers' memory. Advice only: failure changes nothing.
  leave_out_of_core(p, bytes);
  return SharedMap(static_cast<std::byte*>(p), bytes);
}

SharedMap::~SharedMap() {
  if (data_ != nullptr) ::munmap(data_, bytes_);
}

OwnedFd::~OwnedFd() {
  if (fd_ >= 0) ::close(fd_);
}

Result<void> Exchange::run(RegionId id, int fd, std::size_t bytes, std::vector<SharedMap>& peers) {
  peers.clear();
  peers.resize(postbox.size());
  if (host.size() == 1) return {};
  Result<void> met = meet(id, fd, bytes, peers);
  if (!met) {
    // release: pairs with the acquire loads in meet() and wait_for_all(); the job cannot go on without this rank.
    area.failed.store(1, std::memory_order_release);
    futex_wake_all(area.attached[raw(id)]);
    return met;
  }
  return wait_for_all(id);
}

/// Sends our offer to every peer and maps every peer's, whichever is possible next.
Result<void> Exchange::meet(RegionId id, int fd, std::size_t bytes, std::vector<SharedMap>& peers) {
  const OfferNote ours{.region = raw(id), .rank = raw(self), .bytes = bytes};
  std::size_t sent = 1;        // offers go to the one after us first: not all to rank 0 at once
  std::size_t mapped = 1;
  while (sent < host.size() || mapped < host.size()) {
    if (area.failed.load(std::memory_order_acquire) != 0) {
      return fail(Errc::peer_lost, "attach of region " + std::to_string(raw(id)) + ": another rank failed in it, see its message");
    }
    bool moved = false;
    if (sent < host.size()) {
      auto gone = offer_to(after(sent), ours, fd);
      if (!gone) return tl::unexpected<Error>(std::move(gone).error());
      if (*gone) ++sent;
      moved = *gone;
    }
    auto got = receive();
    if (!got) return tl::unexpected<Error>(std::move(got).error());
    auto now_mapped = accept(id, bytes, peers);
    if (!now_mapped) return tl::unexpected<Error>(std::move(now_mapped).error());
    mapped += *now_mapped;
    if (!moved && !*got && *now_mapped == 0) wait_for_socket(after(sent));
  }
  return {};
}

Rank Exchange::after(std::size_t k) const {
  const auto own = static_cast<std::size_t>(std::lower_bound(host.begin(), host.end(), self) - host.begin());
  return host[(own + k) % host.size()];
}

bool Exchange::takes_part(std::uint32_t rank) const { return std::binary_search(host.begin(), host.end(), Rank{rank}); }

/// False if the peer's queue is full.
Result<bool> Exchange::offer_to(Rank peer, const OfferNote& note, int fd) {
  OfferNote copy = note;
  iovec part{.iov_base = &copy, .iov_len = sizeof(copy)};
  ControlBuffer control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes;
  message.msg_controllen = sizeof(control.bytes);
  cmsghdr* rights = CMSG_FIRSTHDR(&message);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(rights), &fd, sizeof(fd));
  if (::sendmsg(postbox[raw(peer)].out, &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return true;
  // ETOOMANYREFS: too many descriptors are under way on this host; they arrive, then there is room.
  if (errno == EAGAIN || errno == EINTR || errno == ENOBUFS || errno == ETOOMANYREFS) return false;
  return fail_errno(Errc::peer_lost, "cannot pass the descriptor of " + named(note) + " to rank " + std::to_string(raw(peer)));
}

/// Takes one offer off our socket into early; false if there is none.
Result<bool> Exchange::receive() {
  OfferNote note{};
  iovec part{.iov_base = &note, .iov_len = sizeof(note)};
  ControlBuffer control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes;
  message.msg_controllen = sizeof(control.bytes);
  const ssize_t n = ::recvmsg(postbox[raw(self)].in, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (n < 0) return fail_errno(Errc::io, "cannot receive a descriptor from a peer");
  const cmsghdr* rights = CMSG_FIRSTHDR(&message);
  if (rights == nullptr || rights->cmsg_type != SCM_RIGHTS || rights->cmsg_len != CMSG_LEN(sizeof(int))) {
    return fail(Errc::limit, "a peer's region arrived without its descriptor: raise the limit of open files (ulimit -n)");
  }
  int fd;
  std::memcpy(&fd, CMSG_DATA(rights), sizeof(fd));
  OwnedFd owned(fd);
  if (n != sizeof(note) || !takes_part(note.rank) || note.region >= kMaxRegions) {
    return fail(Errc::internal, "a malformed offer of " + named(note) + " (" + std::to_string(n) + " bytes)");
  }
  early.push_back({note, std::move(owned)});
  return true;
}

/// Maps every kept offer for region id; returns how many.
Result<std::uint32_t> Exchange::accept(RegionId id, std::size_t bytes, std::vector<SharedMap>& peers) {
  std::uint32_t count = 0;
  for (std::size_t i = 0; i < early.size();) {
    const OfferNote note = early[i].note;
    if (note.region != raw(id)) {
      ++i;
      continue;
    }
    if (note.bytes != bytes) {
      return fail(Errc::invalid_argument, named(note) + " has " + std::to_string(note.bytes) + " bytes, rank " +
                                              std::to_string(raw(self)) + "'s has " + std::to_string(bytes) + ": sizes must be equal");
    }
    if (peers[note.rank].data() != nullptr) return fail(Errc::internal, named(note) + " was offered twice");
    auto map = SharedMap::map(early[i].fd.get(), bytes, named(note).c_str());
    if (!map) return tl::unexpected<Error>(std::move(map).error());
    peers[note.rank] = std::move(*map);
    std::swap(early[i], early.back());
    early.pop_back();
    ++count;
  }
  return count;
}

void Exchange::wait_for_socket(Rank next_peer) const {
  pollfd fds[2] = {{.fd = postbox[raw(self)].in, .events = POLLIN, .revents = 0},
                   {.fd = next_peer == self ? -1 : postbox[raw(next_peer)].out, .events = POLLOUT, .revents = 0}};
  ::poll(fds, 2, kPollMs);
}

/// Nobody returns from attach() before everybody can reach every region: a handler on any rank may use them at once.
Result<void> Exchange::wait_for_all(RegionId id) {
  std::atomic<std::uint32_t>& count = area.attached[raw(id)];
  // acq_rel: our mapping comes before our count; all that others did before theirs comes before our return.
  std::uint32_t now = count.fetch_add(1, std::memory_order_acq_rel) + 1;
  futex_wake_all(count);
  while (now < host.size()) {
    if (area.failed.load(std::memory_order_acquire) != 0) {
      return fail(Errc::peer_lost, "attach of region " + std::to_string(raw(id)) + ": another rank failed in it, see its message");
    }
    futex_wait(count, now, std::int64_t{kPollMs} * 1'000'000);
    now = count.load(std::memory_order_acquire);  // acquire: pairs with the others' fetch_add
  }
  return {};
}

}  // namespace kasane::comm::shm
