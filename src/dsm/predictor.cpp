// SPDX-License-Identifier: Apache-2.0
#include "dsm/predictor.h"

#include <utility>

namespace kasane::dsm {

Result<std::unique_ptr<Predictor>> Predictor::create(const mem::Pages& pages, std::uint64_t blocks, Config config) {
  auto histories = mem::BlockTable::create(pages.count());
  KASANE_TRY(histories);
  auto used = mem::BlockSet::create(pages.count());
  KASANE_TRY(used);
  auto given_up = mem::BlockSet::create(blocks);
  KASANE_TRY(given_up);
  return std::unique_ptr<Predictor>(new Predictor(pages, config, std::move(*histories), std::move(*used), std::move(*given_up)));
}

Predictor::Predictor(const mem::Pages& pages, Config config, mem::BlockTable histories, mem::BlockSet used, mem::BlockSet given_up) noexcept
    : pages_(pages), config_(config), histories_(std::move(histories)), used_(std::move(used)), given_up_(std::move(given_up)) {}

Prediction Predictor::kind_of(std::string_view name) noexcept {
  if (name == "decay") return Prediction::decay;
  return name == "last-touch" ? Prediction::last_touch : Prediction::off;
}

Predictor::Change Predictor::see(PageId page, Seen seen, std::uint64_t acquires) noexcept {
  std::atomic<std::uint32_t>& word = histories_[as_block(page)];
  std::uint32_t before = word.load();
  for (;;) {
    const History h = History::of(before);
    const Foresight now = decays() ? decay(h, seen) : last_touch(h, seen, acquires);
    if (word.compare_exchange_weak(before, now.after.word())) return {h, now.advice};
  }
}

void Predictor::used(PageId page, std::uint64_t acquires) noexcept {
  static_cast<void>(see(page, Seen::used, acquires));
  if (!decays()) note_used(page);
}

bool Predictor::dropped(PageId page) noexcept {
  const History before = see(page, Seen::dropped).before;
  if (!before.copy || !before.given_up) return false;
  const mem::BlockRange all = pages_.blocks_of(page);   // what an earlier life has left here
  for (std::uint64_t b = given_up_.next(raw(all.first)); b < raw(all.first) + all.count; b = given_up_.next(b + 1)) given_up_.erase(BlockId{b});
  return true;
}

std::optional<BlockId> Predictor::in_question(PageId page, BlockId first, std::uint64_t count) const noexcept {
  const History h = history(page);
  if (h.copy || !h.given_up) return std::nullopt;
  const std::uint64_t b = given_up_.next(raw(first));
  if (b >= raw(first) + count) return std::nullopt;
  return BlockId{b};
}

bool Predictor::answer(PageId page, bool changed) noexcept {
  const History before = see(page, changed ? Seen::changed : Seen::unchanged).before;
  return before.given_up && !before.copy;
}

}  // namespace kasane::dsm
