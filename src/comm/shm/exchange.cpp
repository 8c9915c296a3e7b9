// SPDX-License-Identifier: Apache-2.0
// See exchange.h.
#include "comm/shm/exchange.h"

#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <string>

#include "base/futex.h"
#include "base/memory_file.h"

namespace kasane::comm::shm {
namespace {

/// A peer may fail without a wake-up for the others, so waiting ranks check that often.
constexpr int kLookMs = 50;
/// The bit of JobArea::attached that says that some rank failed. There are fewer ranks.
constexpr std::uint32_t kFailed = 1u << 31;

std::string named(RegionId id) { return "region " + std::to_string(static_cast<std::uint32_t>(id)); }
std::string named(RegionId id, Rank rank) { return named(id) + " of rank " + std::to_string(raw(rank)); }

}  // namespace

Result<SharedMap> SharedMap::map(int fd, std::size_t bytes, const char* what, std::uint64_t offset) {
  struct stat st{};
  if (::fstat(fd, &st) != 0)
    return fail_errno(Errc::invalid_argument,
                      std::string(what) + ": fstat of its descriptor " + std::to_string(fd));
  // Beyond the file's end a mapping raises SIGBUS at the first access. An error here is easier to understand.
  if (static_cast<std::uint64_t>(st.st_size) < offset + bytes) {
    return fail(Errc::invalid_argument, std::string(what) + ": its file has " + std::to_string(st.st_size) +
                                            " bytes, " + std::to_string(offset + bytes) + " were promised");
  }
  void* p = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd,
                   static_cast<off_t>(offset));
  if (p == MAP_FAILED) {
    return fail_errno(Errc::limit, std::string(what) + ": cannot map " + std::to_string(bytes) +
                                       " bytes (ranks times --space must fit 47 bits of address)");
  }
  // Keep peers' memory out of core dumps of this rank. Advice only: a failure changes nothing.
  leave_out_of_core(p, bytes);
  return SharedMap(static_cast<std::byte*>(p), bytes);
}

SharedMap::~SharedMap() {
  if (data_ != nullptr) ::munmap(data_, bytes_);
}

Result<void> Exchange::run(RegionId id, int fd, std::size_t bytes, std::vector<SharedMap>& peers) {
  peers.clear();
  if (fd >= 0) peers.resize(sockets.size());
  if (host.size() == 1) return {};
  Result<void> met = agree(id, fd, bytes);
  if (met && fd >= 0) met = self == host.front() ? lead(id, fd, bytes, peers) : follow(id, fd, bytes, peers);
  if (met) return wait_for_all(id);
  // release: pairs with the acquire loads of waiting ranks; the job cannot go on without this rank.
  area.failed.store(1, std::memory_order_release);
  area.attached[raw(id)].fetch_or(kFailed, std::memory_order_release);
  futex_wake_all(area.attached[raw(id)]);
  return met;
}

Result<void> Exchange::check_no_failure(RegionId id) const {
  if (area.failed.load(std::memory_order_acquire) == 0) return {};  // acquire: pairs with run()
  return fail(Errc::peer_lost, "attach of " + named(id) + ": another rank failed in it, see its message");
}

/// The first rank that comes stores how large the region is, and whether descriptors are passed; the others
/// compare.
Result<void> Exchange::agree(RegionId id, int fd, std::size_t bytes) {
  const std::uint64_t ours = std::uint64_t{bytes} << 1 | (fd >= 0);
  std::uint64_t first = 0;
  // relaxed: no other data depends on the word.
  if (area.agreed[raw(id)].compare_exchange_strong(first, ours, std::memory_order_relaxed) || first == ours)
    return {};
  if (first >> 1 == bytes)
    return fail(
        Errc::invalid_argument,
        named(id, self) + " comes from make_memory(), or another rank's does: either all or none may");
  return fail(Errc::invalid_argument, named(id, self) + " has " + std::to_string(bytes) +
                                          " bytes, another rank's has " + std::to_string(first >> 1) +
                                          ": sizes must be equal");
}

/// The host's first rank: collects all descriptors, and sends the table to each other rank.
Result<void> Exchange::lead(RegionId id, int fd, std::size_t bytes, std::vector<SharedMap>& peers) {
  std::vector<OwnedFd> collected(host.size());
  std::vector<int> table{fd};
  table.resize(host.size(), -1);
  for (std::size_t missing = host.size() - 1; missing > 0; --missing) {
    auto received = receive(id);
    KASANE_TRY(received);
    const std::size_t position = received->header.first;
    if (received->fds.size() != 1 || table[position] >= 0)
      return fail(Errc::internal, named(id, host[position]) + " was offered twice");
    auto map_of_it = map(id, position, received->fds[0].get(), bytes);
    KASANE_TRY(map_of_it);
    peers[raw(host[position])] = std::move(*map_of_it);
    collected[position] = std::move(received->fds[0]);
    table[position] = collected[position].get();
  }
  for (std::size_t to = 1; to < host.size(); ++to) {
    for (std::size_t first = 0; first < table.size(); first += kMostDescriptors) {
      const auto part =
          std::span<const int>(table).subspan(first, std::min(kMostDescriptors, table.size() - first));
      KASANE_TRY(send(host[to], {raw(id), static_cast<std::uint32_t>(first)}, part));
    }
  }
  return {};
}

