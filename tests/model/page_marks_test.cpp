// SPDX-License-Identifier: Apache-2.0
// Walks every interleaving of ranks that add pages to a set of marks and of its owner, which takes them
// (gas/page_marks.h), one word's operation a step, over the shipped places of the bits. What an add promises:
// a thread that finds the set idle after an add has returned knows what the adder did before it.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "gas/page_marks.h"
#include "model/walk.h"

namespace kasane::model {
namespace {

enum class Mutation : std::uint8_t {
  none,
  from_the_head,  ///< an add sets the head first
  leaf_says_all,  ///< an add that finds its page's bit set looks no further
  head_last,      ///< a take clears the head when it has been below
  not_counted,    ///< a take is not counted in the head
};

/// Two in one leaf, one in another leaf of the branch, one in another branch of the group.
constexpr std::array<PageId, 4> kPages{PageId{0}, PageId{1}, PageId{64},
                                       PageId{std::uint64_t{64} * 64 * gas::MarkPlace::kGroups}};

struct Program {
  std::array<std::vector<std::uint8_t>, 3> adds;  ///< of each adder: indices of kPages
  std::array<bool, 3> here{};                     ///< looks before it sets (add_here)
  std::uint8_t takes = 2;
  Mutation without = Mutation::none;
};

class Marks {
  static constexpr std::uint8_t kLeaves = 3, kBranches = 2;

 public:
  struct State {
    std::uint8_t leaf[kLeaves], branch[kBranches], head, counted;
    // of a page: what adders did before; what a take knew; what an add that returned did
    std::uint8_t version[4], known[4], promised[4];
    struct {
      std::uint8_t pc, level, looked, version;
    } adder[3];
    struct {
      std::uint8_t takes, stage, branch, leaves, leaf;
    } taker;
  };

  explicit Marks(Program p) : program_(std::move(p)) {}
  State initial() const {
    State s;
    std::memset(&s, 0, sizeof s);
    return s;
  }

  template <class Emit>
  void successors(const State& s, Emit&& emit) const {
    for (std::uint8_t a = 0; a < 3; ++a)
      if (s.adder[a].pc < program_.adds[a].size()) add(s, a, emit);
    if (s.taker.takes < program_.takes || s.taker.stage != 0) take(s, emit);
  }
  const char* violation(const State& s) const {
    if (s.head != 0 || s.counted != 0) return nullptr;
    for (int p = 0; p < 4; ++p)
      if (s.known[p] < s.promised[p]) return "the set is idle, and an add that has returned is not known";
    return nullptr;
  }
  bool finished(const State& s) const {
    for (std::uint8_t a = 0; a < 3; ++a)
      if (s.adder[a].pc < program_.adds[a].size()) return false;
    return s.taker.takes == program_.takes && s.taker.stage == 0;
  }
  std::string name(const Step& step) const {
    return (step.kind == 0 ? "adder " : "taker ") + std::to_string(step.actor) + " step " +
           std::to_string(step.detail);
  }
  std::string show(const State& s) const {
    return "head " + std::to_string(s.head) + " leaves " + std::to_string(s.leaf[0]) + "," +
           std::to_string(s.leaf[1]) + "," + std::to_string(s.leaf[2]);
  }

 private:
  // The shipped places, renumbered densely.
  static std::uint8_t leaf_of(std::uint8_t p) {
    const std::uint64_t leaf = gas::MarkPlace::of(kPages[p]).leaf;
    return static_cast<std::uint8_t>(leaf < 2 ? leaf : 2);
  }
  static std::uint8_t branch_of(std::uint8_t p) { return gas::MarkPlace::of(kPages[p]).branch == 0 ? 0 : 1; }
  static std::uint8_t leaf_bit(std::uint8_t p) {
    return static_cast<std::uint8_t>(gas::MarkPlace::of(kPages[p]).leaf_bit);
  }
  static std::uint8_t branch_bit(std::uint8_t p) { return static_cast<std::uint8_t>(1 << leaf_of(p)); }
  static std::uint8_t head_bit(std::uint8_t p) {
    return static_cast<std::uint8_t>(gas::MarkPlace::of(kPages[p]).head_bit >> 32);
  }

