// SPDX-License-Identifier: Apache-2.0
#include "comm/collectives/over_transport.h"

#include <sched.h>

#include <algorithm>
#include <cstring>

namespace kasane::comm {

/// Makes progress on both transports.
struct OverTransport::WaitsForBoth final : Waiter {
  explicit WaitsForBoth(OverTransport& o) noexcept : over(o) {}
  void wait(bool (*ready)(const void*), const void* arg) override {
    while (!ready(arg)) {
      over.transport_.progress();
      over.progress_built();
      ::sched_yield();
    }
  }
  OverTransport& over;
};

void OverTransport::gather(std::span<const std::byte> mine, std::span<std::byte> all) {
  if (!has_built()) return collectives_.allgather(mine, all);
  WaitsForBoth waiter(*this);
  collectives_.allgather(mine, all, waiter);
}

Result<std::vector<std::string>> OverTransport::allgather(std::string_view mine) {
  const std::size_t n = ranks();
  // Sizes first; then every rank sends as many bytes as the longest message has.
  const std::uint64_t size = mine.size();
  std::vector<std::uint64_t> sizes(n);
  gather(std::as_bytes(std::span(&size, 1)), std::as_writable_bytes(std::span(sizes)));
  const std::uint64_t longest = *std::max_element(sizes.begin(), sizes.end());
  std::vector<std::string> all(n);
  if (longest == 0) return all;
  std::vector<std::byte> padded(longest), everything(longest * n);
  if (size != 0) std::memcpy(padded.data(), mine.data(), size);
  gather(padded, everything);
  for (std::size_t r = 0; r < n; ++r)
    all[r].assign(reinterpret_cast<const char*>(everything.data() + r * longest), sizes[r]);
  return all;
}

}  // namespace kasane::comm
