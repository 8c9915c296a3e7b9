// SPDX-License-Identifier: Apache-2.0
// kasane::atomic and atomic_ref of all kinds of values, changed by threads of all ranks. What they may be,
// the compiler checks; what came of it, an oracle.
#include <gtest/gtest.h>

#include <atomic>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <kasane/kasane.hpp>
#include <memory>
#include <random>
#include <type_traits>
#include <utility>

#include "multi/api/everywhere.h"

namespace {

using kasane::test::everywhere, kasane::test::for_seeds, kasane::test::kThreads, kasane::test::linger;

enum class Colour : std::uint32_t { red, green, blue };
struct Pair {
  std::uint32_t a = 0, b = 0;
};
struct Large {
  std::uint64_t a, b;
};

template <class A, class D>
concept adds = requires(A& a, D d) { a.fetch_add(d), a += d; };
template <class A>
concept steps = requires(A& a) { ++a, a--; };
template <class A, class T>
concept masks = requires(A& a, T v) { a.fetch_or(v), a &= v, a ^= v; };

static_assert(sizeof(kasane::atomic<bool>) == 4 && sizeof(kasane::atomic<Colour>) == 4 &&
              sizeof(kasane::atomic<double>) == 8 && sizeof(kasane::atomic<Pair>) == 8);
static_assert(alignof(kasane::atomic<Pair>) == 8 && kasane::atomic_ref<Pair>::required_alignment == 8);
static_assert(steps<kasane::atomic<int>> && steps<kasane::atomic<char>> && steps<kasane::atomic<int*>>);
static_assert(!steps<kasane::atomic<double>> && !steps<kasane::atomic<bool>> &&
              !steps<kasane::atomic<void*>> && !steps<kasane::atomic<Colour>>);
static_assert(adds<kasane::atomic<float>, float> && adds<kasane::atomic<Large*>, std::ptrdiff_t> &&
              !adds<kasane::atomic<Pair>, Pair>);
static_assert(masks<kasane::atomic<std::uint8_t>, std::uint8_t> && !masks<kasane::atomic<bool>, bool> &&
              !masks<kasane::atomic<int*>, int*>);
static_assert(!std::is_copy_constructible_v<kasane::atomic<int>> &&
              std::convertible_to<const kasane::atomic<int>&, int>);
static_assert(!std::is_assignable_v<const kasane::atomic<int>&, int> &&
                  std::is_assignable_v<const kasane::atomic_ref<int>&, int>,
              "who refers may change");
template <class T>
concept atomic_of = requires { typename kasane::atomic<T>; };
template <class T>
concept atomic_ref_of = requires { typename kasane::atomic_ref<T>; };
static_assert(!atomic_of<Large> && !atomic_ref_of<Large> && !atomic_ref_of<bool> && atomic_ref_of<Pair> &&
              atomic_ref_of<kasane::global_ptr<int>>);

TEST(AtomicOf, SumsOfAllKindsLoseNothing) {
  for_seeds([](unsigned seed) {
    struct Data {
      kasane::atomic<double> sum = 0.5;
      kasane::atomic<float> least = 1e6f;
      kasane::atomic<Large*> at{nullptr};
      kasane::atomic<std::uint8_t> byte{250};
      kasane::atomic<std::int64_t> number;
      alignas(8) double other = 0;
      std::int32_t counter = 0;
    };
    const auto data = std::make_unique<Data>();
    Large array[4 * kThreads] = {};
    data->at = array;
    kasane::release_all();  // `other` and `counter` were stored, and are changed directly now
    const int wrong = everywhere(seed, [&](std::uint32_t t, std::minstd_rand& random) {
      int bad = 0;
      for (int i = 0; i < 10; ++i) {
        data->sum.fetch_add(0.25, std::memory_order_relaxed);
        data->sum -= 0.125;
        data->byte++;
        Large* const before = data->at.fetch_add(3);
        linger(random);
        bad += before >= array && (before - array) < 3 * static_cast<std::ptrdiff_t>(kThreads) &&
                       data->at.fetch_sub(3, std::memory_order_relaxed) >= array + 3
                   ? 0
                   : 1;
        data->number += 7;
        --data->number;
        kasane::atomic_ref(data->other) += 1.5;
        kasane::atomic_ref(data->counter)++;
        float seen = data->least;
        const float mine = static_cast<float>(t) + 1;
        while (mine < seen && !data->least.compare_exchange_weak(seen, mine, std::memory_order_acq_rel,
                                                                 std::memory_order_relaxed)) {
        }
      }
      return bad;
    });
    constexpr int kAll = 10 * kThreads;
    return wrong + (data->sum == 0.5 + 0.125 * kAll ? 0 : 1) + (data->least == 1.0f ? 0 : 2) +
           (data->at == array ? 0 : 4) + (data->byte == static_cast<std::uint8_t>(250 + kAll) ? 0 : 8) +
           (data->number == 6 * kAll ? 0 : 16) +
           (kasane::atomic_ref(data->other).load() == 1.5 * kAll &&
                    kasane::atomic_ref(data->counter).load() == kAll
                ? 0
                : 32);
  });
}

// A flag that is a bool, a list's head that is a pointer, a state that is an enumeration: each orders plain
// data alone.
TEST(AtomicOf, FlagsPointersAndStatesOrderWhatIsBehindThem) {
  for_seeds([](unsigned seed) {
    struct Node {
      Node* next;
      std::uint32_t value;
    };
    struct Data {
      kasane::atomic<bool> taken = false;
      kasane::atomic<Node*> head = nullptr;
      kasane::atomic<Colour> colour = Colour::red;
      char apart[8192] = {};
      std::uint64_t guarded = 0;  // by taken
      std::uint64_t told = 0;     // by colour
    };
    const auto data = std::make_unique<Data>();
    int wrong = everywhere(seed, [&](std::uint32_t t, std::minstd_rand& random) {
      // As a lock.
      bool none = false;
      while (!data->taken.compare_exchange_strong(none, true, std::memory_order_acquire,
                                                  std::memory_order_relaxed)) {
        data->taken.wait(true, std::memory_order_relaxed);
        none = false;
      }
      data->guarded = data->guarded + 1;
      linger(random);
      data->taken.store(false, std::memory_order_release);
      data->taken.notify_one();
      // A list.
      auto* const node = new Node{data->head.load(std::memory_order_relaxed), t};
      while (!data->head.compare_exchange_weak(node->next, node, std::memory_order_release)) {
      }
      // A state.
      if (t == 0) {
        data->told = 77;
        data->colour = Colour::blue;
        data->colour.notify_all();
      }
      data->colour.wait(Colour::red, std::memory_order_acquire);
      return data->colour == Colour::blue && data->told == 77 ? 0 : 1;
    });
    std::uint32_t seen = 0, nodes = 0;
    for (Node* node = data->head; node != nullptr; ++nodes) {
      seen |= 1u << node->value;
      delete std::exchange(node, node->next);
    }
    return wrong + (data->guarded == kThreads ? 0 : 1) +
           (seen == (1u << kThreads) - 1 && nodes == kThreads ? 0 : 1);
  });
}

TEST(AtomicOf, OperatorsGiveWhatThoseOfStdGive) {
  EXPECT_EQ(
      kasane::run([] {
        const auto same = []<class T>(T from, auto operate) {
          kasane::atomic<T> ours(from);
          std::atomic<T> theirs(from);
          return operate(ours) == operate(theirs) && ours.load() == theirs.load() ? 0 : 1;
        };
        int wrong = 0;
        const auto on_integers = [&]<class T>(T from) {
          wrong += same(from, [](auto& a) { return ++a; }) + same(from, [](auto& a) { return a++; }) +
                   same(from, [](auto& a) { return --a; }) + same(from, [](auto& a) { return a--; });
          wrong += same(from, [](auto& a) { return a += 100; }) +
                   same(from, [](auto& a) { return a -= 100; }) +
                   same(from, [](auto& a) { return a &= 0x5A; });
          wrong += same(from, [](auto& a) { return a |= 0x5A; }) +
                   same(from, [](auto& a) { return a ^= 0x5A; }) + same(from, [](auto& a) { return a = 3; });
          wrong += same(from, [](auto& a) { return a.fetch_sub(77); }) +
                   same(from, [](auto& a) { return a.fetch_and(0x33); });
        };
        on_integers(std::int8_t{-128});
        on_integers(std::uint8_t{255});
        on_integers(std::int16_t{-1});
        on_integers(std::int32_t{-5});
        on_integers(std::uint32_t{0});
        on_integers(std::int64_t{-1} << 40);
        on_integers(std::uint64_t{1} << 63);
        int array[8];
        wrong += same(&array[4], [](auto& a) { return ++a; }) +
                 same(&array[4], [](auto& a) { return a -= 3; }) +
                 same(&array[4], [](auto& a) { return a.fetch_add(-4); });
        wrong += same(2.5, [](auto& a) { return a.fetch_add(0.25); }) +
                 same(2.5f, [](auto& a) { return a.fetch_sub(0.25f); }) +
                 same(2.5, [](auto& a) { return a.exchange(1.0); });
        // A comparison that fails tells the value.
        kasane::atomic<Pair> pair(Pair{1, 2});
        Pair expected{1, 3};
        wrong +=
            pair.compare_exchange_strong(expected, Pair{9, 9}) || expected.a != 1 || expected.b != 2 ? 1 : 0;
        wrong += pair.compare_exchange_weak(expected, Pair{9, 8}, std::memory_order_relaxed,
                                            std::memory_order_seq_cst) &&
                         pair.load().b == 8
                     ? 0
                     : 1;
        return wrong;
      }),
      0);
}

struct Padded {
  char letter;
  int number;
  friend bool operator==(const Padded&, const Padded&) = default;
};

/// What a plain store left in the padding does not make a value another one.
TEST(AtomicOf, PaddingIsNotCompared) {
  std::uint64_t wrong = 0;
  kasane::run([&] {
    void* const memory = kasane::allocate(sizeof(Padded), 16);
    std::memset(memory, 0xAA, sizeof(Padded));
    auto* const value = static_cast<Padded*>(memory);
    value->letter = 'a';
    value->number = 1;
    kasane::release_all();
    const kasane::atomic_ref<Padded> ref(*value);
    Padded expected{'a', 2};
    wrong += ref.compare_exchange_strong(expected, {'b', 2}) || !(expected == Padded{'a', 1});
    wrong += !ref.compare_exchange_strong(expected, {'b', 2}) || !(ref.load() == Padded{'b', 2});
    kasane::deallocate(memory);
  });
  EXPECT_EQ(wrong, 0U);
}

}  // namespace
