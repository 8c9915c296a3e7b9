// SPDX-License-Identifier: Apache-2.0
// The multi-producer ring under every interleaving of small programs: its values against a serial queue, its
// sleeping bit against a bell that must ring.
#include <deque>
#include <vector>

#include "base/mpsc_ring.h"
#include "support/interleave.h"
#include "support/linearizable.h"

namespace kasane::test {
namespace {

using Ring = MpscRing<int, InterleavedAtomics>;
using Serial = std::deque<int>;
constexpr std::size_t kCapacity = 2;

class Recorded {
 public:
  explicit Recorded(Schedule& schedule) : schedule_(schedule) {}

  void push(int value) {
    std::uint64_t begin = 0;
    schedule_.begins_at(begin);
    const bool pushed = ring_.try_push(value) != Push::full;
    const auto end = schedule_.clock();
    pushes_.push_back({begin, end});
    history_.push_back({begin, end, [=](Serial& s) {
                          if (pushed != (s.size() < kCapacity)) return false;
                          if (pushed) s.push_back(value);
                          return true;
                        }});
  }

  void pop() {
    std::uint64_t begin = 0;
    schedule_.begins_at(begin);
    int value = 0;
    const bool popped = ring_.try_pop(value);
    const auto end = schedule_.clock();
    history_.push_back({begin, end, [=, this](Serial& s) {
                          // front() also returns null while a producer is between claim and publish.
                          if (!popped) return s.empty() || push_overlaps(begin, end);
                          if (s.empty() || s.front() != value) return false;
                          s.pop_front();
                          return true;
                        }});
  }

  void expect_linearizable() {
    for (std::size_t i = 0; i < kCapacity; ++i) pop();
    EXPECT_TRUE(linearizable(Serial{}, history_));
  }

 private:
  struct Span {
    std::uint64_t begin, end;
  };
  [[nodiscard]] bool push_overlaps(std::uint64_t begin, std::uint64_t end) const {
    for (const Span& push : pushes_)
      if (push.begin < end && begin < push.end) return true;
    return false;
  }

  Schedule& schedule_;
  Ring ring_{kCapacity};
  std::vector<Span> pushes_;
  std::vector<Operation<Serial>> history_;
};

TEST(MpscInterleaved, TwoProducers) {
  explore(Reduction::none, [](Schedule& s) {
    Recorded r(s);
    s.thread([&] { r.push(1), r.push(2); });
    s.thread([&] { r.push(3); });
    s.run();
    r.expect_linearizable();
  });
}

TEST(MpscInterleaved, ProducersAndConsumer) {
  explore(Reduction::none, [](Schedule& s) {
    Recorded r(s);
    s.thread([&] { r.push(1); });
    s.thread([&] { r.push(2); });
    s.thread([&] { r.pop(), r.pop(); });
    s.run();
    r.expect_linearizable();
  });
}

// Positions go round the ring: cells are used again, and full is reported exactly when it is.
TEST(MpscInterleaved, ReusedCells) {
  explore(Reduction::none, [](Schedule& s) {
    Recorded r(s);
    r.push(1), r.push(2);
    s.thread([&] { r.push(3), r.push(4); });
    s.thread([&] { r.pop(), r.pop(), r.pop(); });
    s.run();
    r.expect_linearizable();
  });
}

TEST(MpscInterleaved, RandomLongPrograms) {
  explore_random(1, 3000, [](Schedule& s) {
    Recorded r(s);
    for (int producer = 0; producer < 3; ++producer)
      s.thread([&r, producer] {
        for (int i = 0; i < 3; ++i) r.push(10 * producer + i);
      });
    s.thread([&] {
      for (int i = 0; i < 8; ++i) r.pop();
    });
    s.run();
    r.expect_linearizable();
  });
}

}  // namespace
}  // namespace kasane::test
