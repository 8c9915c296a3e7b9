// SPDX-License-Identifier: Apache-2.0
// MPI-3 passive-target windows over the regions, where they are truly one-sided. An MPI may refuse windows
// (Open MPI 4.1 over TCP does), may pin what they cover (a sparse tebibyte would be populated), or may need
// the target inside the MPI for a put to arrive. So a window is tried on scratch memory first, and the result
// decides for all ranks alike.
//
// Thread safety: probe(), open() and close_locked() are collective, one thread a rank; the rest under the
// library's lock.
#pragma once

#include <array>
#include <atomic>

#include "comm/mpi/library.h"
#include "comm/transport.h"

namespace kasane::comm::mpi {

class Windows {
 public:
  /// Makes the experiment, once for each library.
  static Result<WindowFindings> probe(Library&, Communicator);

  Windows(Library& library, Communicator channel) noexcept : library_(library), channel_(channel) {}

  /// Opens a window on all ranks or on none. If the MPI refuses, that is no error: has() stays false.
  Result<void> open(RegionId, std::byte* base, std::size_t bytes);
  /// Under the lock.
  void close_locked() noexcept;
  // acquire: sees the handle.
  [[nodiscard]] bool has(std::uint16_t region) const noexcept {
    return open_[region].load(std::memory_order_acquire);
  }
  [[nodiscard]] Window of(std::uint16_t region) const noexcept { return windows_[region]; }

 private:
  Library& library_;
  Communicator channel_;
  std::array<Window, kMaxRegions> windows_{};
  std::array<std::atomic<bool>, kMaxRegions> open_{};
};

}  // namespace kasane::comm::mpi
