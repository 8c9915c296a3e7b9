// SPDX-License-Identifier: Apache-2.0
#include "page_traces.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <stdexcept>
#include <utility>

#include "base/random.h"
#include "eviction_policies.h"
#include "mem/arming.h"

namespace kasane::bench {
namespace {

using Pages = std::vector<std::uint32_t>;

/// A page that was among the last few is not recorded again: no sampling sees such accesses, and no policy
/// depends on them.
class Recorder {
 public:
  void note(std::uint32_t page) {
    if (std::find(recent_.begin(), recent_.end(), page) != recent_.end()) return;
    recent_[next_++ % recent_.size()] = page;
    pages.push_back(page);
  }
  Pages pages;

 private:
  std::array<std::uint32_t, 8> recent_{~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u};
  std::size_t next_ = 0;
};

/// An array that records the pages of its elements.
template <class T>
class Recorded {
 public:
  static constexpr std::size_t kOnAPage = 64;
  Recorded(Recorder& recorder, std::uint32_t first_page, std::size_t n)
      : recorder_(recorder), first_page_(first_page), data_(n) {}
  T& operator[](std::size_t i) {
    recorder_.note(first_page_ + static_cast<std::uint32_t>(i / kOnAPage));
    return data_[i];
  }
  [[nodiscard]] std::uint32_t end_page() const {
    return first_page_ + static_cast<std::uint32_t>((data_.size() + kOnAPage - 1) / kOnAPage);
  }
  std::vector<T>& quietly() { return data_; }

 private:
  Recorder& recorder_;
  std::uint32_t first_page_;
  std::vector<T> data_;
};

/// Cilksort's order of accesses: four quarters, two merges into a second array, one back.
struct Sort {
  Recorded<std::uint32_t>&a, &b;

