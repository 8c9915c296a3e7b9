// SPDX-License-Identifier: Apache-2.0
// The end of a group of posts (posts/credit.h, the shipping table): ranks post to each other, also from
// running posts, in messages that arrive in any order; grants and what goes back to the group's word are
// accesses of their own, in any order.
//
// Checked: the word is 0 only when no post is left; it is 0 at the end; it is the sum of all credit; from
// every state there is a way on which all posts run. A rule taken away is noticed.
#include "posts/credit.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <string>

#include "model/walk.h"

namespace kasane::model {
namespace {

using posts::Action, posts::Event, posts::Share;

enum class Without : std::uint8_t {
  none,
  grant_first,   ///< a post counts before its grant is in the word
  keeps_some,    ///< a message takes all of the rank's credit
  takes_some,    ///< … takes none
  parts,         ///< the last post of one message gives the rank's credit back though another is left
  nested_first,  ///< a post has run before what it has posted counts
  all_of_it,     ///< only one unit goes back
  unneeded,      ///< a grant stays whose block another thread has sent
};

constexpr std::uint64_t kSmallGrant = 4;  ///< so that it runs out

struct Posts {
  Without without = Without::none;
  std::uint8_t ranks = 2, roots = 2, depth = 2;

  static constexpr std::uint8_t kMost = 4;
  /// A message: being filled, under way, or running. One post each.
  struct Part {
    std::uint8_t stage, from, to, depth, posted, credit;
  };
  enum Stage : std::uint8_t { kNone, kWaitsForGrant, kGranted, kOpen, kLeaves, kFlies, kRuns };
  struct State {
    std::array<Part, kMost> part;
    std::array<std::array<std::uint8_t, 2>, 3> share;  ///< credit, parts
    std::array<std::uint8_t, 3> returned;              ///< on its way back to the word
    /// threads that grant for a block which another thread may send, and those that have granted
    std::array<std::uint8_t, 3> late, granted;
    std::uint8_t word, left, seen_zero;
  };

  State initial() const {
    State s = {};
    s.left = roots;
    return s;
  }
  /// A thread's post counts when it is open, a post's from the beginning.
  bool any(const State& s) const {
    for (const Part& p : s.part)
      if (p.stage >= kOpen || (p.stage != kNone && p.depth < depth)) return true;
    return false;
  }
  const char* violation(const State& s) const {
    unsigned sum = 0;
    for (const auto& x : s.share) sum += x[0];
    for (const Part& p : s.part) sum += p.stage == kFlies ? p.credit : 0u;
    for (const std::uint8_t r : s.returned) sum += r;
    if (s.word == 0 && any(s)) return "the word is 0, and a post has not run";
    if (without == Without::none && sum != s.word) return "the word is not the sum of the credit";
    return nullptr;
  }
  bool finished(const State& s) const {
    for (const Part& p : s.part)
      if (p.stage != kNone) return false;
    for (std::uint8_t r = 0; r < ranks; ++r)
      if (s.late[r] + s.granted[r] != 0) return false;
    return s.left == 0 && s.word == 0;
  }
  bool circles() const { return true; }
  std::string name(const Step& x) const {
    return "rank " + std::to_string(x.actor) + ", step " + std::to_string(x.kind) + ", part " +
           std::to_string(x.detail);
  }
  std::string show(const State& s) const {
    std::string text = "word " + std::to_string(s.word) + ":";
    for (const Part& p : s.part)
      if (p.stage != kNone)
        text += " [" + std::to_string(p.stage) + " " + std::to_string(p.from) + ">" + std::to_string(p.to) +
                " " + std::to_string(p.credit) + "]";
    return text;
  }

  static Share share(const State& s, std::uint8_t r) { return {s.share[r][0], s.share[r][1]}; }
  static void put(State& s, std::uint8_t r, const Share& x) {
    s.share[r] = {static_cast<std::uint8_t>(x.credit), static_cast<std::uint8_t>(x.parts)};
  }
  static std::uint8_t free_part(const State& s) {
    for (std::uint8_t i = 0; i < kMost; ++i)
      if (s.part[i].stage == kNone) return i;
    return kMost;
  }

  /// A post by a thread of rank r: the part is open, or waits for a grant.
  bool begin(State& s, std::uint8_t i, std::uint8_t r, std::uint8_t to, std::uint8_t depth_left) const {
    const posts::Step step = posts::next(share(s, r), Event::begin);
    const bool waits = step.action == Action::grant && without != Without::grant_first;
    s.part[i] = {waits ? std::uint8_t{kWaitsForGrant} : std::uint8_t{kOpen}, r, to, depth_left, 0, 0};
    if (step.action == Action::grant && !waits)
      put(s, r, {share(s, r).credit, share(s, r).parts + 1});
    else if (!waits)
      put(s, r, step.next);
    return !waits;
  }

  template <class Emit>
  void successors(const State& s, Emit&& emit) const {
    const std::uint8_t slot = free_part(s);
    if (s.left != 0 && slot != kMost)
      for (std::uint8_t to = 0; to < ranks; ++to) {
        State n = s;
        --n.left;
        begin(n, slot, 0, to, depth);
        emit(n, Step{1, 0, slot});
      }
    for (std::uint8_t r = 0; r < ranks; ++r)
      if (s.returned[r] != 0) {
        State n = s;
        n.word = static_cast<std::uint8_t>(n.word - n.returned[r]);
        n.returned[r] = 0;
        emit(n, Step{2, r, 0});
      }
    for (std::uint8_t r = 0; r < ranks; ++r) late(s, r, emit);
    for (std::uint8_t i = 0; i < kMost; ++i) step(s, i, slot, emit);
  }

