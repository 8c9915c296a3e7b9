// SPDX-License-Identifier: Apache-2.0

#include "mem/spill_engine.h"
#include "mem/spill_threads.h"
#include "mem/spill_uring.h"

namespace kasane::mem {

std::vector<EngineInfo> spill_engines() {
  const auto uring = make_spill_uring(1);
  return {{"io_uring", uring.has_value(), uring ? "io_uring, direct" : uring.error().message},
          {"threads", true, "pread and pwrite by threads; any kernel"}};
}

Result<std::unique_ptr<SpillEngine>> make_spill_engine(std::string_view name, unsigned depth) {
  if (name == "threads") return make_spill_threads(depth);
  auto uring = make_spill_uring(depth);
  if (uring || name != "auto") return uring;
  return make_spill_threads(depth);
}

}  // namespace kasane::mem
