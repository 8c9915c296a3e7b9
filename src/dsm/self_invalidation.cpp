// SPDX-License-Identifier: Apache-2.0
// Self-invalidation by prediction: this rank gives up copies of which dsm/prediction.h says that they are not used again.
//
//   a fault, a view ─▶ the page's history        an age has passed, or a fence: what does it say?
//     keep: –        doze: its blocks are hidden, and stay what they are        give up: this rank tells itself of the page; the round that asks drops it like any other
//
// So it leaves the page's readers and drops the blocks in the one order that is proven; a notice of another rank that comes meanwhile is the same notice.
#include "base/trace.h"
#include "dsm/coherence.h"

namespace kasane::dsm {

/// By who leads an acquire's round.
void Coherence::predict() noexcept {
  const std::uint64_t now = acquires_.load();
  if (!predictor_->decays()) return predictor_->take_used([&](PageId page) { foresee(page, now); });
  if (!predictor_->due(now)) return;
  predictor_->begin_age(now);
  for (std::uint64_t b = cached_.next(0); b != ~std::uint64_t{0};) {
    const PageId page = pages_.page_of(BlockId{b});
    foresee(page, now);
    b = cached_.next(end_of(pages_.blocks_of(page)));
  }
}

void Coherence::foresee(PageId page, std::uint64_t now) noexcept {
  bool cached = false, in_use = false;
  for_each_cached(page, gas::kAllParts, [&](BlockId b, gas::Parts) {
    const BlockState s = state(b);
    cached = true;
    in_use |= s.busy || s.pins != 0 || s.dirty();
  });
  if (!cached) return;
  if (in_use) return predictor_->in_use(page, now);
  switch (predictor_->look(page, now)) {
    case Advice::keep: break;
    case Advice::doze: hide(pages_.blocks_of(page), Event::doze); break;
    case Advice::give_up: sharing_.tell_myself(page, gas::kAllParts); break;
  }
}

/// After the changes have been sent. What is dropped here is out of the way of whoever acquires this release, and then stores.
void Coherence::give_up_at_release(ThreadContext& ctx) {
  const Timed timed(ctx.counters, ctx.counters.ns_release, TraceKind::release);
  told_rounds_.join(ctx.io.waiter(), [&] { drop_told(ctx); });
}

/// This rank is about to fetch these blocks of the page from its owner: had it given one of them up?
std::optional<Predictor::Question> Coherence::question(PageId page, Rank owner, BlockId first, std::uint64_t count) const noexcept {
  if (predictor_ == nullptr) return std::nullopt;
  const auto b = predictor_->in_question(page, first, count);
  if (!b) return std::nullopt;
  const std::uint64_t at = mem::offset_of(*b);
  return Predictor::Question{*b, LastSeen(space_.a(at), frame_of(owner, at))};
}

/// It has come. A change proves that a notice was spared: its rank was among the readers of nobody's release since.
void Coherence::answer(Counters& counters, PageId page, const Predictor::Question& question) noexcept {
  const bool changed = question.last_seen.changed();
  if (predictor_->answer(page, changed)) count(changed ? counters.notices_spared : counters.given_up_too_early);
}

}  // namespace kasane::dsm
