// SPDX-License-Identifier: Apache-2.0
// Threads that really move to another rank in the middle of what C++ code does (design rules 13 and 14):
// strings and vectors, exceptions thrown there and caught here, a catch block that moves, errno, protected
// stack frames, a mutex held over the move. Built with -fstack-protector-all and -fcf-protection=full. With
// one rank nothing moves and the same code must work all the same.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <functional>
#include <kasane/kasane.hpp>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace {

/// A word that is only accessed directly at its owner, so that a thread may wait for it without giving way.
class Signal {
 public:
  Signal() : word_(static_cast<std::uint64_t*>(kasane::allocate(sizeof(std::uint64_t)))) { set(0); }
  ~Signal() { kasane::deallocate(word_); }
  void set(std::uint64_t value) { kasane::put(word_, &value, 1); }
  /// Through the coherent view: kasane::get may let another thread of the worker run while it waits for a
  /// network, and the thread that asks here keeps the worker busy.
  [[nodiscard]] std::uint64_t get() const {
    kasane::acquire_all();
    return std::atomic_ref(*word_).load();
  }

 private:
  std::uint64_t* word_;
};

/// The caller goes on in another rank if there is one: each child keeps the worker busy on which the caller
/// was, so once all workers of this rank are, only another rank can take the caller over. True if the rank
/// changed.
bool hop() {
  const auto from = kasane::rank();
  for (int attempt = 0; attempt < 20 && kasane::ranks() > 1; ++attempt) {
    auto taken = std::make_unique<Signal>();
    std::vector<kasane::thread> children;
    for (unsigned i = 0; i < kasane::workers() && kasane::rank() == from; ++i) {
      children.emplace_back([signal = taken.get()] {
        const auto begin = std::chrono::steady_clock::now();
        const auto limit = begin + std::chrono::seconds(5);  // a hang must become a failure
        // A thread that calls lets the others of its worker run after 4 ms, the caller among them.
        while (std::chrono::steady_clock::now() < begin + std::chrono::milliseconds(20)) {
        }
        while (signal->get() == 0 && std::chrono::steady_clock::now() < limit) {
        }
      });
    }
    taken->set(1);
    for (auto& child : children) child.join();
    if (kasane::rank() != from) return true;
  }
  return false;
}

/// hop(), which must succeed on more than one rank.
void must_hop() { EXPECT_EQ(hop(), kasane::ranks() > 1); }

std::string long_text(char c) { return std::string(300, c); }

TEST(Moving, StringsAndVectorsComeAlong) {
  kasane::run([] {
    std::string local = "short", heap = long_text('h');
    std::vector<int> numbers(5000);
    std::iota(numbers.begin(), numbers.end(), 0);
    const char* inside = local.data();  // a pointer into the own stack
    std::function<int(int)> add = [&numbers](int i) { return numbers[static_cast<std::size_t>(i)] + 1; };
    must_hop();
    EXPECT_EQ(local, "short");
    EXPECT_EQ(inside, local.data());
    EXPECT_EQ(heap, long_text('h'));
    heap += "more";
    numbers.push_back(42);
    EXPECT_EQ(add(4999), 5000);
    must_hop();
    EXPECT_EQ(heap, long_text('h') + "more");
    EXPECT_EQ(numbers.back(), 42);
    EXPECT_EQ(std::accumulate(numbers.begin(), numbers.end(), 0L), 4999L * 5000 / 2 + 42);
  });
}

[[gnu::noinline]] void throw_after_a_hop(int depth) {
  if (depth > 0) {
    throw_after_a_hop(depth - 1);
    return;
  }
  must_hop();
  throw std::runtime_error(long_text('e'));
}

TEST(Moving, AnExceptionThrownThereIsCaughtInFramesEnteredHere) {
  kasane::run([] {
    std::string seen;
    try {
      throw_after_a_hop(6);
    } catch (const std::runtime_error& e) {
      seen = e.what();
    }
    EXPECT_EQ(seen, long_text('e'));
  });
}

TEST(Moving, AnExceptionCrossesJoin) {
  kasane::run([] {
    for (int i = 0; i < 5; ++i) {
      kasane::thread child([] { throw_after_a_hop(2); });
      try {
        child.join();
        ADD_FAILURE() << "nothing thrown";
      } catch (const std::runtime_error& e) {
        EXPECT_EQ(e.what(), long_text('e'));
      }
    }
  });
}

TEST(Moving, ACatchBlockMaySendItsThreadAway) {
  kasane::run([] {
    std::string outer;
    try {
      try {
        throw std::runtime_error(long_text('c'));
      } catch (const std::runtime_error& e) {
        must_hop();
        EXPECT_EQ(e.what(), long_text('c'));
        EXPECT_EQ(std::uncaught_exceptions(), 0);
        throw;
      }
    } catch (const std::exception& e) {
      outer = e.what();
    }
    EXPECT_EQ(outer, long_text('c'));
  });
}

[[gnu::noinline]] int errno_now() { return errno; }

TEST(Moving, ErrnoIsTheOneOfWhereTheThreadRuns) {
  kasane::run([] {
    errno = 0;
    must_hop();
    ::close(-1);
    EXPECT_EQ(errno_now(), EBADF);
    must_hop();
    errno = 0;
    ::close(-1);
    EXPECT_EQ(errno_now(), EBADF);
  });
}

TEST(Moving, AMutexMayBeHeldOverAMove) {
  kasane::run([] {
    kasane::mutex mutex;
    int inside = 0;
    const auto visit = [&] {
      for (int i = 0; i < 3; ++i) {
        mutex.lock();
        EXPECT_EQ(++inside, 1);
        hop();
        EXPECT_EQ(--inside, 0);
        mutex.unlock();
      }
    };
    kasane::parallel_invoke(visit, visit, visit);
  });
}

struct Base {
  virtual ~Base() = default;
  virtual int value() const { return 1; }
};
struct Derived : Base {
  int value() const override { return 2; }
};

TEST(Moving, VirtualCallsAndTypesAreTheSameThere) {
  kasane::run([] {
    std::unique_ptr<Base> object = std::make_unique<Derived>();
    must_hop();
    EXPECT_EQ(object->value(), 2);
    EXPECT_NE(dynamic_cast<Derived*>(object.get()), nullptr);
    EXPECT_EQ(typeid(*object), typeid(Derived));
  });
}

#if defined(__x86_64__)
TEST(Moving, FloatingPointControlWordsAreEqualEverywhere) {
  kasane::run([] {
    const unsigned here = _mm_getcsr() & ~0x3Fu;  // without the exception flags
    must_hop();
    EXPECT_EQ(_mm_getcsr() & ~0x3Fu, here);
  });
}
#endif

}  // namespace
