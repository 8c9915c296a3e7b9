// SPDX-License-Identifier: Apache-2.0
// How ranks of a host map each other's regions: every rank passes its memfd to every peer by SCM_RIGHTS through the
// peer's datagram socket, maps what it receives, and waits until all ranks have mapped all.
//
// The sockets' queues are short (net.unix.max_dgram_qlen, 10 by default), so sending and receiving take turns and neither ever
// blocks alone: with blocking sends, 12 ranks that send before they receive would stand still for ever.
// Offers for a later region may arrive early, from peers that have finished this one; they are kept for its attach.
//
// Thread safety: one thread a rank (attach is collective). Runs at start only: allocates, and waits in poll(2).
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "base/result.h"
#include "comm/bootstrap/job.h"
#include "comm/shm/layout.h"

namespace kasane::comm::shm {

/// A shared mapping that this process unmaps.
class SharedMap {
 public:
  /// Maps [0, bytes) of fd, read-write, without reserving memory. what names it in the error.
  static Result<SharedMap> map(int fd, std::size_t bytes, const char* what);
  SharedMap() = default;
  SharedMap(SharedMap&& o) noexcept : data_(std::exchange(o.data_, nullptr)), bytes_(std::exchange(o.bytes_, 0)) {}
  SharedMap& operator=(SharedMap&& o) noexcept {
    std::swap(data_, o.data_);
    std::swap(bytes_, o.bytes_);
    return *this;
  }
  ~SharedMap();
  [[nodiscard]] std::byte* data() const noexcept { return data_; }

 private:
  SharedMap(std::byte* data, std::size_t bytes) noexcept : data_(data), bytes_(bytes) {}
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// A descriptor that this process closes.
class OwnedFd {
 public:
  explicit OwnedFd(int fd = -1) noexcept : fd_(fd) {}
  OwnedFd(OwnedFd&& o) noexcept : fd_(std::exchange(o.fd_, -1)) {}
  OwnedFd& operator=(OwnedFd&& o) noexcept {
    std::swap(fd_, o.fd_);
    return *this;
  }
  ~OwnedFd();
  [[nodiscard]] int get() const noexcept { return fd_; }

 private:
  int fd_;
};

/// What one rank tells another about its region.
struct OfferNote {
  std::uint32_t region;
  std::uint32_t rank;
  std::uint64_t bytes;
};
struct Offer {
  OfferNote note;
  OwnedFd fd;
};

struct Exchange {
  Rank self;
  const std::vector<Rank>& host;                 ///< the ranks that take part: those of this host, ascending, self among them
  const std::vector<Job::Postbox>& postbox;      ///< by rank of the job
  std::vector<Offer>& early;
  JobArea& area;

  /// Collective among the host's ranks. Fills peers[r] with rank r's mapping (none for our own, and for other hosts'). On failure every
  /// participant's call fails.
  Result<void> run(RegionId id, int fd, std::size_t bytes, std::vector<SharedMap>& peers);

 private:
  Result<void> meet(RegionId id, int fd, std::size_t bytes, std::vector<SharedMap>& peers);
  Result<void> wait_for_all(RegionId id);
  Result<bool> offer_to(Rank peer, const OfferNote& note, int fd);
  Result<bool> receive();
  Result<std::uint32_t> accept(RegionId id, std::size_t bytes, std::vector<SharedMap>& peers);
  void wait_for_socket(Rank next_peer) const;
  /// The k-th participant after this one, going round; the 0-th is this one itself.
  [[nodiscard]] Rank after(std::size_t k) const;
  [[nodiscard]] bool takes_part(std::uint32_t rank) const;
};

}  // namespace kasane::comm::shm