  template <class Emit>
  void add(const State& s, std::uint8_t a, Emit&& emit) const {
    State n = s;
    auto& x = n.adder[a];
    const std::uint8_t p = program_.adds[a][x.pc];
    const Step label{0, a, x.level};
    if (x.level == 0) {  // what the mark is for
      x.version = ++n.version[p];
      x.level = 1;
      return emit(n, label);
    }
    const bool down = program_.without == Mutation::from_the_head;
    const int level = down ? 4 - x.level : x.level;
    std::uint8_t& word = level == 1 ? n.leaf[leaf_of(p)] : level == 2 ? n.branch[branch_of(p)] : n.head;
    const std::uint8_t bit = level == 1 ? leaf_bit(p) : level == 2 ? branch_bit(p) : head_bit(p);
    bool returned = false;
    if (program_.here[a] && !x.looked) {
      if ((word & bit) == 0) {
        x.looked = 1;
        return emit(n, label);
      }
      returned = level == 1 && program_.without == Mutation::leaf_says_all;
    }
    word = static_cast<std::uint8_t>(word | bit);
    x.looked = 0;
    if (++x.level == 4 || returned) {
      n.promised[p] = std::max(n.promised[p], x.version);
      x.level = x.version = 0;
      ++x.pc;
    }
    emit(n, label);
  }

  template <class Emit>
  void take(const State& s, Emit&& emit) const {
    State n = s;
    auto& x = n.taker;
    const Step label{1, 0, x.stage};
    const bool late = program_.without == Mutation::head_last;
    switch (x.stage) {
      case 0:
        n.counted = program_.without != Mutation::not_counted;
        x.stage = 1;
        break;
      case 1:
        if (!late) n.head = 0;
        x.stage = s.head != 0 ? 2 : 4;
        break;
      case 2:
        x.leaves = s.branch[x.branch];
        n.branch[x.branch] = 0;
        x.stage = 3;
        break;
      case 3:
        if (x.leaves == 0) {
          x.stage = 2;
          if (++x.branch == kBranches) {
            x.branch = 0;
            x.stage = 4;
          }
        } else {
          const auto leaf = static_cast<std::uint8_t>(std::countr_zero(x.leaves));
          x.leaves = static_cast<std::uint8_t>(x.leaves & (x.leaves - 1));
          for (std::uint8_t p = 0; p < 4; ++p)
            if (leaf_of(p) == leaf && (s.leaf[leaf] & leaf_bit(p))) n.known[p] = s.version[p];
          n.leaf[leaf] = 0;
        }
        break;
      default:
        if (late) n.head = 0;
        n.counted = 0;
        x.stage = 0;
        ++x.takes;
    }
    emit(n, label);
  }

  Program program_;
};

std::vector<Program> programs() {
  return {{{{{0}, {0}, {1}}}, {false, false, false}},
          {{{{0}, {0}, {0, 1}}}, {true, true, false}},
          {{{{0, 2}, {2}, {3}}}, {true, false, true}},
          {{{{2, 2}, {0, 3}, {}}}, {true, true, false}}};
}

TEST(PageMarks, WhoFindsTheSetIdleKnowsWhatWasAdded) {
  for (const Program& p : programs()) expect_sound(Marks(p));
}

TEST(PageMarks, EachRuleIsNeeded) {
  expect_needed(
      {Mutation::from_the_head, Mutation::leaf_says_all, Mutation::head_last, Mutation::not_counted},
      programs(), [](Mutation without, Program p) {
        p.without = without;
        return explore(Marks(p));
      });
}

}  // namespace
}  // namespace kasane::model
