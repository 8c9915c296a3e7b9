// SPDX-License-Identifier: Apache-2.0
// What ranks exchange before (and beside) the transport that they build: addresses, keys, locations. Every
// rank's bytes go to all ranks; it need not be fast. It uses the host's shared memory for ranks that were
// forked together (collectives/over_transport.h), and what their launcher gives to others: an MPI, PMIx, an
// agent of kasane run --hosts.
//
// Thread safety: one thread a rank; collective: every rank makes the same calls in the same order. At start
// and in attach() only.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "comm/waiter.h"

namespace kasane::comm {

class OutOfBand {
 public:
  virtual ~OutOfBand() = default;
  [[nodiscard]] virtual Rank rank() const noexcept = 0;
  [[nodiscard]] virtual std::uint32_t ranks() const noexcept = 0;
  /// Every rank's bytes, in rank order; sizes may differ and be 0. Also a barrier.
  virtual Result<std::vector<std::string>> allgather(std::string_view mine) = 0;
  /// Tells a launcher that wants to know that this process ends as it should. No call follows.
  virtual void end() noexcept {}

  /// The transport that the ranks have built with this, or null. A rank that waits here makes progress on it,
  /// too: its last messages may still be outstanding, and a rank that waits for them does not come here
  /// before.
  void set_built(Transport* built) noexcept { built_ = built; }

 protected:
  void progress_built() noexcept {
    if (built_ != nullptr) built_->progress();
  }
  [[nodiscard]] bool has_built() const noexcept { return built_ != nullptr; }

 private:
  Transport* built_ = nullptr;
};

}  // namespace kasane::comm