  void merge(Recorded<std::uint32_t>& from, Recorded<std::uint32_t>& to, std::size_t begin,
             std::size_t middle, std::size_t end) {
    std::size_t x = begin, y = middle;
    for (std::size_t i = begin; i < end; ++i) {
      const bool left = y == end || (x < middle && from[x] <= from[y]);
      to[i] = from[left ? x++ : y++];
    }
  }
  void sort(std::size_t begin, std::size_t end) {
    const std::size_t n = end - begin, quarter = n / 4;
    if (n < 256) {
      for (std::size_t i = begin; i < end; ++i) (void)a[i];
      std::sort(a.quietly().begin() + static_cast<std::ptrdiff_t>(begin),
                a.quietly().begin() + static_cast<std::ptrdiff_t>(end));
      return;
    }
    const std::array<std::size_t, 5> cut{begin, begin + quarter, begin + 2 * quarter, begin + 3 * quarter,
                                         end};
    for (std::size_t i = 0; i < 4; ++i) sort(cut[i], cut[i + 1]);
    merge(a, b, cut[0], cut[1], cut[2]);
    merge(a, b, cut[2], cut[3], cut[4]);
    merge(b, a, cut[0], cut[2], cut[4]);
  }
};

Pages sort_trace(std::uint32_t data_pages) {
  Recorder recorder;
  const std::size_t n = std::size_t{data_pages} / 2 * Recorded<std::uint32_t>::kOnAPage;
  Recorded<std::uint32_t> a(recorder, 0, n), b(recorder, a.end_page(), n);
  Random random(1);
  for (std::uint32_t& x : a.quietly()) x = static_cast<std::uint32_t>(random());
  Sort{a, b}.sort(0, n);
  if (!std::is_sorted(a.quietly().begin(), a.quietly().end()))
    throw std::runtime_error("the recorded sort does not sort");
  return std::move(recorder.pages);
}

using Grid = Recorded<double>;

double nine_points(const std::vector<double>& g, std::size_t n, std::size_t at) {
  double sum = 0;
  for (const std::size_t row : {at - n, at, at + n}) sum += g[row - 1] + g[row] + g[row + 1];
  return sum / 9;
}

// Plain sweeps from one grid to the other.
void sweep(Grid& from, Grid& to, std::size_t n) {
  for (std::size_t r = 1; r + 1 < n; ++r)
    for (std::size_t c = 1; c + 1 < n; ++c) {
      const std::size_t at = r * n + c;
      (void)from[at - n], (void)from[at], (void)from[at + n];
      to[at] = nine_points(from.quietly(), n, at);
    }
}

// k steps of a band of rows at once: it is read with k rows more on each side, and computed in private
// memory.
void block_of_steps(Grid& from, Grid& to, std::size_t n, std::size_t steps, std::size_t band) {
  for (std::size_t first = 1; first + 1 < n; first += band) {
    const std::size_t last = std::min(first + band, n - 1);
    const std::size_t low = first - std::min(first, steps), high = std::min(last + steps, n);
    std::vector<double> here, next;
    for (std::size_t i = low * n; i < high * n; ++i) here.push_back(from[i]);
    next = here;
    for (std::size_t s = 1; s <= steps; ++s) {
      const std::size_t begin = low == 0 ? 1 : s, end = high == n ? n - 1 - low : high - low - s;
      for (std::size_t r = begin; r < end; ++r)
        for (std::size_t c = 1; c + 1 < n; ++c) next[r * n + c] = nine_points(here, n, r * n + c);
      here.swap(next);
    }
    for (std::size_t r = first; r < last; ++r)
      for (std::size_t c = 1; c + 1 < n; ++c) to[r * n + c] = here[(r - low) * n + c];
  }
}

std::vector<PageTrace> stencil_traces(std::uint32_t data_pages) {
  constexpr std::size_t kSteps = 20, kTogether = 10;
  const auto n = static_cast<std::size_t>(std::sqrt(static_cast<double>(data_pages) / 2 * Grid::kOnAPage));
  std::array<std::vector<double>, 2> results;
  std::array<Pages, 2> pages;
  for (const std::size_t blocked : {0, 1}) {
    Recorder recorder;
    Grid a(recorder, 0, n * n), b(recorder, a.end_page(), n * n);
    Random random(2);
    for (double& x : a.quietly()) x = static_cast<double>(random.below(1000));
    b.quietly() = a.quietly();
    Grid *from = &a, *to = &b;
    for (std::size_t s = 0; s < kSteps; s += blocked != 0 ? kTogether : 1, std::swap(from, to)) {
      if (blocked != 0)
        block_of_steps(*from, *to, n, kTogether, 8 * kTogether);
      else
        sweep(*from, *to, n);
    }
    results[blocked] = from->quietly();
    pages[blocked] = std::move(recorder.pages);
  }
  if (results[0] != results[1]) throw std::runtime_error("the recorded stencils differ");
  return {{"stencil", std::move(pages[0])}, {"stencil-tb", std::move(pages[1])}};
}

/// Page i with probability proportional to 1/(i+1)^s; the pages are scattered.
class Zipf {
 public:
  Zipf(std::uint32_t pages, double s, std::uint64_t seed) : random_(seed) {
    double sum = 0;
    for (std::uint32_t i = 0; i < pages; ++i) {
      sums_.push_back(sum += std::pow(i + 1, -s));
      place_.push_back(i);
    }
    std::shuffle(place_.begin(), place_.end(), random_);
  }
  std::uint32_t operator()() {
    const double x = static_cast<double>(random_() >> 11) * 0x1p-53 * sums_.back();
    return place_[static_cast<std::size_t>(std::lower_bound(sums_.begin(), sums_.end(), x) - sums_.begin())];
  }

