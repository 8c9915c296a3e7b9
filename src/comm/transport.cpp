// SPDX-License-Identifier: Apache-2.0
#include "comm/transport.h"

#include <string>

#include "base/memory_file.h"

namespace kasane::comm {

Result<std::byte*> Transport::make_memory(RegionId id, std::size_t bytes) {
  return map_sparse(bytes, "region " + std::to_string(static_cast<std::uint32_t>(id)));
}

}  // namespace kasane::comm
