// SPDX-License-Identifier: Apache-2.0
// The body of every player, whatever system it plays: the loops of pingpong and of the LogGP measures, over
// two types that each system provides.
//
//   System   rank(), helpers() (threads of its own that poll beside ours), refuse(order) (why not; empty: it
//            can), lane(t), serve() (progress of everything)
//   Lane     one thread's end, of both ranks:
//              pass(bytes, together, flag)             data, then flag, to the peer's lane of the same number
//              await(bytes, together, flag, patience)  until the peer's flag is here
//              issue(op, bytes, i)                     starts operation number i on the peer's target area
//              outstanding(), drain(at_most, patience) completions
//              source(), arrived(together)             own memory, for the check
//
// They are types, not virtual functions: an operation of shared memory takes one nanosecond. The loops are
// the same for all, so that only the system differs.
//
// Thread safety: play() is called by the first thread; lanes are used by one thread at a time.
#pragma once

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "control.h"
#include "order.h"
#include "player_threads.h"
#include "window.h"

namespace kasane::bench {

namespace detail {

/// Every word of every payload differs from that of every other round and rank, so that a late byte is seen.
inline std::uint64_t pattern(std::uint64_t round, unsigned rank, std::uint64_t i) noexcept {
  return (round * 2 + rank + 1) * 0x9e3779b97f4a7c15ULL + i * 0x0101010101010101ULL;
}

inline void fill(std::byte* to, std::uint64_t bytes, std::uint64_t round, unsigned rank) noexcept {
  for (std::uint64_t at = 0; at < bytes; at += 8) {
    const std::uint64_t word = pattern(round, rank, at / 8);
    std::memcpy(to + at, &word, std::min<std::uint64_t>(8, bytes - at));
  }
}

/// The first wrong byte, or bytes. From the end: what arrives last is most likely to be late.
inline std::uint64_t first_wrong(const std::byte* data, std::uint64_t bytes, std::uint64_t round,
                                 unsigned rank) noexcept {
  for (std::uint64_t at = (bytes - 1) / 8 * 8;; at -= 8) {
    const std::uint64_t word = pattern(round, rank, at / 8);
    if (std::memcmp(data + at, &word, std::min<std::uint64_t>(8, bytes - at)) != 0) return at;
    if (at == 0) return bytes;
  }
}

/// What lies at word i instead, for the error message.
inline std::string what_is(const std::byte* data, std::uint64_t i, std::uint64_t round) {
  std::uint64_t word = 0;
  std::memcpy(&word, data, sizeof word);
  if (word == 0) return "still zero";
  for (std::uint64_t back = 0; back < 4 && back < round; ++back) {
    for (const unsigned rank : {0u, 1u}) {
      if (word == pattern(round - back, rank, i))
        return "but rank " + std::to_string(rank) + "'s word of " + std::to_string(back) + " rounds before";
    }
  }
  char text[40];
  std::snprintf(text, sizeof text, "but %016llx", static_cast<unsigned long long>(word));
  return text;
}

inline std::uint64_t thread_cpu_ns() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
}

/// When the first thread began and the last one ended.
class Span {
 public:
  explicit Span(unsigned threads) : begin_(threads), end_(threads) {}
  void begin(unsigned t) noexcept { begin_[t] = now_ns(); }
  void end(unsigned t) noexcept { end_[t] = now_ns(); }
  [[nodiscard]] double seconds() const {
    return 1e-9 * static_cast<double>(*std::max_element(end_.begin(), end_.end()) -
                                      *std::min_element(begin_.begin(), begin_.end()));
  }

 private:
  std::vector<std::uint64_t> begin_, end_;
};

inline std::string ok(double seconds) {
  char text[48];
  std::snprintf(text, sizeof text, "ok %.9g", seconds);
  return text;
}

/// Loads a word of each cache line.
inline void touch(const std::byte* data, std::uint64_t bytes) noexcept {
  for (std::uint64_t at = 0; at < bytes; at += 64) {
    std::uint64_t word;
    std::memcpy(&word, data + at, sizeof word);
    asm volatile("" : : "r"(word));
  }
}

}  // namespace detail

template <class System>
class Player {
 public:
  Player(System& system, Control& control, unsigned lanes)
      : system_(system), control_(control), rounds_(lanes) {}