  template <class Emit>
  void late(const State& s, std::uint8_t r, Emit&& emit) const {
    if (s.late[r] != 0) {
      State n = s;
      --n.late[r], ++n.granted[r];
      n.word += kSmallGrant;
      put(n, r, posts::next(share(n, r), Event::granted, kSmallGrant).next);
      emit(n, Step{11, r, 0});
    }
    if (s.granted[r] != 0) {
      State n = s;
      --n.granted[r];
      const posts::Step step = posts::next(share(n, r), Event::unneeded);
      if (without != Without::unneeded) {
        put(n, r, step.next);
        if (step.action == Action::give_back)
          n.returned[r] = static_cast<std::uint8_t>(n.returned[r] + step.amount);
      }
      emit(n, Step{12, r, 0});
    }
  }

  template <class Emit>
  void step(const State& s, std::uint8_t i, std::uint8_t slot, Emit&& emit) const {
    const Part& p = s.part[i];
    State n = s;
    Part& q = n.part[i];
    switch (p.stage) {
      case kWaitsForGrant:  // the access to the word
        n.word += kSmallGrant;
        put(n, p.from, posts::next(share(n, p.from), Event::granted, kSmallGrant).next);
        q.stage = kGranted;
        return emit(n, Step{3, p.from, i});
      case kGranted:  // the same event again; another thread may have used the credit up
        begin(n, i, p.from, p.to, p.depth);
        return emit(n, Step{4, p.from, i});
      case kOpen: return leave(n, i, emit);
      case kLeaves:
        n.word += kSmallGrant;
        put(n, p.from, posts::next(share(n, p.from), Event::granted, kSmallGrant).next);
        q.stage = kOpen;
        emit(n, Step{5, p.from, i});
        if (s.late[p.from] + s.granted[p.from] == 0) {  // another thread sends the block, before or after
          n = s;
          n.part[i].stage = kOpen;
          ++n.late[p.from];
          emit(n, Step{13, p.from, i});
        }
        return;
      case kFlies:
        put(n, p.to, posts::next(share(n, p.to), Event::arrive, p.credit).next);
        q.credit = 0;
        q.stage = kRuns;
        return emit(n, Step{6, p.to, i});
      case kRuns: return run(s, i, slot, emit);
      default: return;
    }
  }

  template <class Emit>
  void leave(State n, std::uint8_t i, Emit&& emit) const {
    Part& q = n.part[i];
    const Share before = share(n, q.from);
    posts::Step step = posts::next(before, Event::leave);
    if (without == Without::keeps_some) step = {{0, before.parts - 1}, Action::take, before.credit};
    if (without == Without::takes_some) step = {{before.credit, before.parts - 1}, Action::take, 0};
    if (step.action == Action::grant) {
      q.stage = kLeaves;
      return emit(n, Step{7, q.from, i});
    }
    put(n, q.from, step.next);
    q.credit = static_cast<std::uint8_t>(step.amount);
    q.stage = kFlies;
    emit(n, Step{8, q.from, i});
  }

  /// The post runs: it posts once, to any rank, if it may still; then it is over.
  template <class Emit>
  void run(const State& s, std::uint8_t i, std::uint8_t slot, Emit&& emit) const {
    const Part& p = s.part[i];
    if (p.depth != 0 && p.posted == 0 && slot != kMost) {
      for (std::uint8_t to = 0; to < ranks; ++to) {
        State n = s;
        n.part[i].posted = 1;
        if (without == Without::nested_first) {
          end(n, i);
          n.part[slot] = {kGranted, p.to, to, static_cast<std::uint8_t>(p.depth - 1), 0, 0};
        } else {
          begin(n, slot, p.to, to, static_cast<std::uint8_t>(p.depth - 1));
        }
        emit(n, Step{9, p.to, i});
      }
    }
    // A post returns when its own post counts.
    for (const Part& other : s.part)
      if ((other.stage == kWaitsForGrant || other.stage == kGranted) && other.from == p.to && p.posted != 0)
        return;
    State n = s;
    end(n, i);
    emit(n, Step{10, p.to, i});
  }

  void end(State& n, std::uint8_t i) const {
    const std::uint8_t r = n.part[i].to;
    const Share before = share(n, r);
    posts::Step step = posts::next(before, Event::ran);
    if (without == Without::parts && before.parts != 0)
      step = {{0, before.parts - 1}, Action::give_back, before.credit};
    if (without == Without::all_of_it && step.action == Action::give_back) step.amount = 1;
    put(n, r, step.next);
    if (step.action == Action::give_back)
      n.returned[r] = static_cast<std::uint8_t>(n.returned[r] + step.amount);
    n.part[i] = {};
  }
};

TEST(Posts, TheWordIsZeroWhenAllHaveRun) {
  for (const Posts& p : {Posts{.ranks = 2, .roots = 2, .depth = 1}, Posts{.ranks = 2, .roots = 1, .depth = 3},
                         Posts{.ranks = 3, .roots = 2, .depth = 1}})
    expect_sound(p);
}

TEST(Posts, EachRuleIsNeeded) {
  expect_needed<Posts>({Without::grant_first, Without::keeps_some, Without::takes_some, Without::parts,
                        Without::nested_first, Without::all_of_it, Without::unneeded});
}

}  // namespace
}  // namespace kasane::model
