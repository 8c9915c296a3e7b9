// SPDX-License-Identifier: Apache-2.0
// How the ranks of a host map each other's regions. Memory that the transport made lies in the job's file,
// which all ranks have: nothing is passed. For memory with a file of its own, the host's first rank collects
// all descriptors (SCM_RIGHTS through its datagram socket) and passes the table of them to each other rank:
// two messages a rank. In both cases no rank returns before all ranks have mapped all regions.
//
//   rank r ── descriptor of r ──▶ first rank ── descriptors of all, by position ──▶ rank r
//
// The first rank's socket queues few messages (net.unix.max_dgram_qlen, 10 by default). Senders wait for room
// in sendmsg(), which wakes one of them at a time.
//
// Thread safety: one thread a rank (attach is collective). Runs at start only: allocates, and waits in system
// calls.
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "base/result.h"
#include "comm/bootstrap/descriptor_messages.h"
#include "comm/bootstrap/job.h"
#include "comm/shm/layout.h"

namespace kasane::comm::shm {

/// A shared mapping that this process unmaps.
class SharedMap {
 public:
  /// Maps [offset, offset + bytes) of fd, read-write, without reserving memory. what names it in the error.
  static Result<SharedMap> map(int fd, std::size_t bytes, const char* what, std::uint64_t offset = 0);
  SharedMap() = default;
  SharedMap(SharedMap&& o) noexcept
      : data_(std::exchange(o.data_, nullptr)), bytes_(std::exchange(o.bytes_, 0)) {}
  SharedMap& operator=(SharedMap&& o) noexcept {
    std::swap(data_, o.data_);
    std::swap(bytes_, o.bytes_);
    return *this;
  }
  ~SharedMap();
  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  /// Gives the mapping up: it stays for as long as the process lives.
  std::byte* keep() && noexcept { return std::exchange(data_, nullptr); }

 private:
  SharedMap(std::byte* data, std::size_t bytes) noexcept : data_(data), bytes_(bytes) {}
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

struct Exchange {
  Rank self;
  const std::vector<Rank>& host;                ///< the ranks of this host, ascending, self among them
  const std::vector<Job::SocketPair>& sockets;  ///< by rank of the job
  JobArea& area;

  /// Collective among the host's ranks. fd < 0: memory from make_memory(), nothing is passed. Else fills
  /// peers[r] with rank r's mapping; those of this rank and of other hosts stay empty. If one rank fails, the
  /// call fails on all of them.
  Result<void> run(RegionId id, int fd, std::size_t bytes, std::vector<SharedMap>& peers);

 private:
  /// Precedes the descriptors in one message: they belong to the ranks in positions first, first + 1, …
  struct DescriptorHeader {
    std::uint32_t region, first;
  };
  struct ReceivedDescriptors {
    DescriptorHeader header{};
    std::vector<OwnedFd> fds;
  };

  Result<void> agree(RegionId id, int fd, std::size_t bytes);
  Result<void> lead(RegionId id, int fd, std::size_t bytes, std::vector<SharedMap>& peers);
  Result<void> follow(RegionId id, int fd, std::size_t bytes, std::vector<SharedMap>& peers);
  Result<void> wait_for_all(RegionId id);
  Result<void> send(Rank to, const DescriptorHeader& header, std::span<const int> fds);
  Result<ReceivedDescriptors> receive(RegionId id);
  Result<SharedMap> map(RegionId id, std::size_t position, int fd, std::size_t bytes) const;
  Result<void> check_no_failure(RegionId id) const;
};

}  // namespace kasane::comm::shm
