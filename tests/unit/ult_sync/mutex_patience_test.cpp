// SPDX-License-Identifier: Apache-2.0
// Whatever a thread that wants a mutex sees, look by look: it takes the mutex or queues within the bound, it
// respects the lease of another rank that uses it, and it does not wait for one that is over or unused. Every
// sequence of looks in steps of a few microseconds is walked, and mutants are found.
#include "ult/sync/mutex_patience.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <set>
#include <string>
#include <vector>

namespace kasane::ult::test {
namespace {

using Patience = MutexPatience;

constexpr std::uint64_t kStepNs = 1'000;

enum class PatienceMutation { none, never_queues, ignores_leases, waits_for_unused_leases, counts_naps };

/// A thread that looks, and what the test knows of what it saw.
struct Looking {
  Patience patience{0};
  std::uint64_t now_ns = 0;
  std::uint64_t free_since_ns = ~std::uint64_t{0};  ///< seen free since then, without a nap
  std::uint64_t looks_since_ns = 0;
};
static_assert(std::has_unique_object_representations_v<Looking>);
struct Bytes {
  std::array<char, sizeof(Looking)> of;
  explicit Bytes(const Looking& l) { std::memcpy(of.data(), &l, sizeof l); }
  friend bool operator<(const Bytes& a, const Bytes& b) { return a.of < b.of; }
};

class Walk {
 public:
  explicit Walk(PatienceMutation mutation) : mutation_(mutation) {}

  /// Empty: all is well.
  std::string run() {
    std::vector<Looking> todo{Looking{}};
    while (!todo.empty() && wrong_.empty()) {
      const Looking at = todo.back();
      todo.pop_back();
      if (!seen_.insert(Bytes(at)).second) continue;
      for (const MutexSeen& sight : sights(at.now_ns)) step(at, sight, todo);
    }
    return wrong_;
  }
  [[nodiscard]] std::size_t states() const { return seen_.size(); }

 private:
  static std::vector<MutexSeen> sights(std::uint64_t now) {
    std::vector<MutexSeen> all{{}, {.free = true}};
    for (const std::uint64_t age : {std::uint64_t{0}, Patience::kLeaseNs - 1, Patience::kLeaseNs})
      all.push_back({.free = true, .last_elsewhere = true, .since_ns = now - age});  // modulo 2^64
    return all;
  }

  void step(Looking at, const MutexSeen& sight, std::vector<Looking>& todo) {
    if (!sight.free)
      at.free_since_ns = ~std::uint64_t{0};
    else if (at.free_since_ns == ~std::uint64_t{0})
      at.free_since_ns = at.now_ns;
    const bool leased = sight.last_elsewhere && at.now_ns - sight.since_ns < Patience::kLeaseNs,
               unused = sight.free && at.now_ns - at.free_since_ns >= Patience::kUnusedNs;
    MutexSeen shown = sight;
    if (mutation_ == PatienceMutation::ignores_leases) shown.last_elsewhere = false;
    if (mutation_ == PatienceMutation::waits_for_unused_leases && leased) shown.free = false;
    const Patience before = at.patience;
    MutexWish wish = at.patience.next(shown, at.now_ns);
    if (mutation_ == PatienceMutation::never_queues && wish == MutexWish::queue) wish = MutexWish::nap;
    switch (wish) {
      case MutexWish::take:
        if (!sight.free) wrong_ = "takes what is held";
        if (leased && !unused) wrong_ = "takes what another rank has leased and uses";
        return;
      case MutexWish::queue:
        if (at.now_ns < Patience::kPatienceNs) wrong_ = "queues too early";
        return;
      case MutexWish::look:
        if (at.now_ns - at.looks_since_ns >= Patience::kLookNs) wrong_ = "looks for too long";
        at.now_ns += kStepNs;
        break;
      case MutexWish::nap:
        if (mutation_ == PatienceMutation::counts_naps) at.patience = before;
        at.now_ns += Patience::kNapNs;
        at.looks_since_ns = at.now_ns;
        at.free_since_ns = ~std::uint64_t{0};
        break;
    }
    if (sight.free && (!leased || unused)) wrong_ = "leaves what it may take";
    if (at.now_ns > Patience::kPatienceNs + Patience::kNapNs + kStepNs) wrong_ = "waits beyond the bound";
    todo.push_back(at);
  }

  const PatienceMutation mutation_;
  std::set<Bytes> seen_;
  std::string wrong_;
};

TEST(MutexPatience, EndsWithinItsBoundAndRespectsLeases) {
  Walk walk(PatienceMutation::none);
  EXPECT_EQ(walk.run(), "");
  EXPECT_GT(walk.states(), 1000u);
}

TEST(MutexPatience, FindsMutants) {
  EXPECT_EQ(Walk(PatienceMutation::never_queues).run(), "waits beyond the bound");
  EXPECT_EQ(Walk(PatienceMutation::ignores_leases).run(), "takes what another rank has leased and uses");
  EXPECT_EQ(Walk(PatienceMutation::waits_for_unused_leases).run(), "leaves what it may take");
  EXPECT_EQ(Walk(PatienceMutation::counts_naps).run(), "takes what another rank has leased and uses");
}

// A lock that is there at once is taken at the first look; a former rank that does not come back delays by
// kUnusedNs.
TEST(MutexPatience, AnUnusedLeaseDelaysLittle) {
  EXPECT_EQ(Patience(5).next({.free = true}, 5), MutexWish::take);
  Patience patience(0);
  std::uint64_t now = 0;
  while (patience.next({.free = true, .last_elsewhere = true, .since_ns = 0}, now) != MutexWish::take)
    now += 1000;
  EXPECT_EQ(now, Patience::kUnusedNs);
}

}  // namespace
}  // namespace kasane::ult::test
