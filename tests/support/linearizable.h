// SPDX-License-Identifier: Apache-2.0
// Is a history of overlapping operations what some serial order of them would have done? (Maurice Herlihy,
// Jeannette Wing, "Linearizability: a correctness condition for concurrent objects"). For the few operations
// of an interleaved run.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace kasane::test {

/// An operation that took place between two readings of a clock. begin is at most the step of its first
/// effect.
template <class Model>
struct Operation {
  std::uint64_t begin;
  std::uint64_t end;
  /// Does it to the serial model; false if the model would not have given the result that was seen.
  std::function<bool(Model&)> apply;
};

/// Is there an order, in which an operation that ended before another began comes first, that the model
/// agrees with?
template <class Model>
bool linearizable(const Model& before, const std::vector<Operation<Model>>& history, std::uint32_t done = 0) {
  std::uint64_t first_end = ~std::uint64_t{0};
  for (std::size_t i = 0; i < history.size(); ++i)
    if (!(done >> i & 1) && history[i].end < first_end) first_end = history[i].end;
  bool all_done = true;
  for (std::size_t i = 0; i < history.size(); ++i) {
    if (done >> i & 1) continue;
    all_done = false;
    if (history[i].begin >= first_end) continue;  // somebody else had ended before it began
    Model after = before;
    if (history[i].apply(after) && linearizable(after, history, done | 1u << i)) return true;
  }
  return all_done;
}

}  // namespace kasane::test
