// SPDX-License-Identifier: Apache-2.0
// An explicit-state explorer: walks every state that a system of interleaved steps can reach, breadth first,
// and checks each.
//
// A System is any type with
//
//   using State = …;                                    plain bytes, no padding: equal states, equal bytes
//   State initial() const;
//   template <class Emit>
//   void successors(const State&, Emit&& emit) const;   emit(next, Step) for every enabled step
//   const char* violation(const State&) const;          null, or what is wrong in this state
//   bool finished(const State&) const;                  may it have no successor? (else that is a deadlock)
//   std::string name(const Step&) const;                for the printed trace
//   std::string show(const State&) const;
//
// A System with cycles (an actor tries again and again) says so by `bool circles() const`: then each state
// must also have a way to a finished one, else the first that has none is reported (trapped). For that the
// walk keeps all steps: 12 bytes each.
//
// A step may also report an error of its own (a load that returned the wrong value): emit(next, step, "why").
//
// Visited states are kept as 128-bit digests (16 bytes a state, whatever the State's size): with 10^9 states
// the chance that two differing ones share a digest is below 10^-20, so "exhaustive" is meant modulo that.
// The frontier holds whole states; a counterexample is found again by replaying the steps on the way to it,
// and is a shortest one.
//
// Invariant: Outcome::verdict is exhausted only if every reachable state was expanded. A bound that is hit
// says so (bounded), never passes.
// Thread safety: none needed; one walk is one thread.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <type_traits>
#include <vector>

namespace kasane::model {

/// What one step did, in three small numbers that only the System can put into words.
struct Step {
  std::uint16_t kind = 0;
  std::uint8_t actor = 0;
  std::uint8_t detail = 0;
};

/// Bounds what a walk may hold, never its time: whether a proof ends must not depend on the machine's load.
struct Bounds {
  std::uint64_t states = 60'000'000;
  std::uint64_t bytes = 3ull << 30;  ///< digests, links and frontier together
};

enum class Verdict : std::uint8_t { exhausted, counterexample, deadlock, bounded, trapped };

struct Outcome {
  Verdict verdict = Verdict::exhausted;
  std::uint64_t states = 0;   ///< distinct states reached
  std::uint64_t steps = 0;    ///< transitions taken
  std::uint64_t endings = 0;  ///< distinct finished states without a successor
  std::uint32_t depth = 0;    ///< the longest shortest way to a state
  double seconds = 0;
  std::string why;
  std::uint32_t length = 0;        ///< steps of the counterexample
  std::vector<std::string> trace;  ///< the way to it, a line a step, and the state there

  [[nodiscard]] bool ok() const noexcept { return verdict == Verdict::exhausted; }
  [[nodiscard]] bool refuted() const noexcept {
    return verdict == Verdict::counterexample || verdict == Verdict::deadlock || verdict == Verdict::trapped;
  }
  [[nodiscard]] std::string report() const {
    static constexpr const char* kWord[] = {"exhausted", "COUNTEREXAMPLE", "DEADLOCK",
                                            "NOT EXHAUSTIVE (a bound was hit)", "NO WAY TO THE END"};
    std::string s = std::string(kWord[static_cast<int>(verdict)]) + ": " + std::to_string(states) +
                    " states, " + std::to_string(steps) + " steps, depth " + std::to_string(depth) + ", " +
                    std::to_string(endings) + " endings, " + std::to_string(seconds) + " s";
    if (!why.empty()) s += "\n  " + why + (refuted() ? " after " + std::to_string(length) + " steps" : "");
    for (std::size_t i = 0; i < trace.size(); ++i) s += "\n  " + std::to_string(i + 1) + ". " + trace[i];
    return s;
  }
};

struct Digest {
  std::uint64_t lo, hi;
  friend bool operator==(const Digest&, const Digest&) = default;
};

/// Two independent multiply–fold passes over the bytes; never {0, 0}, which marks an empty slot of the set.
[[nodiscard]] inline Digest digest_of(const void* data, std::size_t bytes) noexcept {
  const auto fold = [](std::uint64_t a, std::uint64_t b) {
    const unsigned __int128 m = static_cast<unsigned __int128>(a) * b;
    return static_cast<std::uint64_t>(m) ^ static_cast<std::uint64_t>(m >> 64);
  };
  std::uint64_t lo = 0x9E3779B97F4A7C15u ^ bytes, hi = 0xC2B2AE3D27D4EB4Fu + bytes;
  const auto* p = static_cast<const unsigned char*>(data);
  for (std::size_t at = 0; at < bytes; at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, p + at, std::min<std::size_t>(8, bytes - at));
    lo = fold(lo ^ word, 0xA0761D6478BD642Fu) + 0xE7037ED1A0B428DBu;
    hi = fold(hi + word, 0x8EBC6AF09C88C6E3u) ^ (word * 0x589965CC75374CC3u) ^ (hi << 1);
  }
  lo = fold(lo ^ hi, 0x1D8E4E27C47D124Fu);
  return {lo | 1, hi};
}

