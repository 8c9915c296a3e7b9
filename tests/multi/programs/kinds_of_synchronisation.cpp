// SPDX-License-Identifier: Apache-2.0
// Atomics, shared_ptr and what the standard library builds on them, between threads of all ranks.
#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <condition_variable>
#include <future>
#include <latch>
#include <memory>
#include <mutex>
#include <numeric>
#include <semaphore>
#include <shared_mutex>
#include <stop_token>
#include <thread>

#include "cases.h"

using cases::elsewhere;
using cases::on_ranks;
using namespace std::chrono_literals;

namespace {

constexpr int kRounds = 100;

// ---- litmus tests ---------------------------------------------------------------------------------------
struct alignas(64) Word {
  std::atomic<int> value{0};
};
Word x_word, y_word;
int payload[1000];

void message_passing() {
  kasane::run([] {
    for (int round = 1; round <= kRounds / 4; ++round) {
      x_word.value = 0;
      on_ranks(2, [&](int i) {
        if (i == 0) {
          for (int& p : payload) p = round;
          x_word.value.store(1, std::memory_order_release);
        } else {
          while (x_word.value.load(std::memory_order_acquire) == 0) {
          }
          EXPECT_EQ(std::accumulate(payload, payload + 1000, 0), 1000 * round);
        }
      });
    }
  });
}
void message_passing_by_fences() {
  kasane::run([] {
    for (int round = 1; round <= kRounds / 4; ++round) {
      x_word.value = 0;
      on_ranks(2, [&](int i) {
        if (i == 1) {
          for (int& p : payload) p = round;
          std::atomic_thread_fence(std::memory_order_release);
          x_word.value.store(1, std::memory_order_relaxed);
        } else {
          while (x_word.value.load(std::memory_order_relaxed) == 0) {
          }
          std::atomic_thread_fence(std::memory_order_acquire);
          EXPECT_EQ(std::accumulate(payload, payload + 1000, 0), 1000 * round);
        }
      });
    }
  });
}
void store_buffering() {
  kasane::run([] {
    for (int round = 0; round < kRounds; ++round) {
      x_word.value = y_word.value = 0;
      int r[2] = {};
      on_ranks(2, [&](int i) {
        if (round % 2) {
          (i ? x_word : y_word).value.store(1);
          r[i] = (i ? y_word : x_word).value.load();
        } else {
          (i ? x_word : y_word).value.store(1, std::memory_order_relaxed);
          std::atomic_thread_fence(std::memory_order_seq_cst);
          r[i] = (i ? y_word : x_word).value.load(std::memory_order_relaxed);
        }
      });
      EXPECT(r[0] == 1 || r[1] == 1);
    }
  });
}
void independent_reads() {
  kasane::run([] {
    for (int round = 0; round < kRounds; ++round) {
      x_word.value = y_word.value = 0;
      int r[4] = {};
      on_ranks(4, [&](int i) {
        if (i < 2) {
          (i ? x_word : y_word).value.store(1);
        } else {
          r[2 * (i - 2)] = (i == 2 ? x_word : y_word).value.load();
          r[2 * (i - 2) + 1] = (i == 2 ? y_word : x_word).value.load();
        }
      });
      EXPECT(!(r[0] == 1 && r[1] == 0 && r[2] == 1 && r[3] == 0));
    }
  });
}
// Peterson's lock: the plain counter is right only if both flags and the turn are sequentially consistent.
std::atomic<bool> flag[2];
std::atomic<int> turn;
int guarded_by_peterson = 0;
void peterson() {
  kasane::run([] {
    on_ranks(2, [](int i) {
      for (int k = 0; k < 100; ++k) {
        flag[i] = true;
        turn = 1 - i;
        while (flag[1 - i] && turn == 1 - i) {
        }
        ++guarded_by_peterson;
        flag[i] = false;
      }
    });
    EXPECT_EQ(guarded_by_peterson, 200);
  });
}

// ---- kinds of atomics -----------------------------------------------------------------------------------
struct Pair {
  long a, b;
  friend bool operator==(const Pair&, const Pair&) = default;
};
struct Small {
  short a;
  char b;
};
struct Twelve {
  int v[3];
};
enum class Colour : unsigned char { red, green };
std::atomic<double> real;
std::atomic<float> real_float;
std::atomic<Pair> pair;
std::atomic<Small> small;
std::atomic<Twelve> twelve;
std::atomic<Colour> colour;
std::atomic<char> characters[64];
std::atomic<short> shorts[16];
std::atomic<bool> truth;
std::atomic<int*> pointer;
std::atomic<unsigned long long> bits;
std::atomic_flag spin = ATOMIC_FLAG_INIT;
int guarded_by_flag;

void kinds() {
  kasane::run([] {
    std::vector<int> elements(100);
    double plain_real = 0;
    static int base[1000];
    pointer = base;
    on_ranks(8, [&](int i) {
      for (int k = 0; k < 200; ++k) {
        real.fetch_add(0.5);
        for (float f = real_float; !real_float.compare_exchange_weak(f, f + 1);) {
        }
        for (Pair p = pair; !pair.compare_exchange_strong(p, {p.a + 1, p.b + 2});) {
        }
        for (Small s = small; !small.compare_exchange_strong(s, Small{static_cast<short>(s.a + 1), 1});) {
        }
        for (Twelve t = twelve; !twelve.compare_exchange_weak(t, Twelve{{t.v[0] + 1, 2, t.v[2] - 1}});) {
        }
        ++characters[k % 64];
        shorts[k % 16] += 3;
        bits.fetch_xor(1ull << (i * 8 + k % 8));
        pointer += (k % 2 ? 2 : -1);
        std::atomic_ref(elements[static_cast<std::size_t>(k) % 100]).fetch_add(1);
        std::atomic_ref(plain_real).fetch_add(0.25);
        while (spin.test_and_set(std::memory_order_acquire)) {
        }
        ++guarded_by_flag;
        spin.clear(std::memory_order_release);
      }
      colour = Colour::green;
      truth = true;
    });
    EXPECT_EQ(real.load(), 800.0);
    EXPECT_EQ(real_float.load(), 1600.0f);
    EXPECT(pair.load() == (Pair{1600, 3200}));
    EXPECT_EQ(small.load().a, 1600);
    EXPECT(twelve.load().v[0] == 1600 && twelve.load().v[2] == -1600);
    for (int k = 0; k < 64; ++k) EXPECT_EQ(characters[k].load(), 8 * (200 / 64 + (k < 200 % 64)));
    for (int k = 0; k < 16; ++k) EXPECT_EQ(shorts[k].load(), 24 * (200 / 16 + (k < 200 % 16)));
    EXPECT_EQ(bits.load(), ~0ull);  // each bit 25 times: odd
    EXPECT_EQ(pointer.load() - base, 800);
    EXPECT_EQ(std::accumulate(elements.begin(), elements.end(), 0), 1600);
    EXPECT_EQ(plain_real, 400.0);
    EXPECT_EQ(guarded_by_flag, 1600);
    EXPECT(colour == Colour::green && truth);
  });
}

// ---- shared_ptr -----------------------------------------------------------------------------------------
struct Node : std::enable_shared_from_this<Node> {
  static inline std::atomic<int> alive{0};
  explicit Node(int v) : value(v) { ++alive; }
  ~Node() { --alive; }
  int value;
  std::weak_ptr<Node> parent;
  std::vector<std::shared_ptr<Node>> children;
};
std::shared_ptr<Node> root;
std::atomic<std::shared_ptr<Node>> current;

void shared_pointers() {
  kasane::run([] {
    root = std::make_shared<Node>(0);
    kasane::mutex lock;
    on_ranks(8, [&](int i) {
      for (int k = 0; k < 20; ++k) {
        auto child = std::make_shared<Node>(i);
        child->parent = root->weak_from_this();
        const std::lock_guard guard(lock);
        root->children.push_back(std::move(child));
      }
    });
    EXPECT_EQ(Node::alive.load(), 161);
    on_ranks(8, [](int i) {
      for (int k = 0; k < 20; ++k) {
        const auto child = root->children[static_cast<std::size_t>(i * 20 + k)];
        const auto parent = child->parent.lock();
        EXPECT(parent == root);
        const std::shared_ptr<int> alias(child, &child->value);
        EXPECT(*alias >= 0 && *alias < 8);
      }
    });
    EXPECT_EQ(root.use_count(), 1);
    std::weak_ptr<Node> watched = root;
    elsewhere([] { root.reset(); });
    EXPECT(watched.expired());
    EXPECT_EQ(Node::alive.load(), 0);
  });
}
void atomic_shared_pointer() {
  kasane::run([] {
    current = std::make_shared<Node>(0);
    on_ranks(4, [](int i) {
      for (int k = 0; k < 50; ++k) {
        if (i % 2) {
          auto old = current.load();
          while (!current.compare_exchange_weak(old, std::make_shared<Node>(old->value + 1))) {
          }
        } else {
          const auto p = current.load();
          EXPECT(p->value >= 0 && p->value <= 100);
        }
      }
    });
    EXPECT_EQ(current.load()->value, 100);
    EXPECT_EQ(Node::alive.load(), 1);
    current = std::shared_ptr<Node>();
    EXPECT_EQ(Node::alive.load(), 0);
  });
}

// ---- waiting --------------------------------------------------------------------------------------------
std::atomic<int> stage{0};
void waiting() {
  kasane::run([] {
    on_ranks(4, [](int i) {
      for (int k = 0; k < 25; ++k) {
        const int mine = k * 4 + i;
        for (int s = stage; s != mine; s = stage) stage.wait(s);
        ++stage;
        stage.notify_all();
      }
    });
    EXPECT_EQ(stage.load(), 100);
  });
}
std::latch latch_at_start(8);
std::barrier phase_barrier(4);
std::counting_semaphore<8> slots(3);
std::binary_semaphore ping(0), pong(0);
void latches_and_barriers() {
  kasane::run([] {
    std::vector<int> values(8);
    on_ranks(8, [&](int i) {
      values[static_cast<std::size_t>(i)] = i + 1;
      latch_at_start.arrive_and_wait();
      EXPECT_EQ(std::accumulate(values.begin(), values.end(), 0), 36);
    });
    std::array<int, 4> parts{};
    int sum = 0;
    on_ranks(4, [&](int i) {
      for (int k = 0; k < 25; ++k) {
        parts[static_cast<std::size_t>(i)] = k + i;
        phase_barrier.arrive_and_wait();
        if (i == k % 4) sum += parts[0] + parts[1] + parts[2] + parts[3];
        phase_barrier.arrive_and_wait();
      }
    });
    EXPECT_EQ(sum, 4 * 300 + 25 * 6);
    int completions = 0;
    auto completed = [&completions]() noexcept { ++completions; };
    std::barrier with_function(4, completed);
    on_ranks(4, [&](int) {
      for (int k = 0; k < 10; ++k) with_function.arrive_and_wait();
    });
    EXPECT_EQ(completions, 10);
  });
}
void semaphores() {
  kasane::run([] {
    std::atomic<int> inside{0}, most{0};
    on_ranks(8, [&](int) {
      for (int k = 0; k < 10; ++k) {
        slots.acquire();
        const int now = ++inside;
        for (int m = most; m < now && !most.compare_exchange_weak(m, now);) {
        }
        --inside;
        slots.release();
      }
    });
    EXPECT(most <= 3 && most >= 1);
    int n = 0;
    on_ranks(2, [&](int i) {
      for (int k = 0; k < 50; ++k) {
        if (i == 0) {
          ++n;
          ping.release();
          pong.acquire();
        } else {
          ping.acquire();
          ++n;
          pong.release();
        }
      }
    });
    EXPECT_EQ(n, 100);
    elsewhere([] { EXPECT(!ping.try_acquire_for(20ms)); });
    kasane::thread late([] { ping.release(); });
    EXPECT(ping.try_acquire_for(10s));
    late.join();
  });
}
void stop_tokens() {
  kasane::run([] {
    std::stop_source source;
    int called = 0;
    const std::stop_callback callback(source.get_token(), [&] { ++called; });
    std::atomic<int> stopped{0};
    kasane::thread asks(kasane::near{cases::place(cases::last())},
                        [source]() mutable { source.request_stop(); });
    on_ranks(4, [&](int) {
      const std::stop_token token = source.get_token();
      while (!token.stop_requested()) kasane::this_thread::yield();
      ++stopped;
    });
    asks.join();
    EXPECT_EQ(stopped.load(), 4);
    EXPECT_EQ(called, 1);
  });
}

// ---- futures --------------------------------------------------------------------------------------------
void promises() {
  kasane::run([] {
    for (int round = 0; round < 10; ++round) {
      std::promise<std::vector<int>> promise;
      std::future<std::vector<int>> future = promise.get_future();
      kasane::thread sets(kasane::near{cases::place(cases::last())},
                          [p = std::move(promise)]() mutable { p.set_value(std::vector<int>(100, 3)); });
      const std::vector<int> v = future.get();
      EXPECT_EQ(std::accumulate(v.begin(), v.end(), 0), 300);
      sets.join();
    }
    std::promise<int> throws;
    auto failure = throws.get_future();
    elsewhere([&] {
      try {
        throw std::runtime_error("on another rank");
      } catch (...) {
        throws.set_exception(std::current_exception());
      }
    });
    try {
      failure.get();
      EXPECT(false);
    } catch (const std::runtime_error& e) {
      EXPECT(std::strcmp(e.what(), "on another rank") == 0);
    }
  });
}
void shared_futures() {
  kasane::run([] {
    std::promise<int> promise;
    const std::shared_future<int> future = promise.get_future().share();
    std::atomic<int> sum{0};
    kasane::thread sets([&promise] {
      cases::go(1);
      promise.set_value(5);
    });
    on_ranks(8, [future, &sum](int) { sum += future.get(); });
    sets.join();
    EXPECT_EQ(sum.load(), 40);
    EXPECT(future.wait_for(1ms) == std::future_status::ready);
    std::promise<void> never;
    EXPECT(never.get_future().wait_for(10ms) == std::future_status::timeout);
  });
}
void tasks() {
  kasane::run([] {
    std::packaged_task<long(long)> task([](long n) { return n * 2; });
    auto result = task.get_future();
    elsewhere([&] { task(21); });
    EXPECT_EQ(result.get(), 42);
    auto deferred = std::async(std::launch::deferred, [] { return 7; });
    EXPECT_EQ(deferred.get(), 7);
  });
}
void async_of_threads() {
  kasane::run([] {
    std::atomic<int> sum{0};
    on_ranks(4, [&](int i) {
      auto f = std::async(std::launch::async, [i, &sum] {
        sum += i;
        return std::vector<int>(10, i);
      });
      EXPECT_EQ(f.get().at(9), i);
    });
    EXPECT_EQ(sum.load(), 6);
  });
}

constexpr cases::Case kAll[] = {
    {"message-passing", message_passing},
    {"message-passing-by-fences", message_passing_by_fences},
    {"store-buffering", store_buffering},
    {"independent-reads", independent_reads},
    {"peterson", peterson},
    {"kinds", kinds},
    {"shared-pointers", shared_pointers},
    {"atomic-shared-pointer", atomic_shared_pointer},
    {"waiting", waiting},
    {"latches-and-barriers", latches_and_barriers},
    {"semaphores", semaphores},
    {"stop-tokens", stop_tokens},
    {"promises", promises},
    {"shared-futures", shared_futures},
    {"tasks", tasks},
    {"async", async_of_threads},
};

}  // namespace

int main(int argc, char** argv) { return cases::main_of(argc, argv, kAll); }
