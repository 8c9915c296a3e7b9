// SPDX-License-Identifier: Apache-2.0
// One step of a machine that the walks of synchronisation run (ult/sync_record_step.h).
// Thread safety: pure.
#pragma once

#include <cstdint>

#include "ult/sync_record_step.h"

namespace kasane::ult::test {

/// Its next access, if it has one, done by perform(step). True if the machine has ended, with its outcome in
/// result; it is set back then, so that equal situations are equal states.
template <class Machine, class Perform>
bool advance_machine(Machine& m, std::uint64_t& result, const Perform& perform) {
  SyncStep step = m.next(result);
  if (step.kind != SyncStep::Kind::done) {
    result = perform(step);
    Machine peek = m;
    step = peek.next(result);
    if (step.kind != SyncStep::Kind::done) return false;
  }
  result = step.value;
  m = Machine();
  return true;
}

}  // namespace kasane::ult::test