/// Open addressing. Digests are numbered in order of insertion.
class DigestSet {
 public:
  /// numbered: the numbers of old ones are asked for, too.
  explicit DigestSet(bool numbered = false) : slots_(1u << 16), numbers_(numbered ? slots_.size() : 0) {}

  /// True if d was not there; its number is size() - 1 then.
  bool insert(Digest d) {
    if ((size_ + 1) * 10 > slots_.size() * 7) grow();
    const std::uint64_t at = find(d);
    if (slots_[at].lo != 0) return false;
    slots_[at] = d;
    if (!numbers_.empty()) numbers_[at] = static_cast<std::uint32_t>(size_);
    ++size_;
    return true;
  }
  /// Of a digest that is there.
  [[nodiscard]] std::uint32_t number(Digest d) const noexcept { return numbers_[find(d)]; }
  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
  [[nodiscard]] std::uint64_t bytes() const noexcept {
    return slots_.size() * sizeof(Digest) + numbers_.size() * sizeof numbers_[0];
  }
  /// What the set would need at once if it grew now.
  [[nodiscard]] std::uint64_t bytes_to_grow() const noexcept {
    return (size_ + 1) * 10 > slots_.size() * 7 ? 2 * bytes() : 0;
  }

 private:
  /// Where d is, or is to be.
  [[nodiscard]] std::uint64_t find(Digest d) const noexcept {
    const std::uint64_t mask = slots_.size() - 1;
    std::uint64_t i = d.hi & mask;
    while (slots_[i].lo != 0 && slots_[i] != d) i = (i + 1) & mask;
    return i;
  }
  void grow() {
    std::vector<Digest> old(slots_.size() * 2);
    std::vector<std::uint32_t> numbers(numbers_.size() * 2);
    old.swap(slots_);
    numbers.swap(numbers_);
    for (std::size_t i = 0; i < old.size(); ++i) {
      if (old[i].lo == 0) continue;
      const std::uint64_t at = find(old[i]);
      slots_[at] = old[i];
      if (!numbers.empty()) numbers_[at] = numbers[i];
    }
  }

  std::vector<Digest> slots_;
  std::vector<std::uint32_t> numbers_;  // of the digests in the slots; or empty
  std::uint64_t size_ = 0;
};

template <class System>
class Explorer {
 public:
  using State = typename System::State;
  static_assert(std::is_trivially_copyable_v<State> && std::has_unique_object_representations_v<State>,
                "equal states must have equal bytes: no padding, no pointers that differ");

  explicit Explorer(const System& system, Bounds bounds = {})
      : system_(system), bounds_(bounds), circles_(circles(system)), visited_(circles_) {}

  static bool circles(const System& system) {
    if constexpr (requires { system.circles(); }) return system.circles();
    return false;
  }

  Outcome run() {
    const auto start = std::chrono::steady_clock::now();
    add(system_.initial(), 0, 0);
    if (const char* why = system_.violation(level_[0])) refute(Verdict::counterexample, why, 0);
    std::uint64_t first = 0;  // number of level_[0] in order of discovery
    while (!level_.empty() && outcome_.verdict == Verdict::exhausted) {
      std::vector<State> level;
      level.swap(level_);
      for (std::size_t i = 0; i < level.size() && outcome_.verdict == Verdict::exhausted; ++i) {
        expand(level[i], first + i);
        if ((i & 1023) == 0) check_bounds(level.size() * sizeof(State));
      }
      first += level.size();
      if (!level_.empty()) ++outcome_.depth;
    }
    if (circles_ && outcome_.verdict == Verdict::exhausted) look_for_ends();
    outcome_.states = visited_.size();
    outcome_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return outcome_;
  }

 private:
  void add(const State& s, std::uint64_t parent, std::uint32_t choice) {
    const Digest d = digest_of(&s, sizeof s);
    const bool fresh = visited_.insert(d);
    if (circles_ && visited_.size() > 1)
      steps_.push_back({visited_.number(d), static_cast<std::uint32_t>(parent)});
    if (!fresh) return;
    parents_.push_back(static_cast<std::uint32_t>(parent));
    choices_.push_back(static_cast<std::uint16_t>(choice));
    level_.push_back(s);
  }

