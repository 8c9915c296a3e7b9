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
// How members get to their workers: each begins near a page of its rank (a placed spawn), and waits there
// until all have begun; so no worker is idle, and looks for others' work, when they go on. A member's index
// names the same rank in every team.
#pragma once

#include <cstddef>
#include <cstdint>
#include <kasane/kasane.hpp>
#include <vector>

#include "common/member.h"

namespace apps {

namespace detail {
/// A page of each rank, the first of rank 0.
class Homes {
 public:
  Homes()
      : pages_(kasane::make_array<std::byte>(kasane::ranks() * kasane::page_default,
                                             kasane::placement::block)) {}
  [[nodiscard]] const std::byte* of(std::uint32_t rank) const noexcept {
    return pages_.get() + rank * kasane::page_default;
  }

 private:
  kasane::unique_array<std::byte> pages_;
};
}  // namespace detail

/// body(member) once on each worker; returns when all have. From main.
template <class F>
void team(F body) {
  kasane::run([&body] {
    const std::uint32_t workers = kasane::workers(), size = kasane::ranks() * workers;
    const detail::Homes homes;
    kasane::barrier barrier(size);
    const auto member = [size, &barrier, &body](std::uint32_t index) {
      Member me(index, size, &barrier, [](void* b) { static_cast<kasane::barrier*>(b)->arrive_and_wait(); });
      me.wait();
      F mine(body);
      mine(me);
    };
    std::vector<kasane::thread> others;
    others.reserve(size - 1);
    for (std::uint32_t i = 1; i < size; ++i)
      others.emplace_back(kasane::near{homes.of(i / workers)}, member, i);
    kasane::this_thread::move_near(homes.of(0));  // it may have been stolen
    member(0);
    for (auto& t : others) t.join();
  });
}

}  // namespace apps
