// SPDX-License-Identifier: Apache-2.0
// What ranks tell each other before (and beside) the transport that they build: addresses, keys, who is where. Everybody's bytes go to
// everybody; slow is good enough. Over the host's shared memory for ranks that were forked together (OverTransport), over MPI for ranks that mpirun started.
//
// Thread safety: one thread a rank; collective: every rank makes the same calls in the same order. At start and in attach() only.
#pragma once

#include <cstddef>
#include <span>
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
  /// Every rank's bytes, in rank order; sizes may differ, also be 0. Acts as a barrier too.
  virtual Result<std::vector<std::string>> allgather(std::string_view mine) = 0;

  /// What the ranks have built by this: while a rank waits here, it moves that on, too. What was sent last may
  /// still be on its way, and who waits for it does not come here before. Null: nothing.
  void keep_moving(Transport* built) noexcept { built_ = built; }

 protected:
  void move_on() noexcept {
    if (built_ != nullptr) built_->progress();
  }
  [[nodiscard]] bool has_built() const noexcept { return built_ != nullptr; }

 private:
  Transport* built_ = nullptr;
};

class Collectives;

/// Over a transport that works already.
class OverTransport final : public OutOfBand {
 public:
  /// collectives: of the same transport; both outlive this.
  OverTransport(Transport& transport, Collectives& collectives) noexcept : transport_(transport), collectives_(collectives) {}
  [[nodiscard]] Rank rank() const noexcept override { return transport_.rank(); }
  [[nodiscard]] std::uint32_t ranks() const noexcept override { return transport_.ranks(); }
  Result<std::vector<std::string>> allgather(std::string_view mine) override;

 private:
  void gather(std::span<const std::byte> mine, std::span<std::byte> all);
  Transport& transport_;
  Collectives& collectives_;
};

}  // namespace kasane::comm
