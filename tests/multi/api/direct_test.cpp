// SPDX-License-Identifier: Apache-2.0
// The direct view as programs use it (kasane/global_ptr.hpp): every form, from and to private and global
// buffers, blocking and pending, also by threads that move.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <complex>
#include <cstdint>
#include <cstring>
#include <kasane/kasane.hpp>
#include <string>
#include <vector>

namespace {

using kasane::global_ptr;

template <class F>
std::string refusal_of(int code, F&& f) {
  try {
    f();
  } catch (const kasane::error& e) {
    return e.code() == code ? e.what() : "another code: " + std::string(e.what());
  }
  return "no error";
}
#define EXPECT_REFUSED(text, code, call) \
  EXPECT_NE(kasane::run([&] { return refusal_of(code, [&] { call; }); }).find(text), std::string::npos)

/// Memory of malloc's, which is each rank's own.
template <class T>
struct Private {
  explicit Private(std::size_t n) : p(static_cast<T*>(std::malloc(n * sizeof(T)))) {}
  ~Private() { std::free(p); }
  Private(const Private&) = delete;
  Private& operator=(const Private&) = delete;
  T* p;
};

std::uint32_t value(std::size_t i, std::uint32_t salt) {
  return static_cast<std::uint32_t>(i) * 2654435761u + salt;
}

/// Puts n words of `salt` into x from one buffer, gets them into another; the wrong ones.
std::size_t round_trip(global_ptr<std::uint32_t> x, std::size_t n, std::uint32_t salt, std::uint32_t* from,
                       std::uint32_t* to, bool pending) {
  for (std::size_t i = 0; i < n; ++i) from[i] = value(i, salt);
  if (pending) {
    kasane::pending put = kasane::put_async(x, from, n);
    std::fill_n(from, n, 0u);  // it was copied
    put.wait();
    kasane::pending got = kasane::get_async(to, x, n);
    got.wait();
  } else {
    kasane::put(x, from, n);
    kasane::get(to, x, n);
  }
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < n; ++i) wrong += to[i] != value(i, salt);
  return wrong;
}

