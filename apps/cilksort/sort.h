// SPDX-License-Identifier: Apache-2.0
// Fork–join merge sort with a parallel merge, as in Cilk's cilksort (Frigo, Leiserson, Randall: The
// Implementation of the Cilk-5 Multithreaded Language, 1998): four quarters sorted at the same time, merged
// pairwise into the other array, and merged back.
//
//   a:    [ q0 | q1 | q2 | q3 ]  ── sort each ──► merge q0 q1, q2 q3 ──►  tmp: [ h0 | h1 ]  ── merge ──►  a
//
// A merge splits the longer run in the middle, finds that key in the other, from its middle outwards, and
// merges both sides at the same time. Leaves are large (Cutoff), so that the work behind a steal is much more
// than the fences it costs.
// Thread safety: a call owns its ranges of both arrays. Elements are trivially copyable and compared by
// operator<.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>

namespace apps {

/// Elements below which a range is sorted, or two runs are merged, in one thread; and below which a part is
/// done wherever it is forked or stolen, not where its memory lies.
struct Cutoff {
  std::size_t sort = 32 * 1024;  ///< in a core's cache
  /// goes over its ranges once, so it need not fit there; each cut looks at places that may be far away
  std::size_t merge = 128 * 1024;
  std::size_t near = 512 * 1024;
};

/// A sorted run [first, last).
template <class T>
struct Run {
  const T* first;
  const T* last;
  [[nodiscard]] std::size_t size() const noexcept { return static_cast<std::size_t>(last - first); }
};

/// The first element that is not less than `key`. Searched from the middle outwards, in steps that double,
/// then by bisection: runs that are merged are alike, so it is near. Bisection alone would look at a dozen
/// places of a run that may lie on SSD or at another rank, each time.
template <class T>
const T* lower_bound_near_middle(Run<T> run, const T& key) {
  const T *low = run.first, *high = run.last;
  const T* const middle = low + run.size() / 2;
  if (middle == high) return high;
  std::size_t step = std::max<std::size_t>(1, 4096 / sizeof(T));
  if (*middle < key) {
    for (low = middle + 1; static_cast<std::size_t>(high - low) > step && low[step] < key; step *= 2)
      low += step + 1;
    high = low + std::min(step, static_cast<std::size_t>(high - low));
  } else {
    for (high = middle; static_cast<std::size_t>(high - low) > step && !(*(high - step) < key); step *= 2)
      high -= step;
    low = high - std::min(step, static_cast<std::size_t>(high - low));
  }
  return std::lower_bound(low, high, key);
}

template <class Pattern, class T>
void merge(Run<T> a, Run<T> b, T* out, Cutoff cutoff) {
  if (a.size() < b.size()) std::swap(a, b);
  if (a.size() + b.size() <= cutoff.merge || a.size() < 2) {
    Pattern::reads(a.first, a.size());
    Pattern::reads(b.first, b.size());
    Pattern::overwrites(out, a.size() + b.size());
    std::merge(a.first, a.last, b.first, b.last, out);
    Pattern::consumed(a.first, a.size());
    Pattern::consumed(b.first, b.size());
    return;
  }
  if (a.size() + b.size() > cutoff.near) Pattern::near(out + (a.size() + b.size()) / 2);
  const T* const a_middle = a.first + a.size() / 2;
  const T* const b_middle = lower_bound_near_middle(b, *a_middle);
  T* const out_middle = out + (a_middle - a.first) + (b_middle - b.first);
  Pattern::invoke([=] { merge<Pattern, T>({a.first, a_middle}, {b.first, b_middle}, out, cutoff); },
                  [=] { merge<Pattern, T>({a_middle, a.last}, {b_middle, b.last}, out_middle, cutoff); });
}

/// Sorts a[0, n); tmp[0, n) is scratch.
template <class Pattern, class T>
void cilksort(T* a, T* tmp, std::size_t n, Cutoff cutoff) {
  if (n <= cutoff.sort || n < 4) {
    Pattern::updates(a, n);
    std::sort(a, a + n);
    return;
  }
  if (n > cutoff.near) Pattern::near(a + n / 2);
  const std::size_t q = n / 4;
  T *const a1 = a + q, *const a2 = a + 2 * q, *const a3 = a + 3 * q, *const end = a + n;
  Pattern::invoke([=] { cilksort<Pattern>(a, tmp, q, cutoff); },
                  [=] { cilksort<Pattern>(a1, tmp + q, q, cutoff); },
                  [=] { cilksort<Pattern>(a2, tmp + 2 * q, q, cutoff); },
                  [=] { cilksort<Pattern>(a3, tmp + 3 * q, n - 3 * q, cutoff); });
  Pattern::invoke([=] { merge<Pattern, T>({a, a1}, {a1, a2}, tmp, cutoff); },
                  [=] { merge<Pattern, T>({a2, a3}, {a3, end}, tmp + 2 * q, cutoff); });
  merge<Pattern, T>({tmp, tmp + 2 * q}, {tmp + 2 * q, tmp + n}, a, cutoff);
}

/// About how many threads cilksort of n elements ends: for the progress bar.
[[nodiscard]] inline std::size_t threads_of_merge(std::size_t n, std::size_t cutoff) {
  return n <= cutoff || n < 4 ? 0 : 1 + 2 * threads_of_merge(n / 2, cutoff);
}
[[nodiscard]] inline std::size_t threads_of_sort(std::size_t n, Cutoff cutoff) {
  if (n <= cutoff.sort || n < 4) return 0;
  return 3 + 1 + 4 * threads_of_sort(n / 4, cutoff) + 2 * threads_of_merge(n / 2, cutoff.merge) +
         threads_of_merge(n, cutoff.merge);
}

}  // namespace apps
