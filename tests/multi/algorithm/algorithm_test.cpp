// SPDX-License-Identifier: Apache-2.0
// Every parallel algorithm gives what the standard library's gives, for many lengths, alignments and grains.
// Threads compute, main expects.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <concepts>
#include <cstdint>
#include <functional>
#include <iterator>
#include <kasane/algorithm.hpp>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <ranges>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace {

using Values = std::vector<std::int64_t, kasane::allocator<std::int64_t>>;

/// Lengths around blocks and pieces, and where in an array a range begins.
struct Shape {
  std::size_t n, at, grain;
};
constexpr Shape kShapes[] = {{0, 0, 0},       {1, 0, 0},        {2, 3, 1},        {7, 0, 1},
                             {511, 5, 64},    {512, 0, 512},    {513, 0, 1000},   {4096, 1, 0},
                             {50'000, 77, 0}, {50'000, 0, 700}, {200'001, 511, 0}};

Values random_values(std::size_t n, std::uint64_t seed, std::int64_t below) {
  Values v(n);
  std::mt19937_64 random(seed);
  for (auto& x : v) x = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(below));
  return v;
}

/// Runs body(shape, input) for all shapes as root threads; the first shape whose body is false fails.
template <class F>
void for_shapes(F body) {
  std::uint64_t seed = 1;
  for (const Shape& s : kShapes) {
    const bool right = kasane::run([&, seed] {
      Values v = random_values(s.at + s.n, seed, 1000);
      return body(s, v.data() + s.at, v.data() + s.at + s.n);
    });
    EXPECT_TRUE(right) << "n " << s.n << ", at " << s.at << ", grain " << s.grain << ", seed " << seed;
    ++seed;
  }
}

TEST(Algorithm, ForEachAndFillReachEveryElementOnce) {
  for_shapes([](const Shape& s, std::int64_t* first, std::int64_t* last) {
    const Values before(first, last);
    kasane::for_each(first, last, [](std::int64_t& x) { ++x; }, s.grain);
    for (std::size_t i = 0; i < s.n; ++i)
      if (first[i] != before[i] + 1) return false;
    kasane::fill(std::span(first, last), -3, s.grain);
    return std::count(first, last, -3) == static_cast<std::ptrdiff_t>(s.n);
  });
}

TEST(Algorithm, TransformAndCopyWriteTheirRangeAndNothingBeside) {
  for_shapes([](const Shape& s, std::int64_t* first, std::int64_t* last) {
    Values out(s.n + 2, 0), expected(s.n);
    out.front() = out.back() = 4711;
    const auto twice = [](std::int64_t x) { return 2 * x; };
    auto end = kasane::transform(first, last, out.begin() + 1, twice, s.grain);
    std::transform(first, last, expected.begin(), twice);
    if (end != out.end() - 1 || !std::equal(expected.begin(), expected.end(), out.begin() + 1)) return false;
    end = kasane::transform(first, last, out.begin() + 1, out.begin() + 1, std::minus<>(), s.grain);
    for (std::size_t i = 0; i < s.n; ++i)
      if (out[i + 1] != -first[i]) return false;
    end = kasane::copy(first, last, out.begin() + 1, s.grain);
    return end == out.end() - 1 && std::equal(first, last, out.begin() + 1) && out.front() == 4711 &&
           out.back() == 4711;
  });
}

/// x -> a x + b, composed: associative, not commutative.
struct Affine {
  std::uint64_t a = 1, b = 0;
  friend bool operator==(const Affine&, const Affine&) = default;
};
constexpr auto then = [](Affine f, Affine g) { return Affine{f.a * g.a, f.b * g.a + g.b}; };

TEST(Algorithm, ReductionsKeepTheOrder) {
  for_shapes([](const Shape& s, std::int64_t* first, std::int64_t* last) {
    const auto affine = [](std::int64_t x) {
      return Affine{static_cast<std::uint64_t>(x) | 1, static_cast<std::uint64_t>(x)};
    };
    const Affine init{3, 5};
    Affine expected = init;
    for (const std::int64_t* p = first; p != last; ++p) expected = then(expected, affine(*p));
    if (kasane::transform_reduce(first, last, init, then, affine, s.grain) != expected) return false;
    if (kasane::reduce(first, last) != std::accumulate(first, last, std::int64_t{0})) return false;
    if (kasane::reduce(
            std::span(first, last), std::int64_t{-1},
            [](std::int64_t a, std::int64_t b) { return std::max(a, b); },
            s.grain) != std::accumulate(first, last, std::int64_t{-1},
                                        [](std::int64_t a, std::int64_t b) { return std::max(a, b); }))
      return false;
    return kasane::transform_reduce(first, last, first, std::int64_t{1}) ==
           std::inner_product(first, last, first, std::int64_t{1});
  });
}

TEST(Algorithm, ReducesWhatOwnsMemory) {
  const std::string text = kasane::run([] {
    std::vector<std::string, kasane::allocator<std::string>> words;
    for (int i = 0; i < 3000; ++i) words.push_back(std::to_string(i) + ",");
    return kasane::reduce(words.begin(), words.end(), std::string("["), std::plus<>(), 16);
  });
  std::string expected = "[";
  for (int i = 0; i < 3000; ++i) expected += std::to_string(i) + ",";
  EXPECT_EQ(text, expected);
}

TEST(Algorithm, CountsAndExtremes) {
  for_shapes([](const Shape& s, std::int64_t* first, std::int64_t* last) {
    return kasane::count(first, last, 7, s.grain) == std::count(first, last, 7) &&
           kasane::count_if(
               first, last, [](std::int64_t x) { return x % 3 == 0; }, s.grain) ==
               std::count_if(first, last, [](std::int64_t x) { return x % 3 == 0; }) &&
           kasane::min_element(first, last, std::less<>(), s.grain) == std::min_element(first, last) &&
           kasane::max_element(first, last, std::less<>(), s.grain) == std::max_element(first, last);
  });
}

TEST(Algorithm, FindsTheFirst) {
  for_shapes([](const Shape& s, std::int64_t* first, std::int64_t* last) {
    for (const std::int64_t wanted : {std::int64_t{0}, std::int64_t{999}, std::int64_t{-1}})
      if (kasane::find(first, last, wanted, s.grain) != std::find(first, last, wanted)) return false;
    return kasane::any_of(
               first, last, [](std::int64_t x) { return x == 5; }, s.grain) ==
               (std::find(first, last, 5) != last) &&
           kasane::all_of(
               first, last, [](std::int64_t x) { return x >= 0; }, s.grain) &&
           kasane::none_of(first, last, [](std::int64_t x) { return x < 0; }, s.grain);
  });
}

// The pieces of a search, in random orders, as they may be begun: of those behind a hit that is known none is
// looked at, of the hit's own what lies before it. So how many elements are looked at is known for each
// order, whatever the time.
TEST(Algorithm, AFoundElementEndsTheSearch) {
  constexpr std::uint64_t kPieces = 50, kGrain = 64,
                          kHits[] = {7 * kGrain + 5, 30 * kGrain, 31 * kGrain + 63};
  for (unsigned seed = 1; seed <= 200; ++seed) {
    std::vector<std::uint64_t, kasane::allocator<std::uint64_t>> order(kPieces);
    std::iota(order.begin(), order.end(), 0U);
    std::shuffle(order.begin(), order.end(), std::minstd_rand(seed));
    std::uint64_t expected = 0, known = kPieces * kGrain;
    for (const std::uint64_t piece : order) {
      const std::uint64_t begin = piece * kGrain, end = begin + kGrain;
      if (known <= begin) continue;
      const auto* const hit = std::find_if(std::begin(kHits), std::end(kHits),
                                           [=](std::uint64_t h) { return h >= begin && h < end; });
      expected += hit == std::end(kHits) ? kGrain : *hit - begin + 1;
      if (hit != std::end(kHits)) known = std::min(known, *hit);
    }
    const auto [looked, found] = kasane::run([&order, &kHits] {
      Values v(kPieces * kGrain, 0);
      for (const std::uint64_t hit : kHits) v[hit] = 1;
      std::uint64_t count = 0;
      const auto predicate = [&count](std::int64_t x) { return ++count, x == 1; };
      const kasane::detail::SharedIndex first_hit(v.size());
      kasane::detail::SearchPiece piece(v.data(), first_hit.at(), predicate);
      for (const std::uint64_t p : order) piece(p * kGrain, (p + 1) * kGrain);
      return std::pair(count, kasane::get(first_hit.at()));
    });
    EXPECT_EQ(looked, expected) << "seed " << seed;
    EXPECT_EQ(found, kHits[0]) << "seed " << seed;
  }
}

// find_if runs these pieces: with one worker in the job in order, and so no further than to the hit.
TEST(Algorithm, OneWorkerLooksNoFurtherThanTheFirst) {
  const auto [looked, found] = kasane::run([] {
    Values v(1 << 20, 0);
    v[1000] = 1;
    const std::unique_ptr<std::uint64_t, kasane::array_deleter> count(
        static_cast<std::uint64_t*>(kasane::allocate(8)));
    const kasane::global_ptr<std::uint64_t> at(count.get());
    kasane::put(at, std::uint64_t{0});
    const auto hit = kasane::find_if(
        v,
        [at](std::int64_t x) {
          kasane::add(at, 1);
          return x == 1;
        },
        512);
    return std::pair(kasane::get(at), hit - v.begin());
  });
  EXPECT_EQ(found, 1000);
  if (kasane::ranks() * kasane::workers() == 1) {
    EXPECT_EQ(looked, 1001U);
  }
}

/// How often the pieces of [begin, end) have gone near their memory on the way down: least and most.
std::pair<int, int> times_near(kasane::detail::Cut cut, std::uint64_t begin, std::uint64_t end) {
  const int here = cut.enter(begin, end) ? 1 : 0;
  if (end - begin <= cut.grain) return {here, here};
  const std::uint64_t middle = cut.middle(begin, end);
  const auto left = times_near(cut, begin, middle), right = times_near(cut, middle, end);
  return {here + std::min(left.first, right.first), here + std::max(left.second, right.second)};
}

TEST(Algorithm, PiecesOfLargeRangesGoNearTheirMemoryOnce) {
  alignas(4096) static std::uint64_t memory[512 + 5];
  for (const std::uint64_t* first : {memory, memory + 5}) {
    for (const std::uint64_t n : {std::uint64_t{100}, std::uint64_t{65'536}, std::uint64_t{140'000},
                                  std::uint64_t{1'000'003}, std::uint64_t{100'000'000}}) {
      for (const std::uint64_t grain : {std::uint64_t{0}, std::uint64_t{1000}, std::uint64_t{40'000'000}}) {
        const auto cut = kasane::detail::cut_for(first, n, grain);
        const bool near = kasane::ranks() > 1 && n > 65'536 && n > cut.grain;  // 512 KiB
        const auto [least, most] = times_near(cut, 0, n);
        EXPECT_GE(least, near ? 1 : 0) << n << " elements, grain " << grain;
        EXPECT_LE(most, near ? 1 : 0) << n << " elements, grain " << grain;
        // The numbered pieces of a scan; the first begins `phase` elements before the range.
        const std::uint64_t step = (cut.grain + cut.unit - 1) / cut.unit * cut.unit,
                            count = (n + cut.phase + step - 1) / step;
        const auto pieces = kasane::detail::cut_of_pieces(cut, step, cut.phase);
        EXPECT_EQ(times_near(pieces, 0, count), std::pair(near ? 1 : 0, near ? 1 : 0))
            << n << " elements, grain " << grain;
        if (!near) continue;
        EXPECT_EQ(pieces.first + pieces.bytes, reinterpret_cast<const std::byte*>(first + step - cut.phase))
            << "where the second piece begins";
      }
    }
  }
  EXPECT_EQ(kasane::detail::cut_for(std::vector<bool>(1 << 24).begin(), 1 << 24, 0).near,
            0u);  // not contiguous
}

TEST(Algorithm, ArraysAtOneRank) {
  constexpr std::size_t n = 1 << 18;
  for (std::uint32_t owner = 0; owner < kasane::ranks(); ++owner) {
    EXPECT_TRUE(kasane::run([owner] {
      const auto a = kasane::make_array<std::uint64_t>(n, kasane::placement::on(owner));
      const auto index = [first = a.get()](std::uint64_t& x) { x = static_cast<std::uint64_t>(&x - first); };
      kasane::for_each(a.get(), a.get() + n, index);
      kasane::sort(a.get(), a.get() + n, std::greater<>());
      return kasane::reduce(a.get(), a.get() + n) == n * (n - 1) / 2 &&
             std::is_sorted(a.get(), a.get() + n, std::greater<>());
    })) << "rank "
        << owner;
  }
}

TEST(Algorithm, ScansKeepTheOrderAlsoInPlace) {
  for_shapes([](const Shape& s, std::int64_t* first, std::int64_t* last) {
    Values expected(s.n), out(s.n);
    std::inclusive_scan(first, last, expected.begin());
    if (kasane::inclusive_scan(first, last, out.begin(), std::plus<>(), std::nullopt, s.grain) != out.end() ||
        out != expected)
      return false;
    std::inclusive_scan(first, last, expected.begin(), std::plus<>(), std::int64_t{-4});
    if (kasane::inclusive_scan(first, last, out.begin(), std::plus<>(), std::int64_t{-4}, s.grain) !=
            out.end() ||
        out != expected)
      return false;
    std::exclusive_scan(first, last, expected.begin(), std::int64_t{9});
    kasane::exclusive_scan(first, last, out.begin(), std::int64_t{9}, std::plus<>(), s.grain);
    if (out != expected) return false;

    std::vector<Affine, kasane::allocator<Affine>> steps, sums(s.n);
    for (const std::int64_t* p = first; p != last; ++p)
      steps.push_back({static_cast<std::uint64_t>(*p) | 1, static_cast<std::uint64_t>(*p)});
    std::inclusive_scan(steps.begin(), steps.end(), sums.begin(), then, Affine{2, 3});
    kasane::inclusive_scan(steps.begin(), steps.end(), steps.begin(), then, Affine{2, 3}, s.grain);
    return steps == sums;
  });
}

TEST(Algorithm, SortsAndMerges) {
  for_shapes([](const Shape& s, std::int64_t* first, std::int64_t* last) {
    Values expected(first, last), other = random_values(s.n / 3, s.n + 1, 500);
    std::sort(expected.begin(), expected.end());
    kasane::sort(first, last, std::less<>(), s.grain);
    if (!std::equal(expected.begin(), expected.end(), first)) return false;
    kasane::sort(other, std::less<>(), s.grain);
    Values merged(s.n + other.size()), expected_merge(merged.size());
    std::merge(expected.begin(), expected.end(), other.begin(), other.end(), expected_merge.begin());
    if (kasane::merge(first, last, other.begin(), other.end(), merged.begin(), std::less<>(), s.grain) !=
        merged.end())
      return false;
    return merged == expected_merge;
  });
}

// Each algorithm over a range is that over its iterators, with the arguments of std::ranges.
TEST(Algorithm, TakesRangesAsWellAsIterators) {
  for_shapes([](const Shape& s, std::int64_t* first, std::int64_t* last) {
    const std::span<std::int64_t> in(first, last);
    Values out(s.n), expected(s.n), longer(s.n + 3, 2);
    const auto right = [&](auto end) {
      return end == out.begin() + static_cast<std::ptrdiff_t>(s.n) && out == expected;
    };
    const auto odd = [](std::int64_t x) { return x % 2 != 0; };
    const auto negative = [](std::int64_t x) { return -x; };

    std::transform(first, last, expected.begin(), negative);
    bool good = right(kasane::transform(in, out.begin(), negative, s.grain));
    std::transform(first, last, longer.begin(), expected.begin(), std::multiplies<>());
    good = good && right(kasane::transform(in, longer, out.begin(), std::multiplies<>(), s.grain)) &&
           right(kasane::transform(longer, in, out.begin(), std::multiplies<>()));
    std::copy(first, last, expected.begin());
    good = good && right(kasane::copy(in, out.begin(), s.grain));
    std::inclusive_scan(first, last, expected.begin());
    good = good && right(kasane::inclusive_scan(in, out.begin()));
    std::inclusive_scan(first, last, expected.begin(), std::plus<>(), std::int64_t{5});
    good = good && right(kasane::inclusive_scan(in, out.begin(), std::plus<>(), std::int64_t{5}, s.grain));
    std::exclusive_scan(first, last, expected.begin(), std::int64_t{5});
    good = good && right(kasane::exclusive_scan(in, out.begin(), std::int64_t{5}, std::plus<>(), s.grain));

    const std::int64_t sum = std::accumulate(first, last, std::int64_t{0});
    good = good && kasane::reduce(in) == sum && kasane::reduce(in, std::int64_t{1}) == sum + 1 &&
           kasane::reduce(Values(first, last)) == sum;
    good = good && kasane::transform_reduce(in, std::int64_t{0}, std::plus<>(), negative, s.grain) == -sum;
    good = good && kasane::transform_reduce(in, longer, std::int64_t{0}) == 2 * sum &&
           kasane::transform_reduce(longer, in, std::int64_t{0}, std::plus<>(), std::minus<>()) ==
               2 * static_cast<std::int64_t>(s.n) - sum;
    good = good && kasane::count(in, 7, s.grain) == std::count(first, last, 7) &&
           kasane::count_if(in, odd) == std::count_if(first, last, odd);
    good = good && kasane::min_element(in) == std::ranges::min_element(in) &&
           kasane::max_element(in, std::less<>(), s.grain) == std::ranges::max_element(in);
    good = good && kasane::find(in, 999, s.grain) == std::ranges::find(in, 999) &&
           kasane::find_if(in, odd) == std::ranges::find_if(in, odd);
    good = good && kasane::any_of(in, odd) == std::any_of(first, last, odd) &&
           kasane::all_of(in, odd, s.grain) == std::all_of(first, last, odd) &&
           kasane::none_of(in, odd) == std::none_of(first, last, odd);

    kasane::stable_sort(in, std::less<>(), s.grain);
    good = good && std::is_sorted(first, last);
    Values merged(s.n + longer.size()), expected_merge(merged.size());
    std::merge(first, last, longer.begin(), longer.end(), expected_merge.begin());
    return good && kasane::merge(in, longer, merged.begin()) == merged.end() && merged == expected_merge;
  });
  static_assert(std::same_as<decltype(kasane::find(std::declval<Values>(), 1)), std::ranges::dangling>,
                "of a vector that is gone");
  static_assert(
      std::same_as<decltype(kasane::find(std::declval<std::span<int>>(), 1)), std::span<int>::iterator>);
}

struct Keyed {
  std::uint32_t key, place;
  friend bool operator==(const Keyed&, const Keyed&) = default;
};

TEST(Algorithm, StableSortKeepsEqualElementsInOrder) {
  EXPECT_TRUE(kasane::run([] {
    std::vector<Keyed, kasane::allocator<Keyed>> v(60'000);
    std::mt19937 random(5);
    for (std::uint32_t i = 0; i < v.size(); ++i) v[i] = {static_cast<std::uint32_t>(random() % 50), i};
    auto expected = v;
    const auto less = [](const Keyed& a, const Keyed& b) { return a.key < b.key; };
    std::stable_sort(expected.begin(), expected.end(), less);
    kasane::stable_sort(v.begin(), v.end(), less, 1000);
    return v == expected;
  }));
}

TEST(Algorithm, SortsWhatOwnsMemory) {
  EXPECT_TRUE(kasane::run([] {
    std::vector<std::string, kasane::allocator<std::string>> v;
    std::mt19937 random(6);
    for (int i = 0; i < 20'000; ++i) v.push_back(std::string(random() % 40, 'a') + std::to_string(random()));
    auto expected = v;
    std::sort(expected.begin(), expected.end(), std::greater<>());
    kasane::sort(v, std::greater<>(), 300);
    return v == expected;
  }));
}

TEST(Algorithm, ExceptionsPassAfterAllPiecesHaveEnded) {
  EXPECT_THROW(kasane::run([] {
                 Values v(10'000, 1);
                 v[7'000] = 2;
                 kasane::for_each(
                     v,
                     [](std::int64_t x) {
                       if (x == 2) throw std::out_of_range("seven");
                     },
                     100);
               }),
               std::out_of_range);
  EXPECT_THROW(kasane::run([] {
                 Values v = random_values(10'000, 3, 100);
                 kasane::sort(
                     v,
                     [](std::int64_t a, std::int64_t b) {
                       if (a == 50) throw std::domain_error("fifty");
                       return a < b;
                     },
                     100);
               }),
               std::domain_error);
}

TEST(Algorithm, OutsideOfRunItSaysSo) {
  std::vector<int> v(100'000);
  try {
    kasane::fill(v, 1);
    FAIL();
  } catch (const kasane::error& e) {
    EXPECT_EQ(e.code(), EPERM);
  }
}

}  // namespace
