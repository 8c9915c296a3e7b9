// SPDX-License-Identifier: Apache-2.0
// A store needs more room than a view leaves, and cannot have it before the view ends; the view's thread has
// faults of its own meanwhile, and ends it after them. With
// --faults uffd-thread one thread answers the faults of both, so the store's must be put off
// (docs/design/mem.md, "What may wait for what"). On 2 or more ranks: a rank alone has no page that waits for
// its first touch, which needs room for all of it.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <kasane/kasane.hpp>
#include <string>
#include <thread>

#include "support/counts.h"

namespace {

using kasane::placement;

constexpr std::size_t kPage = kasane::page_default, kWords = kPage / 8;
/// That the view leaves of the budget: less than the page of 2 MiB, though a page of 64 KiB more is left;
/// enough for other faults, tables, and what idle ranks have in hand.
constexpr std::size_t kLeft = std::size_t{480} * 4096;

/// Of the host: so many K, M or G.
std::size_t budget_bytes() {
  const char* const text = std::getenv("KASANE_DRAM");
  char* unit = nullptr;
  const std::size_t n = std::strtoull(text, &unit, 10);
  return n << (*unit == 'G' ? 30 : *unit == 'M' ? 20 : 10);
}

std::uint64_t value(std::size_t i) { return (i + 1) * 0x9E3779B97F4A7C15u; }

std::uint64_t* allocate(std::size_t pages, placement where) {
  return static_cast<std::uint64_t*>(kasane::allocate(pages * kPage, kPage, where));
}

void fill(std::uint64_t* data, std::size_t pages) {
  for (std::size_t i = 0; i < pages * kWords; ++i) data[i] = value(i);
}

// Private to the rank, so that the other thread faults at its store and nowhere else. run() forks nothing: it
// stays where it began.
std::uint64_t* large = nullptr;
std::atomic<bool> go, stored;

TEST(Room, WhoHoldsItGetsOnWhileAStoreWaitsForIt) {
  const std::size_t held_pages = (budget_bytes() - kLeft) / kPage, cold_pages = 8;
  std::uint64_t bad = 1, put_off = 0;
  bool waited = false;
  kasane::run([&] {
    auto *held = allocate(held_pages, placement::local), *cold = allocate(cold_pages, placement::local);
    fill(cold, cold_pages);
    fill(held, held_pages);
    large = static_cast<std::uint64_t*>(
        kasane::allocate(kasane::page_large, kPage, placement::first_touch.in_pages(kasane::page_large)));
    kasane::release_all();
    kasane::evict(cold, cold_pages * kWords);
    go = stored = false;
    std::thread other([] {
      while (!go) std::this_thread::yield();
      *large = 7;
      stored = true;
    });
    bad = 0;
    {
      const kasane::view<const std::uint64_t> view(held, held_pages * kWords);
      const kasane::test::Counts before;
      go = true;
      while (kasane::counter("faults_write") == before["faults_write"])
        std::this_thread::yield();  // counted when the store's fault begins
      for (std::size_t i = cold_pages * kWords; i != 0; i -= kWords / 2)
        bad += cold[i - 1] != value(i - 1);  // two blocks a page
      put_off = kasane::counter("faults_put_off") - before["faults_put_off"];
      waited = !stored;
      for (std::size_t i = 0; i < held_pages * kWords; ++i) bad += view[i] != value(i);
    }
    other.join();
    bad += *large != 7;
    kasane::deallocate(large);
    kasane::deallocate(cold);
    kasane::deallocate(held);
  });
  EXPECT_EQ(bad, 0u);
  EXPECT_TRUE(waited) << "else nothing was tested: there was room";
  const char* const faults = std::getenv("KASANE_FAULTS");
  if (faults != nullptr && std::string(faults) == "uffd-thread")
    EXPECT_GE(put_off, 1u);
  else
    EXPECT_EQ(put_off, 0u);
}

}  // namespace
