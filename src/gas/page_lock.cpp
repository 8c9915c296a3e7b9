// SPDX-License-Identifier: Apache-2.0
#include "gas/page_lock.h"

namespace kasane::gas {

bool PageLock::try_lock(comm::Blocking& io, const Location& found) {
  Location busy = found;
  busy.busy = true;
  if (words_->compare_swap(io, manager_, entry_, found.word(), busy.word()) != found.word()) return false;
  found_ = found.word();
  return true;
}

void PageLock::try_lock(comm::Requests& requests) {
  taken_holders_ = ~std::uint64_t{0};  // all ranks
  holders_taken_ = true;
  requests.post(manager_, kTakeHandler, comm::as_payload(page_),
                {&found_, std::as_writable_bytes(std::span<std::uint64_t, 1>(&taken_holders_, 1))});
}

PageLock::LockedFor PageLock::lock_for(const Directory& directory, PageId page, Rank to) noexcept {
  const PageLock at(directory, page);
  const std::uint64_t found = at.words_->here(at.manager_, at.entry_)->fetch_or(kBusyBit);
  const MoveStep step = begin_move(Location::of(found), to);
  if (step.verdict != MoveVerdict::claim) return {found, {}};
  return {found,
          at.words_->here(at.manager_, at.entry_ + kHoldersAt)->exchange(unheld(step.claimed.version + 1))};
}

Recall::Recall(AddressCache& addresses, comm::Blocking& io, std::span<PageLock* const> locks)
    : addresses_(addresses), io_(io), locks_(locks), batch_(io), requests_(io, comm::kDoorbellDelayNs) {
  for (PageLock* lock : locks_) {
    // the stamp is the version that word 0 will have
    if (!lock->holders_taken_)
      lock->words_->swap(batch_, lock->manager_, lock->entry_ + PageLock::kHoldersAt,
                         unheld(lock->now().version + 1), &lock->taken_holders_);
  }
}

void Recall::ask(const PageLock& lock) {
  addresses_.recall(io_, lock.page_, lock.seen_holders_, 0, requests_);
}

void Recall::await() {
  batch_.await();
  for (const PageLock* lock : locks_) {
    addresses_.recall(io_, lock->page_, lock->taken_holders_, lock->seen_holders_, requests_);
    addresses_.recall_own(lock->page_);
  }
  requests_.await();
  for (const PageLock* lock : locks_) {
    io_.waiter().until(
        [&] { return addresses_.recalled(lock->page_, lock->seen_holders_ | lock->taken_holders_); });
  }
}

}  // namespace kasane::gas
