// SPDX-License-Identifier: Apache-2.0
#include "gas/sharing.h"

#include <utility>

namespace kasane::gas {

Result<std::unique_ptr<Sharing>> Sharing::create(comm::Transport& transport, const Directory& directory,
                                                 const Config& config) {
  const std::uint64_t pages = directory.pages().count();
  auto changed = mem::WordTable<PartMask, PageId>::create(pages);
  KASANE_TRY(changed);
  auto ours = mem::PageSet::create(pages);
  KASANE_TRY(ours);
  auto reread = mem::PageSet::create(pages);
  KASANE_TRY(reread);
  auto states = mem::WordTable<std::uint32_t, PageId>::create(pages);
  KASANE_TRY(states);
  return std::unique_ptr<Sharing>(
      new Sharing(transport, directory, config,
                  {std::move(*changed), std::move(*ours), std::move(*reread), std::move(*states)}));
}

Sharing::Sharing(comm::Transport& transport, const Directory& directory, const Config& config,
                 Tables&& tables) noexcept
    : directory_(directory),
      config_(config),
      me_(transport.rank()),
      on_(config.on && transport.ranks() > 1),
      unreleased_(directory.unreleased()),
      notices_(directory.notices()),
      changed_(std::move(tables.changed)),
      ours_(std::move(tables.ours)),
      reread_(std::move(tables.reread)),
      reader_states_(std::move(tables.reader_states)) {}

void Sharing::join(comm::Blocking& io, std::span<Joining> pages) const {
  std::array<PageMarks::Notice, kTogether> marks;
  std::array<std::uint64_t, kTogether> before;
  std::size_t asking = 0;
  {
    comm::Batch batch(io);
    for (Joining& j : pages) {
      j.state = on_ ? ReaderState::of(reader_states_[j.page].load()) : ReaderState{true, true, 0};
      if (j.state.complete()) continue;
      if (!j.state.joined) directory_.add_reader(batch, j.page, &before[asking]);
      marks[asking++] = {j.owner, j.page};
    }
  }
  if (asking != 0) unreleased_.add(io, {marks.data(), asking});  // when the bits are set
}

/// When `since` was read the rank had begun no later release, and ended all earlier ones. So what looks lower
/// by the lower bits is that, or has gone so far that the bits come round: then the rank is asked.
std::uint32_t Sharing::releases(comm::Blocking& io, Rank rank, std::uint32_t since) const {
  std::uint64_t unreleased = 0, last = 0;
  comm::Batch batch(io);
  directory_.releases(batch, rank, &unreleased, &last);
  batch.await();
  const std::uint32_t after = static_cast<std::uint32_t>(last) - since;
  if (since != 0 && static_cast<std::int32_t>(after) > 0) return after;
  return unreleased == 0 ? ~std::uint32_t{0} : 0;
}

void Sharing::note_release(std::uint64_t number) const noexcept { directory_.released().store(number); }

std::uint32_t Sharing::released() const noexcept {
  return static_cast<std::uint32_t>(directory_.released().load());
}

/// Word 1 is only read here. If its bits were taken, another rank that changes the page meanwhile would find
/// no readers, and end its release before these got their notices (tests/model, r5_readers_taken). Each
/// reader takes its own bits back at an acquire.
void Sharing::read_readers(comm::Blocking& io, Pages& pages) const {
  comm::Batch batch(io);
  for (std::size_t i = 0; i < pages.count; ++i) directory_.readers(batch, pages.page[i], &pages.readers[i]);
  batch.await();
  for (std::size_t i = 0; i < pages.count; ++i)
    pages.readers[i] = directory_.reader_code().without(pages.readers[i], me_);
}

void Sharing::post_notices(comm::Blocking& io, const Pages& changes) {
  std::array<PageNotices::Notice, kTogether> notices;
  std::size_t count = 0;
  const auto post = [&] {
    notices_.add(io, {notices.data(), count});
    count = 0;
  };
  for (std::size_t i = 0; i < changes.count; ++i) {
    directory_.reader_code().for_each(changes.readers[i], [&](Rank r) {
      if (r == me_) return;
      notices[count++] = {r, changes.page[i], changes.parts[i]};
      if (count == notices.size()) post();
    });
  }
  if (count != 0) post();
}

bool Sharing::watches(PageId page) noexcept {
  if (!watchable(page)) return false;
  if (!reread_.contains(page)) {
    reread_.insert(page);
    return false;
  }
  reread_.erase(page);
  return true;
}

/// Called before the pages' blocks are examined: a fetch whose block is not seen there joins after this.
void Sharing::leave_readers(comm::Blocking& io, std::span<const PageId> pages) const {
  std::array<std::uint64_t, kTogether> before;
  comm::Batch batch(io);
  for (std::size_t i = 0; i < pages.size(); ++i) directory_.remove_reader(batch, pages[i], &before[i]);
  batch.await();
  // Noted only now: a rank that joined in between would take itself for a reader when its bit is taken back
  // (tests/model, r6_stay_ended_early).
  for (const PageId page : pages) note_taken(page, false);
}

}  // namespace kasane::gas
