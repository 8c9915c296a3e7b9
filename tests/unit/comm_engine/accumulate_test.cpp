// SPDX-License-Identifier: Apache-2.0
// y += a · x: the arithmetic of each element type, and no addition lost where threads and stripes meet.
#include "comm/engine/accumulate.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <thread>
#include <vector>

namespace kasane::comm {
namespace {

template <class T>
void check(Element e, std::complex<double> scale, T factor) {
  auto locks = std::make_unique<StripeLock[]>(kStripes);
  constexpr std::size_t kCount = 1300;  // beyond one stripe
  std::vector<T> x(kCount), y(kCount), scaled(kCount), expected(kCount);
  for (std::size_t i = 0; i < kCount; ++i) {
    x[i] = T(static_cast<int>(i % 11));
    expected[i] = (y[i] = T(static_cast<int>(i % 3))) + factor * x[i];
  }
  scale_elements(e, scale, reinterpret_cast<std::byte*>(scaled.data()),
                 reinterpret_cast<const std::byte*>(x.data()), kCount * sizeof(T));
  for (std::size_t i = 0; i < kCount; ++i) ASSERT_EQ(scaled[i], factor * x[i]);
  accumulate(e, scale, reinterpret_cast<std::byte*>(y.data()), reinterpret_cast<const std::byte*>(x.data()),
             kCount * sizeof(T), locks.get(), RegionId{1}, 40);
  ASSERT_EQ(y, expected);
}

TEST(Accumulate, EachElementType) {
  check<std::int32_t>(Element::int32, -3.7, -3);
  check<std::int64_t>(Element::int64, 1.0, 1);
  check<float>(Element::float32, 0.25, 0.25f);
  check<double>(Element::float64, -2.0, -2.0);
  check<std::complex<float>>(Element::complex64, {2.0, 1.0}, {2.0f, 1.0f});
  check<std::complex<double>>(Element::complex128, {0.0, 1.0}, {0.0, 1.0});
  check<std::complex<double>>(Element::complex128, {1.0, 0.0}, {1.0, 0.0});
}

// Threads add the same complex numbers at the two alignments of their parts, so that elements cross stripes
// for one half of them only.
TEST(Accumulate, NothingIsLostAcrossStripes) {
  auto locks = std::make_unique<StripeLock[]>(kStripes);
  constexpr std::size_t kParts = 2 * kStripeBytes / 8 + 64;
  std::vector<double> y(kParts, 0.0), x(kParts, 1.0);
  constexpr int kRounds = 400;
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const std::size_t skip = t % 2;
      const std::size_t bytes = (kParts - skip) / 2 * 16;
      for (int n = 0; n < kRounds; ++n) {
        accumulate(Element::complex128, {1.0, 0.0}, reinterpret_cast<std::byte*>(y.data() + skip),
                   reinterpret_cast<std::byte*>(x.data()), bytes, locks.get(), RegionId{2}, 8 * skip);
      }
    });
  }
  for (auto& t : threads) t.join();
  for (std::size_t i = 1; i + 1 < kParts; ++i) ASSERT_EQ(y[i], 4.0 * kRounds) << "part " << i;
}

}  // namespace
}  // namespace kasane::comm
