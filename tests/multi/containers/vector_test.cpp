// SPDX-License-Identifier: Apache-2.0
// kasane::vector: random operations against std's, by threads that move about; all ranks at once; small
// histories, of which a serial order is searched. Threads only compute, and main expects.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <functional>
#include <kasane/containers/vector.hpp>
#include <kasane/kasane.hpp>
#include <random>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "multi/containers/histories.h"
#include "multi/containers/on_ranks.h"

namespace of_vector {
namespace {

using kasane::global_ptr;
using kasane::placement;
using kasane::test::Clock, kasane::test::histories, kasane::test::History, kasane::test::kNone,
    kasane::test::Seen;
using kasane::test::everywhere, kasane::test::go_to, kasane::test::refused;
using Words = kasane::vector<std::uint64_t>;
static_assert(std::is_trivially_copyable_v<Words::handle>);

struct Pair {
  std::uint64_t a, b, c;
  Pair() = default;
  Pair(std::uint64_t x) : a(x), b(~x), c(x * 3) {}
  operator std::uint64_t() const { return b == ~a && c == a * 3 ? a : ~std::uint64_t{0}; }
  friend bool operator==(const Pair&, const Pair&) = default;
};

/// An exclusive call on both.
template <class T>
bool exclusive_differs(kasane::vector<T>& v, std::vector<T>& oracle, std::minstd_rand& random) {
  const std::size_t n = oracle.size();
  const T x(random());
  switch (random() % 6) {
    case 0:
      if (n == 0) return !refused(EINVAL, [&] { v.pop_back(); });
      if (!(v.pop_back() == oracle.back())) return true;
      return oracle.pop_back(), false;
    case 1: {
      const std::size_t i = random() % (n + 1);
      v.insert(i, x);
      oracle.insert(oracle.begin() + static_cast<std::ptrdiff_t>(i), x);
      return false;
    }
    case 2: {
      if (n == 0) return false;
      const std::size_t i = random() % n, count = random() % std::min<std::size_t>(n - i, 50);
      v.erase(i, count);
      const auto at = oracle.begin() + static_cast<std::ptrdiff_t>(i);
      oracle.erase(at, at + static_cast<std::ptrdiff_t>(count));
      return false;
    }
    case 3: {
      const std::size_t to = n / 2 + random() % (n + 2);
      v.resize(to, x);
      oracle.resize(to, x);
      return false;
    }
    case 4:
      if (random() % 8 == 0) v.clear(), oracle.clear();
      return v.size() != oracle.size();
    default: {
      const kasane::vector<T> copy = v.duplicate(static_cast<std::uint32_t>(random()) % kasane::ranks());
      std::size_t i = 0;
      for (const T& y : copy)
        if (i >= n || !(y == oracle[i++])) return true;
      return i != n;
    }
  }
}

template <class T>
bool differs(kasane::vector<T>& v, std::vector<T>& oracle, std::minstd_rand& random) {
  const std::size_t n = oracle.size();
  const T x(random());
  switch (random() % 6) {
    case 0: return oracle.push_back(x), v.push_back(x) != n;
    case 1: {
      std::vector<T> xs(random() % (random() % 10 == 0 ? 1500 : 30));
      for (T& y : xs) y = T(random());
      oracle.insert(oracle.end(), xs.begin(), xs.end());
      return v.append(xs) != n;
    }
    case 2:
      if (n == 0) return !refused(EINVAL, [&] { static_cast<void>(v.get(0)); });
      return !(v.get(n - 1) == oracle[n - 1]);
    case 3: {
      const std::size_t i = random() % (n + 1);
      if (i == n) return !refused(EINVAL, [&] { v.put(n, x); }) || v.size() != n;
      v.put(i, x);
      oracle[i] = x;
      return false;
    }
    case 4: {
      const std::size_t i = random() % (n + 1);
      if (i == n) return v.size() != n;
      if constexpr (std::is_integral_v<T> && sizeof(T) >= 4) {
        const T before = oracle[i];
        oracle[i] = static_cast<T>(oracle[i] + x);
        return v.fetch_add(i, x) != before;
      } else {
        return !(v.get(i) == oracle[i]);
      }
    }
    default: return random() % 20 == 0 && exclusive_differs(v, oracle, random);
  }
}

template <class T>
std::uint64_t plays(unsigned seed, const std::vector<std::uint32_t>& ranks) {
  std::minstd_rand random(seed);
  kasane::vector<T> v(ranks);
  std::vector<T> oracle;
  std::uint64_t w = 0;
  for (int i = 0; i < 1500 && w == 0; ++i) {
    if (i % 100 == 0) go_to(static_cast<std::uint32_t>(random()) % kasane::ranks());
    if (oracle.size() > 6000) oracle.resize(100), v.resize(100);
    w += differs(v, oracle, random);
  }
  std::size_t i = 0;
  for (const T& x : v) w += i >= oracle.size() || !(x == oracle[i++]);
  std::uint64_t sum = 0;
  for (const T& x : oracle) sum += static_cast<std::uint64_t>(x);
  w += kasane::reduce(
           v, std::uint64_t{0}, [](const T& x) { return static_cast<std::uint64_t>(x); },
           [](std::uint64_t a, std::uint64_t b) { return a + b; }) != sum;
  w += kasane::reduce(v, false, [](const T& x) { return !(x == x); }, std::logical_or<>());
  return w + (i != oracle.size()) + (v.size() != oracle.size());
}

TEST(Vector, IsWhatStdsIs) {
  for (unsigned seed = 1; seed <= 3; ++seed) {
    const std::uint64_t wrong = kasane::run([seed] {
      const std::uint32_t last = kasane::ranks() - 1;
      return plays<std::uint64_t>(seed, {}) + plays<std::uint32_t>(seed + 10, {last}) +
             plays<std::uint8_t>(seed + 20, {}) + plays<Pair>(seed + 30, {}) + plays<Pair>(seed + 40, {last});
    });
    EXPECT_EQ(wrong, 0u) << "seed " << seed;
  }
}

template <class T>
std::uint64_t all_at_once(const std::vector<std::uint32_t>& ranks) {
  constexpr std::uint64_t kEach = 4000;
  kasane::vector<T> v(ranks);
  std::vector<std::uint64_t> wrong(2 * kasane::ranks());
  everywhere([&, h = typename kasane::vector<T>::handle(v)](std::uint64_t t) {
    std::uint64_t w = 0, last = 0;
    std::size_t before = 0;
    for (std::uint64_t i = 0; i < kEach;) {
      const std::uint64_t n = i % 100 == 50 ? 40 : 1;
      std::vector<T> xs(n);
      for (T& x : xs) x = T(t * kEach + i++);
      const std::size_t at = n == 1 ? h.push_back(xs[0]) : h.append(xs);
      w += at < last || !(h.get(at) == xs[0]);
      last = at;
      if (i % 500 != 0) continue;
      const std::size_t size = h.size();
      w += size < before || (size != 0 && std::uint64_t(h.get(size - 1)) == ~std::uint64_t{0});
      before = size;
    }
    wrong[t] = w;
  });
  std::uint64_t w = v.size() != 2 * kasane::ranks() * kEach;
  for (const std::uint64_t x : wrong) w += x;
  std::vector<std::uint64_t> seen(2 * kasane::ranks() * kEach), last(2 * kasane::ranks());
  for (const T& x : v) {
    const std::uint64_t i = x;
    if (i >= seen.size()) return w + 1;
    ++seen[i];
    w += last[i / kEach] > i;  // of one thread in its order
    last[i / kEach] = i;
  }
  for (const std::uint64_t s : seen) w += s != 1;
  return w;
}

TEST(Vector, AllRanksAtOnce) {
  EXPECT_EQ(kasane::run([] { return all_at_once<std::uint64_t>({}); }), 0u);
  EXPECT_EQ(kasane::run([] { return all_at_once<Pair>({}); }), 0u);
  EXPECT_EQ(kasane::run([] { return all_at_once<std::uint64_t>({kasane::ranks() - 1}); }), 0u);
}

// The bar: 2 x 20 000 pushes to one vector.
TEST(Vector, HasAllThatTwoThreadsPush) {
  const std::size_t size = kasane::run([] {
    const Words v({0});
    std::vector<kasane::thread> threads;
    for (std::uint32_t t = 0; t < 2; ++t)
      threads.emplace_back(kasane::at{t % kasane::ranks()}, [h = Words::handle(v)] {
        for (std::uint64_t i = 0; i < 20000; ++i) h.push_back(i);
      });
    for (auto& t : threads) t.join();
    return v.size();
  });
  EXPECT_EQ(size, 40000u);
}

// Elements that are written in more than one access are seen whole.
TEST(Vector, LargeElementsAreWhole) {
  const std::uint64_t wrong = kasane::run([] {
    kasane::vector<Pair> v;
    for (std::uint64_t i = 0; i < 4; ++i) v.push_back(i);
    std::vector<std::uint64_t> bad(2 * kasane::ranks());
    everywhere([&, h = kasane::vector<Pair>::handle(v)](std::uint64_t t) {
      for (std::uint64_t i = 0; i < 2000; ++i) {
        if (t % 2 == 0) h.put(i % 4, t * 10000 + i);
        if (std::uint64_t(h.get(i % 4)) == ~std::uint64_t{0}) ++bad[t];
      }
    });
    std::uint64_t w = 0;
    for (const std::uint64_t b : bad) w += b;
    return w;
  });
  EXPECT_EQ(wrong, 0u);
}

TEST(Vector, ForEachCallsWhereElementsAre) {
  const std::uint64_t wrong = kasane::run([] {
    Words v;
    for (std::uint64_t i = 0; i < 20000; ++i) v.push_back(i);
    auto* const seen = static_cast<std::uint64_t*>(kasane::allocate_zeroed(8, 64, placement::local.fixed()));
    const global_ptr<std::uint64_t> s(seen);
    kasane::for_each(v, [s](std::uint64_t x) { kasane::add(s, x); });
    std::uint64_t w = kasane::get(s) != 20000ull * 19999 / 2;
    kasane::deallocate(seen);
    w += kasane::ranks() > 1 && v.rank_of(0) == v.rank_of(512);
    std::vector<std::uint64_t> some(700);
    v.read(300, some);
    for (std::uint64_t i = 0; i < 700; ++i) w += some[i] != 300 + i;
    return w + !refused(EINVAL, [&] { v.read(19999, std::span(some).first(2)); });
  });
  EXPECT_EQ(wrong, 0u);
}

TEST(Vector, ErrorsSayWhatIsWrong) {
  std::string text;
  const std::uint64_t wrong = kasane::run([&text] {
    std::uint64_t w = !refused(EINVAL, [] { const Words v({kasane::ranks()}); });
    Words v, other;
    v.push_back(1);
    try {
      v.put(7, 0);
    } catch (const kasane::error& e) {
      text = e.what();
    }
    v.swap(other);
    w += !v.empty() || other.size() != 1;
    const Words::handle old = [] { return Words::handle(Words()); }();
    return w + !refused(EINVAL, [&] { old.push_back(1); });
  });
  EXPECT_EQ(wrong, 0u);
  EXPECT_NE(text.find("no element 7; the size is 1"), std::string::npos) << text;
}

// Callers should have ordered them; what is refused has done nothing.
TEST(Vector, ExclusiveCallsThatOverlapPushesAreRefused) {
  const std::uint64_t wrong = kasane::run([] {
    Words v;
    std::vector<std::uint64_t> done(2);
    std::vector<kasane::thread> threads;
    for (std::uint32_t t = 0; t < 2; ++t)
      threads.emplace_back(kasane::at{t * (kasane::ranks() - 1)}, [&, t] {
        for (std::uint64_t i = 0; i < 3000; ++i) {
          try {
            if (t == 0)
              v.push_back(i);
            else
              v.pop_back();
            ++done[t];
          } catch (const kasane::error& e) {
            if (e.code() != EBUSY && e.code() != EINVAL) throw;
          }
          if (i % 16 == 0) kasane::this_thread::yield();
        }
      });
    for (auto& t : threads) t.join();
    return std::uint64_t{v.size() != done[0] - done[1]};
  });
  EXPECT_EQ(wrong, 0u);
}

TEST(Vector, CallsThatMeetAnExclusiveOneAreRefused) {
  const std::uint64_t wrong = kasane::run([] {
    std::uint64_t w = 0;
    for (std::uint32_t r = 0; r < kasane::ranks(); ++r) {
      go_to(r);
      Words v({0}), other;
      v.push_back(1);
      const Words::handle h = v;
      const std::array<std::uint64_t, 2> xs{7, 8};
      const std::vector<std::function<void()>> calls{
          [&] { h.push_back(2); },
          [&] { h.append(xs); },
          [&] { w += v.pop_back() != 8; },
          [&] { v.insert(0, 5); },
          [&] { v.erase(1); },
          [&] { v.assign(xs); },
          [&] { v.resize(600); },
          [&] { v = v.duplicate(r); },
          [&] { v.swap(other); },
          [&] { v.swap(other), v.clear(); },
      };
      w += kasane::test::meets(h, calls);
      w += !v.empty() || !other.empty();
    }
    return w;
  });
  EXPECT_EQ(wrong, 0u);
}

TEST(Vector, WithoutMemoryIsAsBefore) {
  const std::uint64_t wrong = kasane::run([] {
    kasane::vector<Pair> v({kasane::ranks() - 1});
    for (std::uint64_t i = 0; i < 200; ++i) v.push_back(i);
    std::uint64_t w = 0;
    try {
      v.resize(std::size_t{1} << 40);
      ++w;
    } catch (const kasane::out_of_memory& e) {
      w += std::string(e.what()).find("rank") == std::string::npos;
    }
    w += v.size() != 200 || v.push_back(200) != 200;
    for (std::uint64_t i = 0; i <= 200; ++i) w += std::uint64_t(v.get(i)) != i;
    return w;
  });
  EXPECT_EQ(wrong, 0u);
}

// ---- small histories --------------------------------------------------------------------------------------

using Model = std::vector<std::uint64_t>;

std::uint64_t operate(const Words::handle& v, const Seen& s, std::uint64_t first) {
  const std::uint64_t i = first + s.key, x = s.operand;
  try {
    switch (s.what) {
      case 0: return v.push_back(x);
      case 1: return v.append(std::array{x, x + 1});
      case 2: return v.get(i);
      case 3: return v.put(i, x), 0;
      default: return v.fetch_add(i, x);
    }
  } catch (const kasane::error&) {
    return kNone;
  }
}
/// Indices are given to pushes in an order; an element is there when its push has taken effect.
bool agrees(Model& model, std::uint64_t first, const Seen& s) {
  const auto set = [&](std::uint64_t i, std::uint64_t x) {
    if (model.size() <= i) model.resize(i + 1, kNone);
    if (model[i] != kNone) return false;
    return model[i] = x, true;
  };
  const std::uint64_t at = first + s.key;
  const bool there = at < model.size() && model[at] != kNone;
  switch (s.what) {
    case 0: return set(s.result, s.operand);
    case 1: return false;  // is two pushes with consecutive indices
    case 2: return s.result == (there ? model[at] : kNone);
    case 3:
      if (there) model[at] = s.operand;
      return s.result == (there ? 0 : kNone);
    default: {
      const std::uint64_t before = there ? model[at] : kNone;
      if (there) model[at] += s.operand;
      return s.result == before;
    }
  }
}

/// An append of two is two pushes.
std::vector<std::vector<Seen>> pushes(std::vector<std::vector<Seen>> histories) {
  for (auto& h : histories) {
    const std::size_t n = h.size();
    for (std::size_t i = 0; i < n; ++i) {
      if (h[i].what != 1) continue;
      h[i].what = 0;
      h.push_back(h[i]);
      ++h.back().operand, ++h.back().result;
    }
  }
  return histories;
}

TEST(Vector, SmallHistoriesAreLinearisable) {
  // Half of the histories begin with the first elements of a round, so that the vector grows meanwhile.
  const auto first = [](unsigned seed) { return seed % 2 == 0 ? 0 : 512 * kasane::ranks() - 2; };
  const auto draw = [](std::minstd_rand& random) {
    const auto what = static_cast<std::uint32_t>(random() % 5);
    const std::uint64_t i = random() % 4;
    return Seen{0, 0, what, i, random() % 1000, 0};
  };
  const auto all = histories(250, [&](unsigned seed, Clock clock, History& h) {
    const Words v;
    v.append(std::vector<std::uint64_t>(first(seed), 5));
    kasane::test::play(
        seed, clock, h, draw,
        [v = Words::handle(v), n = first(seed)](const Seen& s) { return operate(v, s, n); }, [](auto&) {});
  });
  const auto of = [&](unsigned seed) { return std::pair(Model(first(seed), 5), first(seed)); };
  kasane::test::expect_linearizable(pushes(all), of,
                                    [](auto& m, const Seen& s) { return agrees(m.first, m.second, s); });
}

}  // namespace
}  // namespace of_vector
