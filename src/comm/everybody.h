// SPDX-License-Identifier: Apache-2.0
// A step that may fail on one rank alone, and after which nobody may go on, or wait, without it. Start and attach() only; see OutOfBand for threads.
#pragma once

#include <string>
#include <string_view>

#include "comm/out_of_band.h"

namespace kasane::comm {

/// Collective. mine: how the step went here. The result: mine if that is an error, else the first other rank's, named; what was tried stands before it.
inline Result<void> everybody(OutOfBand& all, const Result<void>& mine, std::string_view what) {
  auto errors = all.allgather(mine ? std::string() : mine.error().message);
  KASANE_TRY(errors);
  if (!mine) return mine;
  for (std::size_t r = 0; r < errors->size(); ++r) {
    if (!(*errors)[r].empty()) return fail(Errc::peer_lost, std::string(what) + " failed on rank " + std::to_string(r) + ": " + (*errors)[r]);
  }
  return {};
}

}  // namespace kasane::comm
