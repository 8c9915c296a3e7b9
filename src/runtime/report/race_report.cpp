// SPDX-License-Identifier: Apache-2.0
#include "runtime/report/race_report.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <span>
#include <string>

#include "diagnostics/demangle.h"
#include "diagnostics/source_lines.h"
#include "mem/block_table.h"
#include "runtime/rank/warn.h"
#include "runtime/report/crash_stack.h"
#include "runtime/report/places.h"

namespace kasane::runtime {
namespace {

void add_store(CrashText& text, std::uintptr_t code) noexcept {
  if (code != 0) describe(text.add(", stored in "), {.address = code, .exact = false, .times = 1});
}

}  // namespace

RaceReport::Store& RaceReport::store_of(std::uint64_t offset) noexcept {
  return stores_[raw(mem::block_of(offset)) % stores_.size()];
}

void RaceReport::note_store(std::uint64_t offset) noexcept {
  // relaxed: a hint. Between the two another thread's may take the entry.
  Store& store = store_of(offset);
  store.code.store(place_in_program(), std::memory_order_relaxed);
  store.block.store(raw(mem::block_of(offset)), std::memory_order_relaxed);
}

/// Null: the place is known, or there is no room for it. acquire and release of the lock: the places.
const RaceReport::RacedRange* RaceReport::add(const dsm::Race& race) noexcept {
  while (lock_.test_and_set(std::memory_order_acquire)) __builtin_ia32_pause();
  const auto all = std::span(ranges_).first(count_);
  const auto near = std::ranges::find_if(all, [&](const RacedRange& p) {
    return race.offset + kNear >= p.begin && race.offset < p.end + kNear;
  });
  RacedRange* fresh = nullptr;
  if (near != all.end()) {
    near->begin = std::min(near->begin, race.offset);
    near->end = std::max(near->end, race.offset + sizeof race.bytes);
    ++near->races;
  } else if (count_ < ranges_.size()) {
    const Store& store = store_of(race.offset);
    const bool known = store.block.load(std::memory_order_relaxed) == raw(mem::block_of(race.offset));
    fresh = &ranges_[count_++];
    *fresh = {race.offset, race.offset + sizeof race.bytes, 1,
              known ? store.code.load(std::memory_order_relaxed) : 0};
  }
  lock_.clear(std::memory_order_release);
  return fresh;
}

CrashText& RaceReport::begin(CrashText& text) const noexcept {
  return text.add("kasane: rank ").decimal(raw(rank_)).add(": data race");
}

void RaceReport::race(const dsm::Race& race) noexcept {
  const RacedRange* const place = add(race);
  if (place == nullptr) return;
  // From the first raced byte to the last: what the program most likely stored.
  const auto skipped = static_cast<unsigned>(std::countr_zero(race.bytes)),
             width = 64 - skipped - static_cast<unsigned>(std::countl_zero(race.bytes));
  const auto part = [&](std::uint64_t word) { return word >> skipped & (~std::uint64_t{0} >> (64 - width)); };
  CrashText text;
  begin(text).add(": two ranks changed the ").decimal(width / 8).add(width == 8 ? " byte at " : " bytes at ");
  describe_data(text, space_.v(race.offset) + skipped / 8)
      .add(" and no fence lies between: from ")
      .hex(part(race.before))
      .add(" to ")
      .hex(part(race.mine))
      .add(" here, to ")
      .hex(part(race.theirs))
      .add(" elsewhere");
  add_store(text, place->code);
  warn(text.add("\n"));
}

void RaceReport::tell_places() const {
  std::string all;
  for (const RacedRange& p : std::span(ranges_).first(count_)) {
    CrashText text;
    begin(text).add("s: ").decimal(p.races).add(" in the ").decimal(p.end - p.begin).add(" bytes from ");
    describe_data(text, space_.v(p.begin)).add(" on");
    add_store(text, p.code);
    all.append(text.data(), text.size())
        .append(". Order the stores by a join, a lock, a barrier or an atomic\n");
  }
  if (all.empty()) return;
  if (count_ == ranges_.size()) all += "kasane: places after the first 64 are not told\n";
  std::fputs(diagnostics::with_source_lines(diagnostics::demangle_all(all)).c_str(), stderr);
}

}  // namespace kasane::runtime
