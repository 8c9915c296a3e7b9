// SPDX-License-Identifier: Apache-2.0
// shared_ptr, weak_ptr and exception_ptr that threads of all ranks copy: their counts are the program's.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <exception>
#include <kasane/kasane.hpp>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "multi/api/everywhere.h"
#include "multi/atomics/placed.h"

namespace {

using kasane::test::linger, kasane::test::make_on, kasane::test::on_each_rank, kasane::test::Places;

/// Destroyed once, when the last pointer goes; its destructor sees all that the holders did.
struct Object {
  explicit Object(std::atomic<int>& d) : destroyed(d) {}
  ~Object() {
    for (const int v : values) sum += v;
    destroyed += sum == 7 * 1000 ? 1 : 1000;
  }
  std::atomic<int>& destroyed;
  std::vector<int> values = std::vector<int>(1000, 7);
  long sum = 0;
};

TEST(SharedPtr, IsFreedOnceByTheLastOfAllRanks) {
  kasane::run([] {
    const Places places;
    for (std::uint32_t r = 0; r < kasane::ranks(); ++r) {
      const auto destroyed = make_on<std::atomic<int>>(r, 0);
      std::weak_ptr<Object> weak;
      std::vector<kasane::thread> threads;
      {
        auto object = std::make_shared<Object>(*destroyed);
        weak = object;
        for (std::uint32_t t = 0; t < 6 * kasane::ranks(); ++t) {
          threads.emplace_back([object, &places, t] {
            std::minstd_rand random(t + 1);
            kasane::this_thread::move_near(places.of(t % kasane::ranks()));
            for (int i = 0; i < 20; ++i) {
              const auto again = object;
              const std::weak_ptr<Object> other = again;
              linger(random);
              const auto locked = other.lock();
              if (!locked || locked->values.at(static_cast<std::size_t>(i)) != 7) std::terminate();
            }
          });
        }
      }
      for (auto& t : threads) t.join();
      EXPECT_EQ(weak.use_count(), 0);
      EXPECT_TRUE(weak.expired());
      ASSERT_EQ(destroyed->load(), 1);
    }
  });
}

TEST(SharedPtr, CountsWhatThreadsCopy) {
  kasane::run([] {
    const Places places;
    auto object = std::make_shared<std::string>("what many threads copy");
    std::vector<std::shared_ptr<std::string>> kept(4 * kasane::ranks());
    on_each_rank(places, 4, [&](std::uint32_t t, std::uint32_t) {
      kept[t] = object;
      return 0;
    });
    EXPECT_EQ(object.use_count(), 4 * kasane::ranks() + 1);
    on_each_rank(places, 4, [&](std::uint32_t t, std::uint32_t) {
      kept[t].reset();
      return 0;
    });
    EXPECT_EQ(object.use_count(), 1);
    EXPECT_EQ(*object, "what many threads copy");
  });
}

struct Thrown {
  explicit Thrown(std::atomic<int>& l) : living(&l) { ++*living; }
  Thrown(const Thrown& other) : living(other.living) { ++*living; }
  ~Thrown() { --*living; }
  std::atomic<int>* living;
  std::vector<int> values = std::vector<int>(100, 7);
};

/// An exception caught by one thread, copied and thrown again by threads of all ranks.
TEST(ExceptionPtr, IsFreedOnceByTheLastOfAllRanks) {
  kasane::run([] {
    const Places places;
    for (std::uint32_t r = 0; r < kasane::ranks(); ++r) {
      const auto living = make_on<std::atomic<int>>(r, 0);
      long wrong = 0;
      {
        std::exception_ptr caught;
        try {
          throw Thrown(*living);
        } catch (const Thrown&) {
          caught = std::current_exception();
        }
        wrong = on_each_rank(places, 2, [&](std::uint32_t t, std::uint32_t) {
          std::minstd_rand random(t + 1);
          long bad = 0;
          for (int i = 0; i < 10; ++i) {
            const std::exception_ptr again = caught;
            try {
              std::rethrow_exception(again);
            } catch (const Thrown& thrown) {
              linger(random);
              bad += thrown.values[50] != 7 || thrown.living->load() != 1;
            }
          }
          return bad;
        });
      }
      ASSERT_EQ(wrong, 0);
      ASSERT_EQ(living->load(), 0);
    }
  });
}

}  // namespace
