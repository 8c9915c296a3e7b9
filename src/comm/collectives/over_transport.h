// SPDX-License-Identifier: Apache-2.0
// The exchange before a transport is built, over one that exists: that of the host, say.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/collectives/collectives.h"
#include "comm/out_of_band.h"

namespace kasane::comm {

class OverTransport final : public OutOfBand {
 public:
  /// collectives: of the same transport; both outlive this.
  OverTransport(Transport& transport, Collectives& collectives) noexcept
      : transport_(transport), collectives_(collectives) {}
  [[nodiscard]] Rank rank() const noexcept override { return transport_.rank(); }
  [[nodiscard]] std::uint32_t ranks() const noexcept override { return transport_.ranks(); }
  Result<std::vector<std::string>> allgather(std::string_view mine) override;

 private:
  struct WaitsForBoth;
  void gather(std::span<const std::byte> mine, std::span<std::byte> all);
  Transport& transport_;
  Collectives& collectives_;
};

}  // namespace kasane::comm
