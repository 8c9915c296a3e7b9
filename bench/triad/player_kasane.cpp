// SPDX-License-Identifier: Apache-2.0
// Triad over global memory by a team. Versions (Y. Yasui, K. Fujisawa, 2014):
//   one-array    arrays as allocate() gives them, filled by one thread
//   first-touch  each thread fills its part first (local allocation, figure 7a)
//   interleave   page by page of all NUMA nodes (figure 7b)
//   blocks       one part on each NUMA node, or of several ranks at each rank
//   parted       each thread has arrays of its own on its node (section 5.1, figure 8)
//   node:J       all on NUMA node J, or an error (figure 6)
// Over several ranks those that only one rank can have are errors.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <kasane/numa.hpp>
#include <kasane/team.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "triad/kernel.h"

namespace {

using kasane::placement;
using kasane::bench::triad::kLine;
using kasane::bench::triad::Part;
using Doubles = kasane::unique_array<double>;

/// A part, the thread that filled it, and where that ran.
struct Owned {
  Part part{};
  std::size_t from = 0;  ///< index of element 0 in the whole
  Doubles arrays[3];     ///< parted
  std::uint32_t rank = 0, node = 0;
  std::uint32_t taken = 0;  ///< by a thread of this run
};

class Triad {
 public:
  void array(const std::string& version, std::size_t n) {
    parts_.clear();
    parts_.resize(kasane::ranks() * kasane::workers());
    for (Doubles& d : arrays_) d.reset();
    if (version == "parted") return part(n);
    const auto [where, unit] = placed(version);
    // numa_blocks has a page for each node at least.
    const std::size_t least = kasane::numa::nodes().size() * kasane::page_default / sizeof(double);
    for (Doubles& d : arrays_) d = kasane::make_array<double>(std::max(n, least), where);
    const bool by_one = version == "one-array";
    kasane::team([this, n, unit = unit, by_one](kasane::member& me) {
      Owned& own = parts_[me.index()];
      const auto [first, last] = me.part(0, n, unit);
      own.part = {arrays_[0].get(), arrays_[1].get(), arrays_[2].get(), first, last};
      own.rank = me.rank(), own.node = me.numa_node();
      me.wait();
      if (!by_one) return kasane::bench::triad::fill(own.part, 0);
      if (me.index() != 0) return;
      for (const Owned& o : parts_) kasane::bench::triad::fill(o.part, 0);
    });
  }

  double run(bool streaming, std::uint64_t passes) {
    double seconds = 0;
    for (Owned& o : parts_) o.taken = 0;
    kasane::team([&, streaming, passes](kasane::member& me) {
      const Part part = take(me).part;
      me.wait();
      const auto start = std::chrono::steady_clock::now();
      for (std::uint64_t i = 0; i < passes; ++i) {
        kasane::bench::triad::pass(part, streaming);
        me.wait();
      }
      if (me.index() == 0)
        seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    });
    return seconds;
  }

  std::uint64_t check() {
    std::vector<std::uint64_t> wrong(parts_.size());
    for (Owned& o : parts_) o.taken = 0;
    kasane::team([&](kasane::member& me) {
      const Owned& own = take(me);
      wrong[me.index()] = kasane::bench::triad::check(own.part, own.from);
    });
    std::uint64_t sum = 0;
    for (const std::uint64_t w : wrong) sum += w;
    return sum;
  }

 private:
  struct Placed {
    placement where;
    std::size_t unit;  ///< parts of threads are multiples of so many elements
  };
  static Placed placed(const std::string& version) {
    constexpr std::size_t small = kasane::page_small / sizeof(double);
    const bool many = kasane::ranks() > 1;
    if (version == "first-touch") {
      if (many) return {placement::first_touch.in_pages(kasane::page_small), small};
      return {placement::local, small};
    }
    if (version == "blocks" && many) return {placement::block.in_pages(kasane::page_small), small};
    if (many) throw std::runtime_error(version + " is for one rank");
    if (version == "one-array") return {placement::local, kLine};
    if (version == "interleave") return {placement::numa_interleave(), kLine};
    if (version == "blocks") return {placement::numa_blocks(), small};
    if (version.starts_with("node:"))
      return {placement::numa(static_cast<std::uint32_t>(std::atoi(version.c_str() + 5))).strict(), kLine};
    throw std::runtime_error("there is no version " + version);
  }
  void part(std::size_t n) {
    kasane::team([this, n](kasane::member& me) {
      Owned& own = parts_[me.index()];
      const auto [first, last] = me.part(0, n, kLine);
      own.rank = me.rank(), own.node = me.numa_node(), own.from = first;
      for (Doubles& d : own.arrays)
        d = kasane::make_array<double>(last - first + 1, placement::numa(own.node));
      own.part = {own.arrays[0].get(), own.arrays[1].get(), own.arrays[2].get(), 0, last - first};
      kasane::bench::triad::fill(own.part, own.from);
    });
  }
  /// A part of this rank that no other thread has: of this node, if there is one. Workers of a rank may take
  /// each other's member from team to team, but not those of other ranks.
  Owned& take(const kasane::member& me) {
    for (const bool any : {false, true})
      for (Owned& o : parts_)
        if (o.rank == me.rank() && (any || o.node == me.numa_node()) &&
            std::atomic_ref(o.taken).exchange(1, std::memory_order_relaxed) == 0)
          return o;
    std::abort();  // a rank has as many parts as threads
  }

  Doubles arrays_[3];
  std::vector<Owned> parts_;
};

}  // namespace

int main() {
  return kasane::run([] {
    Triad triad;
    return kasane::bench::triad::answer(triad);
  });
}
