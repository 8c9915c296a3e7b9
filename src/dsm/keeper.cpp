// SPDX-License-Identifier: Apache-2.0
#include "dsm/keeper.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/clock.h"
#include "base/options.h"

namespace kasane::dsm {

namespace {

constexpr std::uint64_t kPatienceNs = 5'000'000'000;
constexpr std::uint64_t kYouthNs = 1'000'000;
constexpr std::uint64_t kMostTogether = 1024;   ///< blocks that leave in one batch, unless a page has more

}  // namespace

Keeper::Keeper(comm::Transport& transport, Coherence& coherence, gas::Tiers& tiers, mem::Residency& residency, const gas::Directory& directory, Config config)
    : transport_(transport), coherence_(coherence), tiers_(tiers), residency_(residency), directory_(directory), config_(std::move(config)) {
  transport_.set_handler(gas::kBudgetHandler, &Keeper::on_ring, this);
}

void Keeper::on_ring(void* self, const comm::Message&) noexcept { static_cast<Keeper*>(self)->residency_.ring(); }

void Keeper::stop() noexcept {
  stop_.store(true);
  residency_.lift_limit();   // nobody makes room any more: who waits goes on
  residency_.ring();
}

void Keeper::run(comm::Blocking& io) {
  for (std::uint32_t seen = residency_.rings(); !stop_.load(); seen = residency_.rings()) {
    residency_.trim();
    too_young_ = false;
    const bool left = make_room(io), asked = tiers_.asked();
    if (!asked || residency_.admitted(1) || (!left && !too_young_)) {   // one at a time, so that the budget is exceeded by one, unless nothing can leave
      tiers_.serve(io);
    } else {
      io.waiter().pause();
    }
    if (!left && !asked && !stop_.load()) residency_.sleep(seen);
  }
}

/// False: everything stays where it is.
bool Keeper::ready() {
  if (policy_ != nullptr) return true;
  if (!tiers_.is_open()) {
    if (auto opened = tiers_.open(); !opened) {
      why_ = opened.error().message;
      if (!config_.limit_asked) {
        residency_.lift_limit();
        return false;
      }
    }
  }
  room_ = static_cast<std::uint32_t>(std::clamp<std::uint64_t>(residency_.total() / 4, 1 << 12, 1u << 30));
  policy_ = mem::make_eviction_policy("steady", room_, *this);
  for (auto* set : {&known_, &young_}) {
    auto made = mem::BlockSet::create(directory_.pages().count());
    if (!made) config_.fatal(made.error());
    *set = std::make_unique<mem::BlockSet>(std::move(*made));
  }
  return true;
}

/// Pages are young for one to two times kYouthNs.
void Keeper::grow_up() {
  const std::uint64_t now = now_ns();
  if (now - birthday_ns_ < kYouthNs) return;
  birthday_ns_ = now;
  for (const PageId page : came_[1]) young_->erase(BlockId{raw(page)});
  came_[1].clear();
  std::swap(came_[0], came_[1]);
}

void Keeper::take_entered() {
  grow_up();
  residency_.take_entered([this](PageId page) {
    const BlockId number{raw(page)};
    if (known_->contains(number)) return;
    known_->insert(number);
    young_->insert(number);
    came_[0].push_back(page);
    policy_->enter(page);
    ++in_;
  }, room_ - in_);
}

/// True: something has left.
bool Keeper::make_room(comm::Blocking& io) {
  const std::uint64_t wanted = residency_.take_wanted();
  if (residency_.short_of(std::max(residency_.low(), wanted)) == 0 || !ready()) return false;
  if (residency_.procure(wanted)) {
    for (const Rank other : config_.others) io.send(other, gas::kBudgetHandler, {});
  }
  std::uint64_t left = 0;
  for (std::uint64_t n; (n = residency_.short_of(std::max(2 * residency_.low(), wanted))) != 0 && !stop_.load();) {
    take_entered();
    const std::uint64_t now = let_go(io, n);
    if (now == 0) break;
    left += now;
    static_cast<void>(residency_.procure(0));
    if (residency_.admitted(1)) tiers_.serve(io);
  }
  if (left != 0) {
    stuck_since_ns_ = 0;
  } else if (wanted != 0 && !residency_.admitted(wanted)) {
    nothing_left();
  }
  return left != 0;
}

/// Lets pages of about so many blocks go; returns how many pages did. Each page is looked at once.
std::uint64_t Keeper::let_go(comm::Blocking& io, std::uint64_t most) {
  const mem::Pages& pages = directory_.pages();
  std::uint64_t gone = 0;
  for (std::uint32_t looks = in_; looks != 0 && gone == 0;) {
    std::array<PageId, gas::Tiers::kTogether> named;
    std::array<bool, gas::Tiers::kTogether> left;
    std::size_t n = 0;
    for (std::uint64_t blocks = 0; n < named.size() && blocks < std::min(most, kMostTogether) && looks != 0; --looks) {
      const auto page = policy_->evict();
      if (!page) break;
      const mem::BlockRange all = pages.blocks_of(*page);
      if (residency_.frames().next(raw(all.first)) >= raw(all.first) + all.count) {   // it left while it was noted once more
        forget(*page);
        continue;
      }
      if (young_->contains(BlockId{raw(*page)})) {
        policy_->keep(*page);
        too_young_ = true;
        continue;
      }
      blocks += all.count;
      named[n++] = *page;
    }
    tiers_.evict(io, {named.data(), n}, left.data());
    for (std::size_t i = 0; i < n; ++i) {
      if (left[i]) {
        forget(named[i]);
        ++gone;
      } else {
        policy_->keep(named[i]);
      }
    }
  }
  return gone;
}

void Keeper::forget(PageId page) noexcept {
  known_->erase(BlockId{raw(page)});
  --in_;
}

/// Somebody waits for room and nothing can leave, for now: blocks are in use, pinned, or changed and not sent.
void Keeper::nothing_left() {
  const std::uint64_t now = now_ns();
  if (stuck_since_ns_ == 0) stuck_since_ns_ = now;
  residency_.note_stuck();
  if (now - stuck_since_ns_ < kPatienceNs) return;
  const std::string spill = why_.empty() ? "what is left is pinned (views) or in use" : "nothing can be spilled: " + why_;
  config_.fatal(fail(Errc::limit,
                     fmt::format("rank {} has {} of global memory in DRAM and needs more, and the budget of this host is {}; {}. Raise --dram (KASANE_DRAM), or hold less at once",
                                 raw(transport_.rank()), bytes_text(residency_.used() * mem::kBlockBytes), bytes_text(residency_.total() * mem::kBlockBytes), spill))
                    .value());
}

}  // namespace kasane::dsm
