// SPDX-License-Identifier: Apache-2.0
#include "mem/engines.h"

#include <utility>

#include "mem/mprotect_engine.h"
#include "mem/uffd_engine.h"
#include "mem/userfaultfd.h"

namespace kasane::mem {

std::vector<EngineInfo> engines() {
  std::string missing = probe_userfaultfd();
  const bool offered = missing.empty();
  return {{"uffd", offered, offered ? "userfaultfd, its faults as SIGBUS in place; needs no privileges" : std::move(missing)},
          {"mprotect", true, "SIGSEGV and mprotect; any kernel"}};
}

std::vector<std::string> engine_choices() { return {"auto", "uffd", "mprotect"}; }

Result<std::unique_ptr<FaultEngine>> make_fault_engine(const Space& space, std::string_view name) {
  if (name == "mprotect") return make_mprotect_engine(space);
  auto uffd = make_uffd_engine(space);
  if (uffd) return uffd;
  if (name == "auto") return make_mprotect_engine(space);
  return fail(uffd.error().code, "the fault engine uffd (--faults, KASANE_FAULTS) cannot be had here: " + uffd.error().message + "; auto takes what can be had");
}

}  // namespace kasane::mem
