// SPDX-License-Identifier: Apache-2.0
// MPI-3 passive-target windows over the regions, where they are what their name says. An MPI may refuse windows (Open MPI 4.1 over TCP does), may pin
// what they cover (a sparse tebibyte would be populated), or may need the target inside the MPI for a put to arrive; then messages, which the owner's
// service thread executes, are no worse and always work. So a window is tried on a scratch page first, by experiment and on all ranks alike.
//
// Thread safety: probe(), open() and close() are collective, one thread a rank; the rest under the library's lock.
#pragma once

#include <array>
#include <string>

#include "comm/mpi/library.h"
#include "comm/transport.h"

namespace kasane::comm::mpi {

class Windows {
 public:
  /// What the experiment has shown; the same on every rank.
  struct Findings {
    bool created = false;     ///< windows can be made at all
    bool pins = false;        ///< making one populated the memory under it
    bool one_sided = false;   ///< a put and a get complete while the target sleeps outside the MPI
  };
  static Result<Findings> probe(Library&, Communicator);

  Windows(Library& library, Communicator channel) noexcept : library_(library), channel_(channel) {}

  /// On every rank or on none; an MPI that refuses is no error: then has() stays false.
  Result<void> open(RegionId, std::byte* base, std::size_t bytes);
  void close();
  [[nodiscard]] bool has(std::uint16_t region) const noexcept { return open_[region].load(std::memory_order_acquire); }  // acquire: sees the handle
  [[nodiscard]] Window of(std::uint16_t region) const noexcept { return windows_[region]; }

 private:
  Library& library_;
  Communicator channel_;
  std::array<Window, kMaxRegions> windows_{};
  std::array<std::atomic<bool>, kMaxRegions> open_{};
};

}  // namespace kasane::comm::mpi
