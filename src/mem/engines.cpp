// SPDX-License-Identifier: Apache-2.0
#include "mem/engines.h"

#include <utility>

#include "mem/mprotect_engine.h"
#include "mem/uffd_engine.h"
#include "mem/userfaultfd.h"
#include "traps/caught_calls.h"

namespace kasane::mem {

namespace {

EngineInfo offered(std::string_view name, Delivery delivery, const char* how) {
  std::string missing = probe_userfaultfd(delivery);
  const bool available = missing.empty();
  return {name, available, available ? how : std::move(missing)};
}

tl::unexpected<Error> refused(Errc code, std::string_view name, const std::string& why) {
  return fail(code, "the fault engine " + std::string(name) +
                        " (--faults, KASANE_FAULTS) cannot be had here: " + why +
                        "; auto takes what can be had");
}

/// What auto takes where system calls cannot be caught: the kernel then waits for absent memory.
bool takes_thread() {
  static const bool takes = !traps::calls_can_be_caught() && probe_userfaultfd(Delivery::thread).empty();
  return takes;
}

}  // namespace

std::vector<EngineInfo> engines() {
  return {
      offered(kUffd, Delivery::in_place, "userfaultfd, its faults as SIGBUS in place; needs no privileges"),
      {"mprotect", true, "SIGSEGV and mprotect; any kernel"},
      offered(kUffdThread, Delivery::thread,
              "userfaultfd, its faults to a thread, so that system calls wait for absent memory; slower, "
              "for kernels that cannot catch calls")};
}

std::vector<std::string> engine_choices() {
  return {"auto", std::string(kUffd), "mprotect", std::string(kUffdThread)};
}

Result<std::string_view> engine_for(std::string_view name) {
  if (name == "auto" && takes_thread()) return kUffdThread;
  for (const EngineInfo& e : engines()) {
    if (name == "auto" ? e.available && e.name != kUffdThread : e.name == name && e.available) return e.name;
    if (e.name == name) return refused(Errc::unsupported, name, e.reason);
  }
  // Mprotect is always available, so auto never comes here
  return fail(Errc::invalid_argument, "there is no fault engine " + std::string(name));
}

Result<std::unique_ptr<FaultEngine>> make_fault_engine(const Space& space, std::string_view name) {
  if (name == "auto" && takes_thread()) name = kUffdThread;
  if (name == "mprotect") return make_mprotect_engine(space);
  auto uffd = make_uffd_engine(space, name == kUffdThread ? Delivery::thread : Delivery::in_place);
  if (uffd) return uffd;
  if (name == "auto") return make_mprotect_engine(space);
  return refused(uffd.error().code, name, uffd.error().message);
}

}  // namespace kasane::mem
