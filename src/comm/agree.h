// SPDX-License-Identifier: Apache-2.0
// For a step that may fail on one rank alone: exchanges its result, so that no rank goes on, or waits for a
// rank that failed. At start and in attach() only; thread safety as OutOfBand.
#pragma once

#include <string>
#include <string_view>

#include "comm/out_of_band.h"

namespace kasane::comm {

/// Collective. mine: the step's result here. Returns mine if that is an error, else the first error of
/// another rank, with the rank's number and what was tried.
inline Result<void> agree(OutOfBand& all, const Result<void>& mine, std::string_view what) {
  auto errors = all.allgather(mine ? std::string() : mine.error().message);
  KASANE_TRY(errors);
  if (!mine) return mine;
  for (std::size_t r = 0; r < errors->size(); ++r) {
    if (!(*errors)[r].empty())
      return fail(Errc::peer_lost,
                  std::string(what) + " failed on rank " + std::to_string(r) + ": " + (*errors)[r]);
  }
  return {};
}

}  // namespace kasane::comm
