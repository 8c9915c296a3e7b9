// SPDX-License-Identifier: Apache-2.0
// --check races: reports on standard error which words two ranks changed without a fence between, once a
// word. dsm/race_check.h says what is found and what is not.
// Thread safety: as warn().
#pragma once

#include "base/ids.h"
#include "dsm/race_check.h"
#include "mem/space.h"
#include "runtime/reported_once.h"

namespace kasane::runtime {

class RaceReport final : public dsm::RaceListener {
 public:
  RaceReport(const mem::Space& space, Rank rank) noexcept : space_(space), rank_(rank) {}

  void race(const dsm::Race&) noexcept override;

 private:
  const mem::Space& space_;
  Rank rank_;
  ReportedOnce<64> reported_;  ///< addresses of words
};

}  // namespace kasane::runtime