  /// Obeys until the harness says quit; what main() returns.
  int play() {
    control_.answer("ready");
    while (auto line = control_.next()) {
      const Order order = parse_order(*line);
      if (order.task == Task::quit) {
        control_.answer("ok 0");
        return 0;
      }
      const std::string refusal = system_.refuse(order);
      control_.answer(refusal.empty() ? obey(order) : "unsupported " + refusal);
    }
    ::_exit(1);  // not through the system's own end: the other rank may be gone
  }

 private:
  std::string obey(const Order& order) {
    if (order.threads > rounds_.size()) return "unsupported more threads than this player was started for";
    switch (order.task) {
      case Task::pingpong: return order.verify ? verify(order) : pingpong(order);
      case Task::operate: return operate(order);
      case Task::serve: return serve();
      case Task::stop:
      case Task::quit: break;
    }
    return "ok 0";
  }

  // ---- pingpong ----

  /// One round of a lane: rank 0 serves, rank 1 returns. What came is looked at, a word of each cache line:
  /// data that stay in the sender's cache have not been communicated.
  template <class Lane>
  void round(Lane& lane, const Order& order, std::uint64_t flag, Patience patience) {
    if (system_.rank() == 0) lane.pass(order.bytes, order.together, flag);
    lane.await(order.bytes, order.together, flag, patience);
    detail::touch(lane.arrived(order.together), order.bytes);
    if (system_.rank() == 1) lane.pass(order.bytes, order.together, flag);
  }

  std::string pingpong(const Order& order) {
    // Both ranks poll.
    const Patience patience(2 * (order.threads + system_.helpers()) > usable_cores());
    const std::uint64_t warm_up = std::min<std::uint64_t>(order.iterations / 8 + 1, 1000);
    detail::Span span(order.threads);
    Gate gate(order.threads);
    run_player_threads(control_.fd(), order.threads, [&](unsigned t) {
      auto& lane = system_.lane(t);
      std::uint64_t flag = rounds_[t];
      for (std::uint64_t i = 0; i < warm_up; ++i) round(lane, order, ++flag, patience);
      gate.pass(patience);
      span.begin(t);
      for (std::uint64_t i = 0; i < order.iterations; ++i) round(lane, order, ++flag, patience);
      span.end(t);
      rounds_[t] = flag;
      // the peer may still wait for the last message, and no thread makes progress here afterwards
      lane.drain(0, patience);
    });
    return detail::ok(span.seconds() / static_cast<double>(order.iterations));
  }

  std::string verify(const Order& order) {
    const Patience patience(2 * (order.threads + system_.helpers()) > usable_cores());
    std::vector<std::string> wrong(order.threads);
    run_player_threads(control_.fd(), order.threads, [&](unsigned t) {
      auto& lane = system_.lane(t);
      const unsigned rank = system_.rank();
      for (std::uint64_t i = 0; i < order.iterations; ++i) {
        const std::uint64_t flag = ++rounds_[t];
        // Not before the peer's flag says that what was passed in the round before has arrived: until then
        // the source is in use.
        const auto pass = [&] {
          detail::fill(lane.source(), order.bytes, flag, rank);
          lane.pass(order.bytes, order.together, flag);
        };
        if (rank == 0) pass();
        lane.await(order.bytes, order.together, flag, patience);
        const std::uint64_t at =
            detail::first_wrong(lane.arrived(order.together), order.bytes, flag, 1 - rank);
        if (at != order.bytes && wrong[t].empty()) {
          wrong[t] = "rank " + std::to_string(rank) + ", thread " + std::to_string(t) + ", round " +
                     std::to_string(i) + ": byte " + std::to_string(at) + " of " +
                     std::to_string(order.bytes) + " was not there when the flag was (" +
                     detail::what_is(lane.arrived(order.together) + at, at / 8, flag) + ")";
        }
        if (rank == 1) pass();
      }
      lane.drain(0, patience);  // as in pingpong()
    });
    for (const auto& text : wrong) {
      if (!text.empty()) return "broken " + text;
    }
    return detail::ok(0);
  }

  // ---- LogGP ----