TEST(Direct, BytesPutAreTheBytesGot) {
  constexpr std::size_t most = 600'000;
  const std::size_t wrong = kasane::run([] {
    const auto there = kasane::make_array<std::uint32_t>(most + 3, kasane::placement::cyclic);
    const auto a = kasane::make_array<std::uint32_t>(most), b = kasane::make_array<std::uint32_t>(most);
    const global_ptr<std::uint32_t> x(there.get());
    std::size_t bad = 0;
    std::uint32_t salt = 0;
    for (const std::size_t n :
         {std::size_t{1}, std::size_t{2}, std::size_t{50}, std::size_t{1000}, std::size_t{40'000}, most}) {
      for (const bool pending : {false, true}) {
        bad += round_trip(x + 3, n, ++salt, a.get(), b.get(), pending);  // from and to global memory
        const Private<std::uint32_t> c(n), d(n);
        bad += round_trip(x + 1, n, ++salt, c.p, d.p, pending);
      }
    }
    return bad;
  });
  EXPECT_EQ(wrong, 0u);
}

TEST(Direct, PatchesAndPieces) {
  const int wrong = kasane::run([] {
    constexpr std::size_t rows = 300, row = 5, apart = 400;  // over several pages
    const auto there = kasane::make_array<std::uint64_t>(rows * apart, kasane::placement::cyclic);
    const auto here = kasane::make_array<std::uint64_t>(rows * row),
               back = kasane::make_array<std::uint64_t>(rows * row);
    const global_ptr<std::uint64_t> x(there.get());
    const kasane::patch shape{row, rows, apart, row};
    int bad = 0;
    for (const bool pending : {false, true}) {
      for (std::size_t i = 0; i < rows * row; ++i) here[i] = i * 3 + pending;
      if (pending) {
        kasane::put_strided_async(x, here.get(), shape).wait();
        kasane::get_strided_async(back.get(), x, shape).wait();
      } else {
        kasane::put_strided(x, here.get(), shape);
        kasane::get_strided(back.get(), x, shape);
      }
      for (std::size_t i = 0; i < rows * row; ++i) bad += back[i] != here[i];
      for (std::size_t r = 0; r < rows; ++r)
        bad += kasane::get(x + static_cast<long>(r * apart + 2)) != here[r * row + 2];

      std::vector<kasane::piece> pieces;
      for (std::size_t r = 0; r < rows; ++r)
        pieces.push_back({&there[r * apart + 7], &here[(rows - 1 - r) * row], row * 8});
      if (pending) {
        kasane::put_vector_async(pieces).wait();
      } else {
        kasane::put_vector(pieces);
      }
      for (std::size_t r = 0; r < rows; ++r) pieces[r].local = &back[r * row];
      if (pending) {
        kasane::get_vector_async(pieces).wait();
      } else {
        kasane::get_vector(pieces);
      }
      for (std::size_t r = 0; r < rows; ++r)
        bad += std::memcmp(&back[r * row], &here[(rows - 1 - r) * row], row * 8) != 0;
    }
    return bad;
  });
  EXPECT_EQ(wrong, 0);
}

TEST(Direct, MorePendingThanThereIsRoomFor) {
  constexpr std::size_t n = 5000;
  const std::size_t wrong = kasane::run([] {
    const auto there = kasane::make_array<std::uint32_t>(n * 100, kasane::placement::cyclic);
    const auto here = kasane::make_array<std::uint32_t>(n * 100),
               back = kasane::make_array<std::uint32_t>(n * 100);
    const global_ptr<std::uint32_t> x(there.get());
    for (std::size_t i = 0; i < n * 100; ++i) here[i] = value(i, 1);
    kasane::pending_group all;
    for (std::size_t i = 0; i < n; ++i)
      kasane::put_async(x + static_cast<long>(i * 100), &here[i * 100], 100, all);
    all.wait();
    for (std::size_t i = 0; i < n; ++i)
      kasane::get_async(&back[i * 100], x + static_cast<long>(i * 100), 100, all);
    all.wait();
    return static_cast<std::size_t>(std::mismatch(back.get(), back.get() + n * 100, here.get()).first -
                                    back.get());
  });
  EXPECT_EQ(wrong, n * 100);
}

// The thread issues, is taken over by another worker, maybe of another rank, and waits there.
TEST(Direct, APendingIsWaitedForWhereverTheThreadIs) {
  const int wrong = kasane::run([] {
    constexpr std::size_t n = 6000;
    const auto there = kasane::make_array<std::uint32_t>(n, kasane::placement::cyclic),
               back = kasane::make_array<std::uint32_t>(n);
    const global_ptr<std::uint32_t> x(there.get());
    int bad = 0, moved = 0;
    for (std::uint32_t salt = 1; salt <= 300 && moved < 5; ++salt) {
      for (std::size_t i = 0; i < n; ++i) back[i] = value(i, salt);
      kasane::put(x, back.get(), n);
      for (std::size_t i = 0; i < n; ++i) back[i] = 0;
      const std::uint32_t before = kasane::rank();
      kasane::pending big = kasane::get_async(back.get(), x, n),
                      small = kasane::get_async(&back[n / 2], x + n / 2, 3);
      kasane::pending_group changes;
      kasane::put_async(x, &back[n - 1], 0, changes);
      kasane::thread busy([] {
        volatile unsigned spin = 0;
        while (spin < 200'000) spin = spin + 1;
      });
      moved += kasane::rank() != before;
      if (salt % 2 == 0) {
        while (!big.ready()) kasane::this_thread::yield();
      }
      big.wait();
      small.wait();
      changes.wait();
      busy.join();
      for (std::size_t i = 0; i < n; ++i) bad += back[i] != value(i, salt);
    }
    return bad;
  });
  EXPECT_EQ(wrong, 0);
}

TEST(Direct, AccumulatesFromEverywhereAddUp) {
  constexpr std::size_t n = 20'000, adders = 12;
  const bool right = kasane::run([] {
    const auto there = kasane::make_array<double>(n, kasane::placement::cyclic);
    const auto parts = kasane::make_array<double>(8, kasane::placement::cyclic);
    const global_ptr<std::complex<double>> complex(reinterpret_cast<std::complex<double>*>(parts.get()));
    const global_ptr<double> x(there.get());
    const std::vector<double> zeros(n), ones(n, 1.0);
    const std::vector<std::complex<double>> i(4, {0.0, 1.0}), none(4);
    kasane::put(x, zeros.data(), n);
    kasane::put(complex, none.data(), 4);
    kasane::parallel_for(
        std::size_t{0}, adders,
        [&](std::size_t k) {
          if (k % 2 == 0) {
            kasane::accumulate(x, ones.data(), n, 2.0);
          } else {
            kasane::pending_group all;
            for (std::size_t at = 0; at < n; at += 500)
              kasane::accumulate_async(x + static_cast<long>(at), &ones[at], 500, 2.0, all);
            all.wait();
          }
          kasane::accumulate(complex, i.data(), 4, {0.0, 1.0});
        },
        1);
    std::vector<double> got(n);
    std::vector<std::complex<double>> z(4);
    kasane::get(got.data(), x, n);
    kasane::get(z.data(), complex, 4);
    return std::all_of(got.begin(), got.end(), [](double v) { return v == 2.0 * adders; }) &&
           std::all_of(z.begin(), z.end(),
                       [](std::complex<double> v) { return v == std::complex<double>(-1.0 * adders, 0.0); });
  });
  EXPECT_TRUE(right);
}

template <class T>
bool atomics_agree() {
  const auto words = kasane::make_array<T>(200'000, kasane::placement::cyclic);
  constexpr T limit = 3000;
  const std::array<T, 2> zero{};
  const std::array<global_ptr<T>, 3> at{global_ptr<T>(&words[1]), global_ptr<T>(&words[70'000]),
                                        global_ptr<T>(&words[190'001])};
  for (const auto p : at) kasane::put(p, zero[0]);
  kasane::parallel_for(
      0, 60,
      [&](int) {
        kasane::pending_group all;
        for (int i = 0; i < 50; ++i) {
          kasane::fetch_add(at[0], 1);
          kasane::add_async(at[1], static_cast<T>(-1), all);
          const kasane::atomic_ref<T> last(at[2]);
          for (T seen = last.load(); !last.compare_exchange_strong(seen, static_cast<T>(seen + 1));) {
          }
        }
        all.wait();
      },
      1);
  bool right = kasane::get(at[0]) == limit && kasane::get(at[1]) == static_cast<T>(-limit) &&
               kasane::get(at[2]) == limit;
  kasane::put(at[0], static_cast<T>(5));
  right &= kasane::fetch_or(at[0], 8) == 5 && kasane::fetch_and(at[0], 12) == 13 &&
           kasane::fetch_xor(at[0], 1) == 12 && kasane::swap(at[0], 3) == 13;
  right &= kasane::compare_swap(at[0], 4, 9) == 3 && kasane::compare_swap(at[0], 3, 9) == 3 &&
           kasane::atomic_ref<T>(at[0]).fetch_sub(10) == 9;
  return right && kasane::get(at[0]) == static_cast<T>(-1);
}

TEST(Direct, AtomicsAreOneForAllRanks) {
  EXPECT_TRUE(kasane::run([] { return atomics_agree<std::int64_t>(); }));
  EXPECT_TRUE(kasane::run([] { return atomics_agree<std::uint32_t>(); }));
  EXPECT_TRUE(kasane::run([] { return atomics_agree<std::int32_t>(); }));
}

// A flag that releases and acquires hands data over that is used by loads and stores.
TEST(Direct, AnAtomicFlagPublishesWhatItIsAskedTo) {
  const int wrong = kasane::run([] {
    const auto flag = kasane::make_array<std::uint64_t>(1);
    const auto data = kasane::make_array<int>(5000, kasane::placement::cyclic);
    const kasane::atomic_ref<std::uint64_t> ready(flag[0]);
    ready.store(0);
    for (int i = 0; i < 5000; ++i) data[i] = -1;
    int bad = 0;
    kasane::parallel_invoke(
        [&] {
          for (int i = 0; i < 5000; ++i) data[i] = i;
          ready.store(1, std::memory_order_release);
        },
        [&] {
          while (ready.load(std::memory_order_acquire) == 0) kasane::this_thread::yield();
          for (int i = 0; i < 5000; ++i) bad += data[i] != i;
        });
    return bad;
  });
  EXPECT_EQ(wrong, 0);
}

TEST(Direct, CopiesBetweenOwnersAndFlushes) {
  const bool right = kasane::run([] {
    constexpr std::size_t n = 100'000;
    const auto a = kasane::make_array<std::uint32_t>(n, kasane::placement::cyclic),
               b = kasane::make_array<std::uint32_t>(n + 20'000, kasane::placement::block);
    std::vector<std::uint32_t> values(n), got(n);
    for (std::size_t i = 0; i < n; ++i) values[i] = value(i, 9);
    const global_ptr<std::uint32_t> from(a.get()), to(b.get() + 17'000);
    for (std::size_t i = 0; i < n; i += 1000) {  // nobody waits for them but flush()
      if (kasane_put_async(&a[i], &values[i], 4000, nullptr) != 0) return false;
    }
    kasane::flush();
    kasane::copy(to, from, n / 2);
    kasane::copy_async(to + n / 2, from + n / 2, n / 2).wait();
    kasane::get(got.data(), to, n);
    return got == values;
  });
  EXPECT_TRUE(right);
}

TEST(Direct, WrongPlacesAreNamed) {
  const auto words = kasane::make_array<std::uint64_t>(8);
  std::uint64_t local = 0;
  const global_ptr<std::uint64_t> x(words.get());
  char name[64];
  Private<std::uint64_t> outside(1);
  EXPECT_REFUSED("is not in global memory", EINVAL,
                 kasane::get(&local, global_ptr<std::uint64_t>(outside.p)));
  EXPECT_REFUSED("is not in global memory", EINVAL, kasane::put(global_ptr<std::uint64_t>(outside.p), local));
  EXPECT_REFUSED("is not in global memory", EINVAL, kasane::get(&local, global_ptr<std::uint64_t>(nullptr)));
  auto* const wild = reinterpret_cast<std::uint64_t*>(reinterpret_cast<std::uintptr_t>(words.get()) +
                                                      (std::uint64_t{8} << 30));
  std::snprintf(name, sizeof name, "%p is not allocated", static_cast<void*>(wild));
  EXPECT_REFUSED(name, EINVAL, kasane::get(&local, global_ptr<std::uint64_t>(wild)));
  EXPECT_REFUSED(name, EINVAL, kasane::put_async(global_ptr<std::uint64_t>(wild), &local, 1).wait());
  EXPECT_REFUSED(name, EINVAL, kasane::get_async(&local, global_ptr<std::uint64_t>(wild), 1).wait());
  EXPECT_REFUSED(name, EINVAL, kasane::fetch_add(global_ptr<std::uint64_t>(wild), 1));
  EXPECT_REFUSED("must be a multiple of 8", EINVAL,
                 kasane::fetch_add(global_ptr<std::uint64_t>(reinterpret_cast<std::uint64_t*>(
                                       reinterpret_cast<char*>(words.get()) + 4)),
                                   1));
  EXPECT_REFUSED("1 to 8 dimensions", EINVAL, {
    kasane_strides_t s{};
    kasane::detail::check(kasane_get_strided(&local, x.get(), &s, nullptr));
  });
  EXPECT_EQ(kasane_atomic(KASANE_SWAP, 3, x.get(), 0, 0, nullptr, nullptr), EINVAL);
  EXPECT_EQ(kasane_accumulate(x.get(), &local, 1, static_cast<kasane_element_t>(9), nullptr, nullptr),
            EINVAL);
  const double too_much[2] = {1e30, 0};
  EXPECT_EQ(kasane_accumulate(x.get(), &local, 1, KASANE_INT64, too_much, nullptr), EINVAL);
  kasane_pending_t stale{(std::uint64_t{5} << 32) | 12345};
  EXPECT_EQ(kasane_wait(&stale), EINVAL);
}

TEST(GlobalPtr, IsAsPlainAsAPointer) {
  const auto array = kasane::make_array<int>(10);
  global_ptr<int> p(array.get());
  const global_ptr<const int> c = p;
  EXPECT_EQ(p + 3, global_ptr<int>(&array[3]));
  EXPECT_EQ((p + 3) - p, 3);
  EXPECT_EQ(++p, c + 1);
  EXPECT_LT(c, p);
  EXPECT_EQ(static_cast<int*>(p), &array[1]);
  EXPECT_TRUE(global_ptr<int>() == nullptr);
  EXPECT_FALSE(global_ptr<int>());
}

}  // namespace
