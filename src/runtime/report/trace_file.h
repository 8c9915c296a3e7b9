// SPDX-License-Identifier: Apache-2.0
// --trace FILE: what all threads of all ranks did when, as one file in the trace event format of Chrome,
// which Perfetto reads too: a process a rank; tracks of a thread are what it was in (base/trace.h).
//
//   each rank: a log a thread (base/trace.h) in region kTrace ─ at the end ─▶ rank 0 reads all, writes FILE
//
// Clocks: the ranks of one host have the same; another host's offset is computed from the moment at which all
// ranks left one barrier at the start, to some microseconds.
// Thread safety: by the threads that construct and end the runtime.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/ids.h"
#include "base/result.h"
#include "base/trace.h"
#include "comm/blocking.h"
#include "mem/space.h"

namespace kasane::runtime {

class TraceRegion {
 public:
  /// The size for a rank with so many threads that have counters.
  [[nodiscard]] static std::size_t bytes(std::uint32_t threads, std::uint64_t events) noexcept {
    return kHeaderBytes + threads * TraceLog::bytes(events);
  }

  /// Fails if the file cannot be written, so that this is found before the run.
  static Result<> can_write(const std::string& path);

  /// memory: zeros. Assigns a log to every block of counters.
  TraceRegion(std::byte* memory, Counters* counters, std::uint32_t threads, std::uint64_t events) noexcept;
  /// Called when all ranks have left the barrier that sets the clocks.
  void note_start() noexcept;

  struct Job {
    std::uint32_t ranks;
    std::function<bool(Rank)> same_clock;  ///< whether the rank is on this host
    const mem::AddressMap& space;
  };
  /// Reads the logs of all ranks and writes them to the file at path. A line for the user where events were
  /// lost.
  Result<std::string> write(const std::string& path, comm::Blocking&, const Job&) const;

 private:
  static constexpr std::size_t kHeaderBytes = 64;
  class Writer;

  std::byte* memory_;
  std::uint32_t threads_;
  std::uint64_t events_;
};

}  // namespace kasane::runtime