  void expand(const State& s, std::uint64_t number) {
    std::uint32_t choice = 0;
    system_.successors(s, [&](const State& next, Step, const char* error = nullptr) {
      if (outcome_.verdict != Verdict::exhausted) return;
      ++outcome_.steps;
      if (error == nullptr) error = system_.violation(next);
      if (error != nullptr) return refute(Verdict::counterexample, error, number, static_cast<int>(choice));
      add(next, number, choice++);
    });
    if (outcome_.verdict != Verdict::exhausted) return;
    if (circles_ && system_.finished(s)) finished_.push_back(static_cast<std::uint32_t>(number));
    if (choice != 0) return;
    if (system_.finished(s))
      ++outcome_.endings;
    else
      refute(Verdict::deadlock, "no step is enabled, but the scripts are not finished", number);
  }

  /// Backwards from the finished states, by steps sorted by where they end.
  void look_for_ends() {
    std::vector<std::uint32_t> first(visited_.size() + 1), from(steps_.size());
    for (const Taken& t : steps_) ++first[t.to + 1];
    for (std::size_t i = 1; i < first.size(); ++i) first[i] += first[i - 1];
    std::vector<std::uint32_t> next(first.begin(), first.end() - 1);
    for (const Taken& t : steps_) from[next[t.to]++] = t.from;
    std::vector<bool> ends(visited_.size());
    for (const std::uint32_t f : finished_) ends[f] = true;
    for (std::vector<std::uint32_t> reached = std::move(finished_); !reached.empty();) {
      const std::uint32_t to = reached.back();
      reached.pop_back();
      for (std::uint32_t i = first[to]; i < first[to + 1]; ++i) {
        if (ends[from[i]]) continue;
        ends[from[i]] = true;
        reached.push_back(from[i]);
      }
    }
    const auto trapped = std::find(ends.begin(), ends.end(), false);
    if (trapped != ends.end())
      refute(Verdict::trapped, "from here on the scripts cannot end",
             static_cast<std::uint64_t>(trapped - ends.begin()));
  }

  void check_bounds(std::uint64_t frontier_bytes) {
    const std::uint64_t held = visited_.bytes() + visited_.bytes_to_grow() + parents_.capacity() * 6 +
                               steps_.capacity() * 12 + frontier_bytes + level_.capacity() * sizeof(State);
    const char* which = visited_.size() > bounds_.states ? "states"
                        : held > bounds_.bytes           ? "bytes"
                                                         : nullptr;
    if (which == nullptr) return;
    outcome_.verdict = Verdict::bounded;
    outcome_.why = std::string("bound on ") + which + " hit; nothing is proven";
  }

  /// last: the emit of state `number` that failed, or -1 if the state itself is what is wrong.
  void refute(Verdict verdict, const char* why, std::uint64_t number, int last = -1) {
    outcome_.verdict = verdict;
    outcome_.why = why;
    std::vector<std::uint32_t> path;
    for (std::uint64_t n = number; n != 0; n = parents_[n]) path.push_back(choices_[n]);
    std::reverse(path.begin(), path.end());
    if (last >= 0) path.push_back(static_cast<std::uint32_t>(last));
    State s = system_.initial();
    for (std::uint32_t wanted : path) s = replay(s, wanted);
    outcome_.length = static_cast<std::uint32_t>(path.size());
    outcome_.trace.push_back("→ " + system_.show(s));
  }

  State replay(const State& s, std::uint32_t wanted) {
    std::uint32_t choice = 0;
    State result = s;
    system_.successors(s, [&](const State& next, Step step, const char* = nullptr) {
      if (choice++ != wanted) return;
      result = next;
      outcome_.trace.push_back(system_.name(step));
    });
    return result;
  }

  struct Taken {
    std::uint32_t to, from;
  };

  const System& system_;
  Bounds bounds_;
  Outcome outcome_;
  const bool circles_;
  DigestSet visited_;
  std::vector<Taken> steps_;             // if there may be circles
  std::vector<std::uint32_t> finished_;  // likewise
  std::vector<std::uint32_t> parents_;
  std::vector<std::uint16_t> choices_;
  std::vector<State> level_;
};

template <class System>
[[nodiscard]] Outcome explore(const System& system, Bounds bounds = {}) {
  return Explorer<System>(system, bounds).run();
}

}  // namespace kasane::model