 private:
  Random random_;
  std::vector<double> sums_;
  std::vector<std::uint32_t> place_;
};

void append_sweep(Pages& to, std::uint32_t first, std::uint32_t count) {
  for (std::uint32_t i = 0; i < count; ++i) to.push_back(first + i);
}

}  // namespace

std::vector<PageTrace> page_traces(std::uint32_t memory_pages, bool quick) {
  const std::uint32_t m = memory_pages, data = 4 * m, rounds = quick ? 4 : 12;
  std::vector<PageTrace> traces;
  const auto add = [&](const char* name) -> Pages& { return traces.emplace_back(PageTrace{name, {}}).pages; };
  {
    Pages& p = add("loop-1.25");
    for (std::uint32_t r = 0; r < 3 * rounds; ++r) append_sweep(p, 0, m / 4 * 5);
  }
  {
    Pages& p = add("loop-4");
    for (std::uint32_t r = 0; r < rounds; ++r) append_sweep(p, 0, data);
  }
  {
    Pages& p = add("back-and-forth");
    for (std::uint32_t r = 0; r < rounds; ++r)
      for (std::uint32_t i = 0; i < data; ++i) p.push_back(r % 2 == 0 ? i : data - 1 - i);
  }
  {
    Pages& p = add("stride");  // the columns of a matrix, two of them on a page
    constexpr std::uint32_t kColumns = 64;
    for (std::uint32_t r = 0; r < rounds; ++r)
      for (std::uint32_t c = 0; c < 2 * kColumns; ++c)
        for (std::uint32_t i = c / 2; i < data; i += kColumns) p.push_back(i);
  }
  {
    Pages& p = add("zipf");
    Zipf zipf(data, 0.9, 3);
    for (std::uint32_t i = 0; i < rounds * data; ++i) p.push_back(zipf());
  }
  {
    Pages& p = add("zipf-and-sweeps");  // a lookup for each page of a sweep over other data
    Zipf zipf(data, 0.9, 4);
    for (std::uint32_t i = 0; i < rounds * data; ++i) p.push_back(data + i % data), p.push_back(zipf());
  }
  {
    Pages& p = add("phases");  // a loop, lookups, another loop, lookups elsewhere
    for (std::uint32_t phase = 0; phase < 4; ++phase) {
      Zipf zipf(data, 0.9, 5 + phase);
      for (std::uint32_t i = 0; i < rounds * data; ++i)
        p.push_back(phase * data + (phase % 2 == 0 ? i % (2 * m) : zipf()));
    }
  }
  traces.push_back({"sort", sort_trace(data)});
  for (PageTrace& t : stencil_traces(data)) traces.push_back(std::move(t));
  return traces;
}

std::uint64_t best_hits(const PageTrace& trace, std::uint32_t memory_pages) {
  const std::size_t n = trace.pages.size();
  const std::uint32_t pages = 1 + *std::max_element(trace.pages.begin(), trace.pages.end());
  // The next use by which a page that is in is known; 0: it is out.
  std::vector<std::size_t> next_use(n), next_of(pages, n), in_until(pages, 0);
  for (std::size_t i = n; i-- != 0;) next_use[i] = std::exchange(next_of[trace.pages[i]], i);
  std::set<std::pair<std::size_t, std::uint32_t>> in;  // by next use
  std::uint64_t hits = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint32_t page = trace.pages[i];
    if (in_until[page] != 0) {
      ++hits;
      in.erase({in_until[page], page});
    } else if (in.size() == memory_pages) {
      const auto last = std::prev(in.end());
      in_until[last->second] = 0;
      in.erase(last);
    }
    in_until[page] = next_use[i];
    in.emplace(next_use[i], page);
  }
  return hits;
}

Replay replay(const PageTrace& trace, std::uint32_t memory_pages, const std::string& policy_name) {
  struct Memory final : mem::PageProbe {
    explicit Memory(std::uint32_t count)
        : in(count, false),
          armed(count, false),
          arming(std::move(mem::PageSet::create(count).value()),
                 [this](std::span<const PageId> pages) { retire(pages); }) {}
    void arm(PageId p, std::uint32_t before) noexcept override { arming.arm(p, before); }
    bool touched(PageId p) noexcept override {
      arming.before_look(p);
      return !armed[raw(p)];
    }
    void retire(std::span<const PageId> pages) {
      for (const PageId p : pages) armed[raw(p)] = in[raw(p)];
    }
    std::vector<bool> in, armed;
    mem::Arming arming;
  } memory(1 + *std::max_element(trace.pages.begin(), trace.pages.end()));
  const auto policy = make_eviction_policy(policy_name, memory_pages, memory);
  if (!policy) throw std::runtime_error("no eviction policy is called " + policy_name);
  Replay result;
  std::uint32_t resident = 0;
  std::vector<PageId> entered;  // since room was last made
  for (const std::uint32_t page : trace.pages) {
    if (memory.in[page]) {
      ++result.hits;
      if (memory.armed[page]) memory.armed[page] = false, ++result.soft_faults;
      continue;
    }
    if (resident == memory_pages) {
      for (const PageId came : entered) policy->enter(came);
      entered.clear();
      for (const std::uint32_t left = resident - std::max(1u, memory_pages / 16); resident != left;
           --resident) {
        const auto gone = policy->evict();
        if (!gone || !memory.in[raw(*gone)]) throw std::runtime_error(policy_name + " evicts what is not in");
        memory.in[raw(*gone)] = false;
      }
      memory.arming.end_turn();
    }
    ++resident;
    memory.in[page] = true, memory.armed[page] = false;
    entered.push_back(PageId{page});
  }
  return result;
}

}  // namespace kasane::bench
