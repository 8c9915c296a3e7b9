// SPDX-License-Identifier: Apache-2.0
// See mailbox.h.
#include "comm/mailbox.h"

#include <string>

namespace kasane::comm {

Result<void> MailboxTransport::may_attach(RegionId id, const std::byte* local, std::size_t bytes) const {
  const std::string number = std::to_string(raw(id));
  if (raw(id) >= kMaxRegions || bytes == 0 || local == nullptr) {
    return fail(Errc::invalid_argument, "attach of region " + number + " with " + std::to_string(bytes) +
                                            " bytes: ids go up to " + std::to_string(kMaxRegions - 1) +
                                            ", bytes from 1");
  }
  // relaxed: the contract forbids two threads to attach one id at once.
  if (regions_[raw(id)].bytes.load(std::memory_order_relaxed) == 0) return {};
  return fail(Errc::invalid_argument, "region " + number + " is attached already");
}

std::vector<std::byte*>& MailboxTransport::new_region(RegionId id, std::byte* local) {
  std::vector<std::byte*>& base = regions_[raw(id)].base;
  base.assign(ranks(), nullptr);
  base[raw(rank())] = local;
  return base;
}

}  // namespace kasane::comm
