// SPDX-License-Identifier: Apache-2.0
// kasane::deque and kasane::list: random operations against std's, by threads that move about; all ranks at
// once; small histories, of which a serial order is searched. Threads only compute, and main expects.
#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <deque>
#include <functional>
#include <iterator>
#include <kasane/containers/deque.hpp>
#include <kasane/containers/list.hpp>
#include <kasane/kasane.hpp>
#include <list>
#include <optional>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "multi/containers/histories.h"
#include "multi/containers/on_ranks.h"

namespace of_queue {
namespace {

using kasane::test::Clock, kasane::test::histories, kasane::test::History, kasane::test::kNone,
    kasane::test::Seen;
using kasane::test::everywhere, kasane::test::go_to, kasane::test::refused;
using Deque = kasane::deque<std::uint64_t>;
using List = kasane::list<std::uint64_t>;
static_assert(std::is_trivially_copyable_v<Deque::handle> && std::is_trivially_copyable_v<List::handle> &&
              std::is_trivially_copyable_v<List::iterator>);
using Oracle = std::deque<std::uint64_t>;

std::optional<std::uint64_t> take(Oracle& o, bool front) {
  if (o.empty()) return std::nullopt;
  const std::uint64_t x = front ? o.front() : o.back();
  front ? o.pop_front() : o.pop_back();
  return x;
}

bool differs(Deque& d, Oracle& oracle, std::minstd_rand& random) {
  const std::uint64_t x = random();
  switch (random() % 9) {
    case 0: return d.push_back(x), oracle.push_back(x), false;
    case 1: return d.push_front(x), oracle.push_front(x), false;
    case 2: return d.try_pop_front() != take(oracle, true);
    case 3: return d.try_pop_back() != take(oracle, false);
    case 4:
    case 5: {
      std::vector<std::uint64_t> xs(random() % (random() % 20 == 0 ? 2000 : 20));
      for (auto& y : xs) y = random();
      const bool front = random() % 2 == 0;
      front ? d.push_front(xs) : d.push_back(xs);
      oracle.insert(front ? oracle.begin() : oracle.end(), xs.begin(), xs.end());
      return false;
    }
    case 6:
    case 7: {
      std::vector<std::uint64_t> xs(random() % 100), there(xs.size());
      const bool front = random() % 2 == 0;
      const std::size_t n = front ? d.try_pop_front(xs) : d.try_pop_back(xs);
      if (n != std::min(xs.size(), oracle.size())) return true;
      for (std::size_t i = 0; i < n; ++i) there[front ? i : n - 1 - i] = *take(oracle, front);
      return !std::equal(xs.begin(), xs.begin() + static_cast<std::ptrdiff_t>(n), there.begin());
    }
    default: {
      std::vector<std::uint64_t> xs(random() % 50);
      const std::size_t i = random() % (oracle.size() + 2), n = d.read(i, xs);
      if (n != std::min(xs.size(), oracle.size() > i ? oracle.size() - i : 0)) return true;
      for (std::size_t k = 0; k < n; ++k)
        if (xs[k] != oracle[i + k]) return true;
      if (random() % 300 == 0) d.clear(), oracle.clear();
      return d.size() != oracle.size() || d.empty() != oracle.empty();
    }
  }
}

TEST(Deque, IsWhatStdsIs) {
  for (unsigned seed = 1; seed <= 4; ++seed) {
    const std::uint64_t wrong = kasane::run([seed] {
      std::minstd_rand random(seed);
      Deque d(static_cast<std::uint32_t>(random()) % kasane::ranks()), other;
      Oracle oracle;
      std::uint64_t w = 0;
      for (int i = 0; i < 3000 && w == 0; ++i) {
        if (i % 100 == 0) go_to(static_cast<std::uint32_t>(random()) % kasane::ranks());
        w += differs(d, oracle, random);
      }
      d.swap(other);
      return w + !d.empty() + (other.size() != oracle.size());
    });
    EXPECT_EQ(wrong, 0u) << "seed " << seed;
  }
}

TEST(List, IsWhatStdsIs) {
  for (unsigned seed = 1; seed <= 4; ++seed) {
    const std::uint64_t wrong = kasane::run([seed] {
      std::minstd_rand random(seed);
      List l(static_cast<std::uint32_t>(random()) % kasane::ranks());
      std::list<std::uint64_t> oracle;
      std::vector<std::pair<List::iterator, std::list<std::uint64_t>::iterator>> at;
      std::uint64_t w = 0;
      for (int i = 0; i < 1500 && w == 0; ++i) {
        if (i % 100 == 0) go_to(static_cast<std::uint32_t>(random()) % kasane::ranks());
        const std::uint64_t x = random();
        const std::uint32_t rank = static_cast<std::uint32_t>(random()) % kasane::ranks();
        const std::size_t k = at.empty() ? 0 : random() % at.size();
        switch (random() % 8) {
          case 0: at.emplace_back(l.push_back(x, rank), oracle.insert(oracle.end(), x)); break;
          case 1: at.emplace_back(l.push_front(x, rank), oracle.insert(oracle.begin(), x)); break;
          case 2:
          case 3:
            if (!at.empty()) at.emplace_back(l.insert(at[k].first, x, rank), oracle.insert(at[k].second, x));
            break;
          case 4: {
            if (at.empty()) break;
            const List::iterator old = at[k].first;
            const auto next = l.erase(old);
            const auto there = oracle.erase(at[k].second);
            w += (next == l.end()) != (there == oracle.end()) || (there != oracle.end() && *next != *there);
            w += !refused(ESTALE, [&] { static_cast<void>(*old); });
            w += !refused(ESTALE, [&] { l.erase(old); });
            w += !refused(ESTALE, [&] { l.insert(old, 1, 0); });
            w += !refused(ESTALE, [&] { ++List::iterator(old); });
            w += !refused(ESTALE, [&] { --List::iterator(old); });
            at.erase(at.begin() + static_cast<std::ptrdiff_t>(k));
            break;
          }
          case 5:
            if (at.empty()) break;
            w += *at[k].first != *at[k].second;
            if (List::iterator before = at[k].first; at[k].second == oracle.begin())
              w += !refused(EINVAL, [&] { --before; });
            else
              w += *--before != *std::prev(at[k].second);
            break;
          case 6:
            if (random() % 30 == 0) l.sort(), oracle.sort();
            break;
          default: {
            if (random() % 20 != 0) break;
            const std::array xs{x, x + 1, x + 2};
            l.append(xs, rank);
            oracle.insert(oracle.end(), xs.begin(), xs.end());
          }
        }
      }
      auto there = oracle.begin();
      for (const std::uint64_t x : l) w += there == oracle.end() || x != *there++;
      w += there != oracle.end() || l.size() != oracle.size();
      for (List::iterator it = l.end(); there != oracle.begin();) w += *--it != *--there;
      w += l.pop_front() != oracle.front();
      w += l.pop_back() != oracle.back();
      l.assign(std::array<std::uint64_t, 2>{3, 4}, 0);
      w += l.size() != 2 || *l.begin() != 3;
      l.clear();
      return w + !l.empty() + l.pop_back().has_value();
    });
    EXPECT_EQ(wrong, 0u) << "seed " << seed;
  }
}

// The bar: 2 x 20 000 pushes to one list.
TEST(List, HasAllThatTwoThreadsPush) {
  const std::uint64_t wrong = kasane::run([] {
    const List l(0);
    const std::uint32_t last = kasane::ranks() - 1;
    std::vector<kasane::thread> threads;
    for (std::uint32_t t = 0; t < 2; ++t)
      threads.emplace_back(kasane::at{t * last}, [h = List::handle(l), t, last] {
        for (std::uint64_t i = 0; i < 20000; ++i) h.push_back(t * 20000 + i, t * last);
      });
    for (auto& t : threads) t.join();
    std::array<std::uint64_t, 2> next{0, 20000};
    std::uint64_t w = l.size() != 40000;
    while (const auto x = l.pop_front()) w += next[*x / 20000]++ != *x;
    return w + (next[0] != 20000) + (next[1] != 40000);
  });
  EXPECT_EQ(wrong, 0u);
}

template <class C, class Push>
std::uint64_t walked(const C& c, const Push& push) {
  std::uint64_t w = 0, sum = 0, next = 0;
  for (std::uint64_t i = 0; i < 600; ++i) push(i);
  for (const std::uint64_t x : c) w += x != next++;
  w += next != 600;
  auto* const word =
      static_cast<std::uint64_t*>(kasane::allocate_zeroed(8, 64, kasane::placement::local.fixed()));
  const Clock seen(word);
  kasane::for_each(c, [seen](std::uint64_t x) { kasane::add(seen, x + 1); });
  w += kasane::get(seen) != 600 * 601 / 2;
  kasane::deallocate(word);
  sum = kasane::reduce(
      c, std::uint64_t{0}, [](std::uint64_t x) { return x * (kasane::rank() + 1); },
      [](std::uint64_t a, std::uint64_t b) { return a + b; });
  std::uint64_t expected = 0;
  for (std::uint64_t i = 0; i < 600; ++i) {
    if constexpr (std::is_same_v<C, Deque>)
      expected += i * (c.rank() + 1);
    else
      expected += i * (i % kasane::ranks() + 1);
  }
  w += !kasane::reduce(c, true, [](std::uint64_t x) { return x < 600; }, std::logical_and<>());
  return w + (sum != expected);
}

TEST(Deque, RangesAndReduces) {
  const std::uint64_t wrong = kasane::run([] {
    const Deque d(kasane::ranks() - 1);
    return walked(d, [&d](std::uint64_t i) { d.push_back(i); });
  });
  EXPECT_EQ(wrong, 0u);
}

TEST(List, RangesAndReduces) {
  const std::uint64_t wrong = kasane::run([] {
    const List l(kasane::ranks() - 1);
    return walked(l,
                  [&l](std::uint64_t i) { l.push_back(i, static_cast<std::uint32_t>(i) % kasane::ranks()); });
  });
  EXPECT_EQ(wrong, 0u);
}

template <class C, class Push, class Pop>
std::uint64_t through(const Push& push, const Pop& pop) {
  constexpr std::uint64_t kEach = 1500;
  const C c(kasane::ranks() - 1);
  const std::uint64_t n = 2 * kasane::ranks();
  std::vector<std::vector<std::uint64_t>> got(n);
  everywhere([&, h = typename C::handle(c)](std::uint64_t t) {
    for (std::uint64_t i = 0; i < kEach; ++i) {
      push(h, t * kEach + i, i);
      if (i % 3 != 0)
        if (const auto x = pop(h, i)) got[t].push_back(*x);
    }
  });
  std::vector<std::uint64_t> seen(n * kEach);
  for (const auto& g : got)
    for (const std::uint64_t x : g) ++seen.at(x);
  while (const auto x = pop(c, 0)) ++seen.at(*x);
  std::uint64_t w = c.size();
  for (const std::uint64_t s : seen) w += s != 1;
  return w;
}

TEST(Deque, EachElementIsPoppedOnce) {
  const std::uint64_t wrong = kasane::run([] {
    return through<Deque>(
        [](const auto& d, std::uint64_t x, std::uint64_t i) {
          i % 2 == 0 ? d.push_back(x) : d.push_front(x);
        },
        [](const auto& d, std::uint64_t i) { return i % 5 == 0 ? d.try_pop_back() : d.try_pop_front(); });
  });
  EXPECT_EQ(wrong, 0u);
}

TEST(List, EachElementIsPoppedOnce) {
  const std::uint64_t wrong = kasane::run([] {
    return through<List>(
        [](const auto& l, std::uint64_t x, std::uint64_t i) {
          const auto it = i % 2 == 0 ? l.push_back(x, kasane::rank()) : l.push_front(x);
          if (i % 16 != 0) return;
          try {  // what is there beside it may be gone by then
            auto next = it;
            for (int k = 0; k < 5 && next != l.end(); ++k) ++next;
          } catch (const kasane::error&) {
          }
        },
        [](const auto& l, std::uint64_t i) { return i % 5 == 0 ? l.pop_back() : l.pop_front(); });
  });
  EXPECT_EQ(wrong, 0u);
}

TEST(List, ErrorsSayWhatIsWrong) {
  const std::uint64_t wrong = kasane::run([] {
    List l;
    std::uint64_t w = !refused(EINVAL, [] { const List bad(kasane::ranks()); });
    w += !refused(EINVAL, [] { const Deque bad(kasane::ranks()); });
    w += !refused(EINVAL, [&] { l.push_back(1, kasane::ranks()); });
    w += !refused(EINVAL, [&] { static_cast<void>(*l.end()); });
    w += !refused(EINVAL, [&] { l.erase(l.end()); });
    using kasane::test::says;
    const std::string rank = std::to_string(kasane::ranks() + 7), here = std::to_string(kasane::ranks() - 1);
    w += !says([] { const Deque bad(kasane::ranks() + 7); }, "rank", rank);
    w += !says([&] { l.push_back(1, kasane::ranks() + 7); }, "kasane::list", "rank " + rank);
    const auto it = l.push_back(1, kasane::ranks() - 1);
    l.erase(it);
    w += !says([&] { static_cast<void>(*it); }, "kasane::list", "rank " + here, "was erased");
    const Deque::handle old = [] { return Deque::handle(Deque()); }();
    return w + !says([&] { old.push_back(1); }, "does not exist any more");
  });
  EXPECT_EQ(wrong, 0u);
}

// Callers should have ordered them; what is refused has done nothing.
TEST(Deque, CallsThatMeetAnExclusiveOneAreRefused) {
  const std::uint64_t wrong = kasane::run([] {
    std::uint64_t w = 0;
    for (std::uint32_t r = 0; r < kasane::ranks(); ++r) {
      go_to(r);
      Deque d(0), other(r);
      d.push_back(1);
      const Deque::handle h = d;
      std::array<std::uint64_t, 4> xs{};
      const std::vector<std::function<void()>> calls{
          [&] { h.push_back(2); },           [&] { h.push_front(xs); },  [&] { w += !h.try_pop_back(); },
          [&] { h.try_pop_front(xs); },      [&] { xs[0] += h.size(); }, [&] { d.swap(other); },
          [&] { d.swap(other), d.clear(); },
      };
      w += kasane::test::meets(h, calls);
      w += !d.empty() || !other.empty();
    }
    return w;
  });
  EXPECT_EQ(wrong, 0u);
}

TEST(List, CallsThatMeetAnExclusiveOneAreRefused) {
  const std::uint64_t wrong = kasane::run([] {
    std::uint64_t w = 0;
    for (std::uint32_t r = 0; r < kasane::ranks(); ++r) {
      go_to(r);
      List l(0), other(r);
      const auto it = l.push_back(1, r);
      const List::handle h = l;
      const std::array<std::uint64_t, 2> xs{7, 8};
      std::uint64_t n = 0;
      const std::vector<std::function<void()>> calls{
          [&] { h.push_back(2, 0); },  [&] { h.insert(it, 3, r); }, [&] { n += h.size(); },
          [&] { w += !h.pop_back(); }, [&] { h.erase(it); },        [&] { l.sort(); },
          [&] { l.assign(xs, r); },    [&] { l.swap(other); },      [&] { l.swap(other), l.clear(); },
      };
      w += kasane::test::meets(h, calls);
      w += !l.empty() || !other.empty();
      l.assign(xs, r);
      w += !refused(EBUSY, [&] {  // a call within an exclusive one of the same list
        l.sort([&](std::uint64_t a, std::uint64_t b) { return l.push_back(a + b), a > b; });
      });
      w += l.size() != 2 || *l.begin() != 7;
    }
    return w;
  });
  EXPECT_EQ(wrong, 0u);
}

// An element that is erased, and another one in its place: an iterator that knew the next one does not go on.
TEST(List, AnIteratorKnowsThatItsElementWasErased) {
  const std::uint64_t wrong = kasane::run([] {
    std::uint64_t w = 0;
    for (std::uint32_t r = 0; r < kasane::ranks(); ++r) {
      go_to(r);
      for (std::uint32_t at = 0; at < kasane::ranks(); ++at) {
        const List l(0);
        l.push_back(1, at);
        const auto next = l.push_back(2, at);
        const auto old = l.begin();
        w += *++List::iterator(old) != 2;
        const auto other = l.insert(l.erase(old), 3, at);
        w += !refused(ESTALE, [&] { ++List::iterator(old); }) || !refused(ESTALE, [&] { l.erase(old); });
        w += *++List::iterator(other) != 2 || *next != 2;
        w += !refused(EINVAL, [&] { List(0).erase(next); });
      }
    }
    return w;
  });
  EXPECT_EQ(wrong, 0u);
}

TEST(Deque, WithoutMemoryIsAsBefore) {
  const std::uint64_t wrong = kasane::run([] {
    struct Large {
      std::array<std::uint64_t, 64> x;
    };
    kasane::deque<Large> d(kasane::ranks() - 1);
    d.push_back(Large{{7}});
    const std::span<const Large> all(static_cast<const Large*>(nullptr), std::size_t{1} << 40);
    std::uint64_t w = 0;
    try {
      d.push_back(all);
      ++w;
    } catch (const kasane::out_of_memory& e) {
      w += std::string(e.what()).find("rank") == std::string::npos;
    }
    const auto x = d.try_pop_back();
    return w + (!x || x->x[0] != 7) + !d.empty();
  });
  EXPECT_EQ(wrong, 0u);
}

// ---- small histories --------------------------------------------------------------------------------------

std::uint64_t operate(const Deque::handle& d, std::uint32_t what, std::uint64_t x) {
  switch (what) {
    case 0: return d.push_back(x), 0;
    case 1: return d.push_front(std::array{x, x + 1}), 0;
    case 2: return d.try_pop_front().value_or(kNone);
    case 3: return d.try_pop_back().value_or(kNone);
    default: return d.size();
  }
}
std::uint64_t operate(const List::handle& l, std::uint32_t what, std::uint64_t x) {
  switch (what) {
    case 0: return l.push_back(x, static_cast<std::uint32_t>(x) % kasane::ranks()), 0;
    case 1: return l.push_front(x + 1, 0), l.push_front(x), 0;
    case 2: return l.pop_front().value_or(kNone);
    case 3: return l.pop_back().value_or(kNone);
    default: return l.size();
  }
}
bool agrees(Oracle& model, const Seen& s) {
  switch (s.what) {
    case 0: return model.push_back(s.operand), true;
    case 1: return model.push_front(s.operand + 1), model.push_front(s.operand), true;
    case 2: return s.result == take(model, true).value_or(kNone);
    case 3: return s.result == take(model, false).value_or(kNone);
    default: return s.result == model.size();
  }
}

/// Of a list without what would be two operations.
template <class C>
void are_linearisable() {
  const auto draw = [](std::minstd_rand& random) {
    const auto what = static_cast<std::uint32_t>(random() % 5);
    return Seen{0, 0, what == 1 && std::is_same_v<C, List> ? 0 : what, 0, random() % 1000, 0};
  };
  const auto all = histories(150, [&draw](unsigned seed, Clock clock, History& h) {
    const C c(seed % kasane::ranks());
    kasane::test::play(
        seed, clock, h, draw,
        [c = typename C::handle(c)](const Seen& s) { return operate(c, s.what, s.operand); }, [](auto&) {});
  });
  kasane::test::expect_linearizable(all, [](unsigned) { return Oracle{}; }, agrees);
}

TEST(Deque, SmallHistoriesAreLinearisable) { are_linearisable<Deque>(); }
TEST(List, SmallHistoriesAreLinearisable) { are_linearisable<List>(); }

}  // namespace
}  // namespace of_queue
