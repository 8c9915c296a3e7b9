// SPDX-License-Identifier: Apache-2.0
// A team: one thread for each worker of the job, which stays there and has its part of the data, for programs
// that go over the same arrays step by step. What a member touched first (placement::first_touch) is local in
// the next step; only what it reads of others' parts is transferred.
//
//   apps::team([=](apps::Member& me) {              alone: member.h
//     auto [first, last] = me.part(0, n);
//     for (…) { step(first, last); me.wait(); }
//   });
//
// How members get to their workers: a fork runs the child at once, and its parent can only go on elsewhere
// while the child keeps its worker. So each child sleeps (as its worker's OS thread) until all have started.
// Over a network a look at the count lets the worker run others: there members may start together and part at
// later waits.
#pragma once

#include <time.h>

#include <cstdint>
#include <kasane/kasane.hpp>
#include <vector>

#include "common/member.h"

namespace apps {

namespace detail {
/// A seat for each member, those of a rank side by side, so that a member's index names the same rank in
/// every team; a word each, 1 if it is taken. The last word counts.
class Seats {
 public:
  Seats() : size_(kasane::ranks() * kasane::workers()), words_(kasane::make_array<std::uint32_t>(size_ + 1)) {
    for (std::uint32_t i = 0; i <= size_; ++i) kasane::put(at(i), std::uint32_t{0});
  }
  [[nodiscard]] std::uint32_t size() const noexcept { return size_; }
  /// Takes a seat of this rank, if one is free, else the next one.
  [[nodiscard]] std::uint32_t take() const {
    std::uint32_t i = kasane::rank() * kasane::workers();
    while (kasane::swap(at(i), std::uint32_t{1}) != 0) i = (i + 1) % size_;
    kasane::fetch_add(at(size_), std::uint32_t{1});
    return i;
  }
  [[nodiscard]] bool all_taken() const { return kasane::get(at(size_)) == size_; }

 private:
  [[nodiscard]] kasane::global_ptr<std::uint32_t> at(std::uint32_t i) const noexcept {
    return kasane::global_ptr<std::uint32_t>(words_.get() + i);
  }
  std::uint32_t size_;
  kasane::unique_array<std::uint32_t> words_;
};
}  // namespace detail

/// body(member) once on each worker; returns when all have. From main.
template <class F>
void team(F body) {
  kasane::run([&body] {
    const detail::Seats seats;
    kasane::barrier barrier(seats.size());
    const auto member = [&seats, &barrier, &body] {
      Member me(seats.take(), seats.size(), &barrier,
                [](void* b) { static_cast<kasane::barrier*>(b)->arrive_and_wait(); });
      while (!seats.all_taken()) {
        const timespec moment{0, 50'000};
        ::nanosleep(&moment, nullptr);
      }
      F mine(body);
      mine(me);
    };
    std::vector<kasane::thread> others;
    others.reserve(seats.size() - 1);
    for (std::uint32_t i = 0; i + 1 < seats.size(); ++i) others.emplace_back(member);
    member();
    for (auto& t : others) t.join();
  });
}

}  // namespace apps
