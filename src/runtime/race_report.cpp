// SPDX-License-Identifier: Apache-2.0
#include "runtime/race_report.h"

#include <bit>

#include "runtime/crash_stack.h"
#include "runtime/warn.h"

namespace kasane::runtime {

void RaceReport::race(const dsm::Race& race) noexcept {
  if (!reported_.first(race.offset)) return;
  // From the first raced byte to the last: what the program most likely stored.
  const auto skipped = static_cast<unsigned>(std::countr_zero(race.bytes)),
             width = 64 - skipped - static_cast<unsigned>(std::countl_zero(race.bytes));
  const auto part = [&](std::uint64_t word) { return word >> skipped & (~std::uint64_t{0} >> (64 - width)); };
  CrashText text;
  text.add("kasane: rank ")
      .decimal(raw(rank_))
      .add(": data race: two ranks changed the ")
      .decimal(width / 8)
      .add(width == 8 ? " byte at " : " bytes at ");
  warn(describe_data(text, space_.v(race.offset) + skipped / 8)
           .add(" and no fence lies between: from ")
           .hex(part(race.before))
           .add(" to ")
           .hex(part(race.mine))
           .add(" here, to ")
           .hex(part(race.theirs))
           .add(" elsewhere. Order the two by a join, a lock, a barrier or kasane::atomic.\n"));
}

}  // namespace kasane::runtime