  std::string operate(const Order& order) {
    const Patience patience(order.threads + system_.helpers() + (order.attended ? 1 : 0) > usable_cores());
    detail::Span span(order.threads);
    Gate gate(order.threads);
    std::vector<double> each(order.threads);  // seconds of an operation, by thread
    run_player_threads(control_.fd(), order.threads, [&](unsigned t) {
      auto& lane = system_.lane(t);
      issue_all(lane, order, std::min<std::uint64_t>(order.iterations / 8 + 1, 1000), patience);  // warm-up
      gate.pass(patience);
      span.begin(t);
      if (order.measure == Measure::latency)
        each[t] = latency(lane, order, patience);
      else if (order.measure == Measure::rate)
        each[t] = rate(lane, order, patience);
      else
        each[t] = overhead(lane, order, patience);
      span.end(t);
    });
    // A rate is what all did in the time from the first one's begin to the last one's end; the others are
    // means.
    if (order.measure == Measure::rate)
      return detail::ok(span.seconds() / static_cast<double>(order.iterations));
    double sum = 0;
    for (const double s : each) sum += s;
    return detail::ok(sum / order.threads);
  }

  /// Operation number i of a kind; of sends, some ask for an answer.
  template <class Lane>
  static void issue(Lane& lane, Op op, std::uint64_t bytes, std::uint64_t i) {
    if (op == Op::send && i % kSendsPerAnswer == kSendsPerAnswer - 1) op = Op::request;
    lane.issue(op, bytes, i);
  }

  template <class Lane>
  static void issue_all(Lane& lane, const Order& order, std::uint64_t count, Patience patience) {
    const auto window = static_cast<unsigned>(
        std::clamp<std::uint64_t>((4 << 20) / std::max<std::uint64_t>(order.bytes, 1), 2, Window::kWindow));
    for (std::uint64_t i = 0; i < count; ++i) {
      if (lane.outstanding() >= window) lane.drain(window / 2, patience);
      issue(lane, order.op, order.bytes, i);
    }
    lane.drain(0, patience);
  }

  template <class Lane>
  static double rate(Lane& lane, const Order& order, Patience patience) {
    const std::uint64_t begin = now_ns();
    issue_all(lane, order, order.iterations, patience);
    return 1e-9 * static_cast<double>(now_ns() - begin) / static_cast<double>(order.iterations);
  }

  template <class Lane>
  static double latency(Lane& lane, const Order& order, Patience patience) {
    const std::uint64_t begin = now_ns();
    for (std::uint64_t i = 0; i < order.iterations; ++i) {
      lane.issue(order.op, order.bytes, i);
      lane.drain(0, patience);
    }
    return 1e-9 * static_cast<double>(now_ns() - begin) / static_cast<double>(order.iterations);
  }

  /// Batches are issued with the clock running and drained with the clock stopped. What the clock itself
  /// takes is measured the same way and taken off.
  template <class Lane>
  static double overhead(Lane& lane, const Order& order, Patience patience) {
    const auto clock = order.measure == Measure::cpu ? detail::thread_cpu_ns
                                                     : static_cast<std::uint64_t (*)() noexcept>(wall_ns);
    constexpr std::uint64_t kBatch = Window::kWindow;
    const std::uint64_t batches = order.iterations / kBatch + 1;
    std::uint64_t busy = 0, clocks = 0;
    for (std::uint64_t b = 0; b < batches; ++b) {
      const std::uint64_t empty = clock(), begin = clock();
      for (std::uint64_t i = 0; i < kBatch; ++i) issue(lane, order.op, order.bytes, i);
      busy += clock() - begin;
      clocks += begin - empty;
      lane.drain(0, patience);
    }
    return 1e-9 * static_cast<double>(busy - std::min(busy, clocks)) / static_cast<double>(batches * kBatch);
  }
  static std::uint64_t wall_ns() noexcept { return now_ns(); }

  /// One thread makes progress for the whole rank until the harness says stop.
  std::string serve() {
    std::atomic<bool> stop{false};
    const Patience patience(usable_cores() < 2);
    std::jthread server([&] {
      Patience mine = patience;
      // relaxed: nothing depends on when the end is seen
      while (!stop.load(std::memory_order_relaxed)) {
        system_.serve();
        mine.look();
      }
    });
    const bool gone = !control_.next().has_value();  // whatever it says, it means stop
    if (gone) ::_exit(1);
    stop.store(true, std::memory_order_relaxed);
    return detail::ok(0);
  }

  System& system_;
  Control& control_;
  std::vector<std::uint64_t> rounds_;  ///< of each lane so far, alike on both ranks: the flag's values
};

template <class System>
int play(System& system, Control& control, unsigned lanes) {
  return Player<System>(system, control, lanes).play();
}

}  // namespace kasane::bench