/// Any other rank: sends its descriptor, and maps those of the table as they come.
Result<void> Exchange::follow(RegionId id, int fd, std::size_t bytes, std::vector<SharedMap>& peers) {
  const auto own = static_cast<std::size_t>(std::lower_bound(host.begin(), host.end(), self) - host.begin());
  KASANE_TRY(send(host.front(), {raw(id), static_cast<std::uint32_t>(own)}, std::span(&fd, 1)));
  for (std::size_t position = 0; position < host.size();) {
    auto received = receive(id);
    KASANE_TRY(received);
    if (received->header.first != position || received->fds.size() > host.size() - position) {
      return fail(Errc::internal, "a table of " + named(id) + " that begins at " +
                                      std::to_string(received->header.first) + " instead of " +
                                      std::to_string(position));
    }
    for (const OwnedFd& theirs : received->fds) {
      if (position != own) {
        auto map_of_it = map(id, position, theirs.get(), bytes);
        KASANE_TRY(map_of_it);
        peers[raw(host[position])] = std::move(*map_of_it);
      }
      ++position;
    }
  }
  return {};
}

Result<SharedMap> Exchange::map(RegionId id, std::size_t position, int fd, std::size_t bytes) const {
  return SharedMap::map(fd, bytes, named(id, host[position]).c_str());
}

Result<void> Exchange::send(Rank to, const DescriptorHeader& header, std::span<const int> fds) {
  // Waits for room, with a time limit (create_job).
  while (send_with(sockets[raw(to)].out, std::as_bytes(std::span(&header, 1)), fds) < 0) {
    // ETOOMANYREFS: too many descriptors are in flight on this host. They arrive, then there is room.
    const bool full = errno == ENOBUFS || errno == ETOOMANYREFS;
    if (!full && errno != EAGAIN && errno != EINTR) {
      return fail_errno(Errc::peer_lost, "cannot pass descriptors of " + named(RegionId{header.region}) +
                                             " to rank " + std::to_string(raw(to)));
    }
    KASANE_TRY(check_no_failure(RegionId{header.region}));
    if (full) ::poll(nullptr, 0, 1);
  }
  return {};
}

Result<Exchange::ReceivedDescriptors> Exchange::receive(RegionId id) {
  ReceivedDescriptors received;
  const auto header = std::as_writable_bytes(std::span(&received.header, 1));
  ssize_t n = -1;
  int flags = 0;
  for (;;) {
    flags = MSG_DONTWAIT | MSG_TRUNC;  // n is the size of what was sent, also where that exceeds the header
    n = receive_with(sockets[raw(self)].in, header, flags, received.fds);
    if (n >= 0) break;
    if (errno != EAGAIN && errno != EINTR)
      return fail_errno(Errc::io, "cannot receive descriptors from a peer");
    KASANE_TRY(check_no_failure(id));
    pollfd arrival{.fd = sockets[raw(self)].in, .events = POLLIN, .revents = 0};
    ::poll(&arrival, 1, kLookMs);
  }
  if (n != sizeof(received.header) || received.header.region != raw(id) ||
      received.header.first >= host.size()) {
    return fail(Errc::internal, "a malformed message of " + std::to_string(n) + " bytes about region " +
                                    std::to_string(received.header.region) + " in attach of " + named(id));
  }
  if (received.fds.empty() || (flags & MSG_CTRUNC) != 0) {
    return fail(
        Errc::limit,
        "peers' regions arrived without all of their descriptors: raise the limit of open files (ulimit -n)");
  }
  return received;
}

/// No rank returns from attach() before every rank can reach every region: a handler on any rank may use one
/// at once.
Result<void> Exchange::wait_for_all(RegionId id) {
  std::atomic<std::uint32_t>& count = area.attached[raw(id)];
  // acq_rel: this rank's mapping comes before its count; the other ranks' work before their counts comes
  // before the return.
  std::uint32_t now = count.fetch_add(1, std::memory_order_acq_rel) + 1;
  // Only the last rank, or a rank that fails, wakes the others: else each arrival would wake all of them.
  if (now == host.size()) futex_wake_all(count);
  while (now < host.size()) {
    futex_wait(count, now, -1);
    now = count.load(std::memory_order_acquire);  // acquire: pairs with the others' fetch_add
  }
  return (now & kFailed) != 0 ? check_no_failure(id) : Result<void>();
}

}  // namespace kasane::comm::shm
