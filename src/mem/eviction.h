// SPDX-License-Identifier: Apache-2.0
// Which page leaves DRAM next. Policies know page numbers and nothing else; what they learn of accesses comes from what a rank can see at little cost:
//
//   a page comes in           a fault, or its first touch            enter()
//   was it touched since …    arm(): V's translations are dropped;   touched(), asked when the policy looks at the page
//                             the next access faults and maps again
//
// A look costs a page one soft fault if it is in use, and nothing if it is not. Between being armed and being looked at, one touch or a million are the same. A
// page that was just brought in is mapped, not armed: the accesses that follow at once are those of the fault, and say nothing.
//
// Thread safety: none; one lock, or one thread, a policy.
// Invariants: evict() names a page that is in, which is out from then on; memory is that of `pages` pages and as many remembered ones, taken at the start.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "base/ids.h"

namespace kasane::mem {

/// What a policy asks of the rank. Called inside enter() and evict().
class PageProbe {
 public:
  /// Its next touch is to be noted; at least so many other pages are looked at before it is.
  virtual void arm(PageId, std::uint32_t before) noexcept = 0;
  /// Was it touched since it was armed?
  [[nodiscard]] virtual bool touched(PageId) noexcept = 0;

 protected:
  ~PageProbe() = default;
};

class EvictionPolicy {
 public:
  virtual ~EvictionPolicy() = default;

  /// The page has come in. Before that there were fewer than `pages` of them.
  virtual void enter(PageId) noexcept = 0;
  /// It is gone by itself: freed, or moved to another rank. Nothing happens where it was not in.
  virtual void leave(PageId) noexcept = 0;
  /// The page to go, out now; none: nothing is in.
  virtual std::optional<PageId> evict() noexcept = 0;
  /// What evict() named cannot go (pinned, busy): it is in again, as one that is in use.
  virtual void keep(PageId) noexcept = 0;
  /// What evict() named has just come and stays for now: it is in again, as new as it was. Until another comes, older ones are named first where the policy tells them apart.
  virtual void put_back(PageId page) noexcept { keep(page); }
};

/// The names of all, the one for the runtime first: "s3-fifo", then those it is compared with (bench/eviction.cpp).
[[nodiscard]] std::vector<std::string_view> eviction_policies();

/// For at most so many pages at once. Null: no such name.
[[nodiscard]] std::unique_ptr<EvictionPolicy> make_eviction_policy(std::string_view name, std::uint32_t pages, PageProbe& probe);

}  // namespace kasane::mem
