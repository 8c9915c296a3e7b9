// SPDX-License-Identifier: Apache-2.0
// Schedules without any communication: all members' steps are carried out in this thread, in random orders,
// and the results compared with one loop over all members. Sends read their buffer, and receives fill theirs,
// at any moment of their round, as long messages do.
#include "comm/collectives/schedule.h"

#include <gtest/gtest.h>

#include <map>
#include <tuple>

#include "multi/comm_collectives/oracle.h"
#include "support/sanitized.h"

namespace kasane::comm::test {
namespace {

class Run {
 public:
  Run(const Case& c, std::uint32_t n, std::uint64_t seed)
      : case_(c), n_(n), random_(seed), calls_(n), schedules_(n), position_(n) {
    for (std::uint32_t m = 0; m < n; ++m) {
      calls_[m] = call_of(c, m, n);
      schedules_[m].build(
          {.collective = c.collective,
           .me = m,
           .members = n,
           .root = c.root,
           .out = calls_[m].out.data(),
           .in = calls_[m].in.data(),
           .bytes = c.part_bytes(),
           .reduction = c.collective == Collective::allreduce ? reduction_of(c) : Reduction{}});
    }
  }

  void go() {
    check_names();
    for (std::uint32_t idle = 0; idle < 2000;) {
      const auto m = static_cast<std::uint32_t>(random_.below(n_));
      idle = step(m) ? 0 : idle + 1;
    }
    for (std::uint32_t m = 0; m < n_; ++m) {
      ASSERT_EQ(position_[m], schedules_[m].steps().size())
          << "member " << m << " of " << n_ << " is stuck in " << case_.text();
      ASSERT_EQ(calls_[m].out, expected(case_, n_))
          << "member " << m << " of " << n_ << " in " << case_.text();
    }
    ASSERT_TRUE(mail_.empty());
  }

 private:
  using Name = std::tuple<std::uint32_t, std::uint32_t, unsigned>;

  /// Each message is sent once and received once, with the same size.
  void check_names() {
    std::map<Name, std::size_t> sent, received;
    for (std::uint32_t m = 0; m < n_; ++m) {
      for (const CollectiveStep& s : schedules_[m].steps()) {
        if (!network(s)) continue;
        const bool sends = s.kind == CollectiveStep::Kind::send;
        const Name name = sends ? Name{m, s.peer, s.phase} : Name{s.peer, m, s.phase};
        ASSERT_TRUE((sends ? sent : received).emplace(name, s.bytes).second) << case_.text();
      }
    }
    ASSERT_EQ(sent, received) << case_.text() << " of " << n_;
  }

  static bool network(const CollectiveStep& s) {
    return s.kind == CollectiveStep::Kind::send || s.kind == CollectiveStep::Kind::receive;
  }

  bool step(std::uint32_t m) {
    auto& steps = schedules_[m].steps();
    std::size_t& at = position_[m];
    if (at == steps.size()) return false;
    if (!network(steps[at])) {
      const CollectiveStep& s = steps[at++];
      if (s.kind == CollectiveStep::Kind::combine)
        schedules_[m].reduction()(s.into, s.from, s.right, s.bytes);
      else if (s.bytes != 0)
        std::memcpy(s.into, s.from, s.bytes);
      return true;
    }
    std::size_t end = at;
    while (end < steps.size() && network(steps[end])) ++end;
    CollectiveStep& s = steps[at + random_.below(end - at)];
    const bool moved = !s.done && move(m, s);
    while (at < end && steps[at].done) ++at;
    // The rest of the round may be done already, but the next round begins after all of it.
    return moved;
  }

  bool move(std::uint32_t m, CollectiveStep& s) {
    if (s.kind == CollectiveStep::Kind::send) {
      mail_[{m, s.peer, s.phase}].assign(s.from, s.from + s.bytes);
    } else {
      const auto found = mail_.find({s.peer, m, s.phase});
      if (found == mail_.end()) return false;
      std::copy(found->second.begin(), found->second.end(), s.into);
      mail_.erase(found);
    }
    return s.done = true;
  }

  Case case_;
  std::uint32_t n_;
  Random random_;
  std::vector<Call> calls_;
  std::vector<Schedule> schedules_;
  std::vector<std::size_t> position_;
  std::map<Name, Bytes> mail_;
};

void run(const Case& c, std::uint32_t n, std::uint64_t seed) { Run(c, n, seed).go(); }

TEST(Schedule, EveryCollectiveForEveryNumberOfMembersSizeAndRoot) {
  for (std::uint32_t n : {1u, 2u, 3u, 4u, 5u, 6u, 7u, 8u, 9u, 16u, 17u}) {
    for (const Collective collective : kCollectives) {
      for (const std::size_t elements : {0, 1, 2, 126, 127, 1000, 5000}) {
        Case c{.collective = collective, .elements = elements, .seed = n * 31 + elements};
        const bool rooted = collective == Collective::broadcast;
        for (c.root = 0; c.root < (rooted ? n : 1); c.root += n > 9 ? 5 : 1) run(c, n, c.seed + c.root);
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
}

TEST(Schedule, EveryOperationOnEveryType) {
  for (const Scalar scalar : kScalars) {
    for (const Reduce op : kReduces) {
      for (const std::uint32_t n : {2u, 3u, 5u, 7u}) {
        for (const std::size_t elements : {1, 33, 2001}) {
          run({.collective = Collective::allreduce,
               .scalar = scalar,
               .op = op,
               .elements = elements,
               .seed = elements + n},
              n, 5);
          if (::testing::Test::HasFailure()) return;
        }
      }
    }
  }
}

TEST(Schedule, RandomCasesInRandomOrders) {
  Random random(20170901);
  for (unsigned i = 0; i < fewer_if_sanitized(3000) && !::testing::Test::HasFailure(); ++i) {
    const auto n = static_cast<std::uint32_t>(1 + random.below(12));
    run(random_case(random, n, 40'000), n, random());
  }
}

}  // namespace
}  // namespace kasane::comm::test
