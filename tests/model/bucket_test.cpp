// SPDX-License-Identifier: Apache-2.0
// A bucket of kasane::unordered_map (kasane/containers/bucket.hpp, the shipping tables) that threads read,
// change, split and clear at once. One key; its value counts the changes. A far thread reads a bucket in two
// parts, in either order, by a directory of its own that may be old; a near one by the directory, and looks
// at the word twice. Behind the first bucket there may be another one, which has the key, or is put there
// meanwhile.
//
// Checked: a find sees every change that ended before it began, and none that had not begun; no change is
// lost; none is made in a bucket that was cleared; a call is refused only if it has met a clear, which is
// refused if it meets a change; from every state there is a way to the end. A rule taken away is noticed.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <kasane/containers/bucket.hpp>
#include <random>
#include <string>

#include "model/walk.h"

namespace kasane::model {
namespace {

namespace bucket = detail::bucket;
using bucket::Change, bucket::Look, bucket::Place, bucket::Split;

enum class Without : std::uint8_t {
  none,
  checksum,    ///< a far read is good whatever its checksum
  look_twice,  ///< a near find does not look at the word again
  proof,       ///< the lock is taken whatever the word was
  lock,        ///< entries are changed without it
  fill_first,  ///< the directory names the new bucket before it is whole
  moved,       ///< a read is good whatever the bucket covers
  split_lock,  ///< a bucket is split without its lock
  all,         ///< a clear takes locks whatever they are
  directory,   ///< a clear does not hold off splits
  give_back,   ///< a clear that is refused keeps a lock
  behind,      ///< the checksum does not cover what is behind
};

enum class Do : std::uint8_t {
  nothing,
  find_far,
  find_near,
  change_far,
  change_near,
  split,
  lengthen,
  clear
};
struct Script {
  std::array<Do, 4> threads{};
  bool chained = false;  ///< the key is behind the first bucket
  Do operator[](std::size_t i) const { return threads[i]; }
};

struct Buckets {
  Without without = Without::none;
  Script script{};

  static constexpr std::uint64_t kHash = 1;
  struct Memory {
    std::uint64_t word, place, value, copy;  ///< the value is two words
  };
  enum Stage : std::uint8_t {
    kBegin,
    kFirst,
    kSecond,
    kThird,
    kBehind,
    kBehindToo,
    kJudge,
    kLock,
    kEntries,
    kRest,
    kPublish,
    kFill,
    kName,
    kPlaces,
    kOver
  };
  struct Actor {
    Memory seen, behind;
    std::uint8_t stage, bucket, order, far_knows, before, done, met, unused;  ///< met: a clear
  };
  struct State {
    std::array<Memory, 3> memory;  ///< kBehindOne: what may be behind the first
    std::array<Actor, 4> actor;
    std::uint64_t directory;
    std::uint8_t begun, ended, wrong, splitting, cleared, unused[3];
  };

  static constexpr std::uint8_t kBehindOne = 2;
  static bool linked(const Memory& m) { return Place{m.place}.link() != 0; }
  /// Of a first bucket, and of what is behind it.
  static std::uint32_t sum_of(const Memory& m, const Memory& behind, std::uint32_t occupied) {
    std::uint64_t sum = m.place * 1000 + 1;
    if (occupied != 0) sum += m.value * 31 + m.copy * 3 + 7;
    if (linked(m) && Place{behind.place}.occupancy() != 0) sum += behind.value * 37 + behind.copy * 5 + 11;
    return static_cast<std::uint32_t>(sum ^ sum >> 32);
  }
  State initial() const {
    State s = {};
    const std::uint32_t first = script.chained ? 0 : 1;
    if (script.chained) {
      s.memory[0].place = Place::of(0, 0, kBehindOne).bits;
      s.memory[kBehindOne].place = Place::behind(1, 0).bits;
    }
    s.memory[0].word = bucket::changed(0, first, sum_of(s.memory[0], s.memory[kBehindOne], first));
    return s;
  }
  /// Which of the two has the key, of a chain as it is or was seen. Null: none has.
  static Memory* holder(Memory& m, Memory& behind) {
    if (bucket::occupancy(m.word) != 0) return &m;
    return linked(m) && Place{behind.place}.occupancy() != 0 ? &behind : nullptr;
  }
  const char* violation(const State& s) const {
    if (s.wrong == 1)
      return "a find has missed a change that had ended, or seen half of one, or one that had not begun";
    if (s.wrong == 2) return "a find has missed the key";
    if (s.wrong == 3) return "a bucket is changed that was cleared";
    if (s.wrong == 4) return "a call is refused that has met no clear";
    if (!over(s) || s.cleared != 0) return nullptr;
    State n = s;
    const Memory* const m = holder(n.memory[s.directory], n.memory[kBehindOne]);
    if (m == nullptr || !Place{s.memory[s.directory].place}.covers(kHash)) return "the key is lost";
    return m->value != s.ended || m->copy != s.ended ? "a change is lost" : nullptr;
  }
  bool over(const State& s) const {
    for (std::size_t a = 0; a < 4; ++a)
      if (script[a] != Do::nothing && s.actor[a].stage != kOver) return false;
    return true;
  }
  bool finished(const State& s) const { return over(s); }
  bool circles() const { return true; }
  std::string name(const Step& x) const {
    return "thread " + std::to_string(x.actor) + ", stage " + std::to_string(x.kind) + ", bucket " +
           std::to_string(x.detail);
  }
  std::string show(const State& s) const {
    std::string text = "directory " + std::to_string(s.directory);
    for (const Memory& m : s.memory)
      text += " [" + std::to_string(m.word >> 32) + " place " + std::to_string(m.place) + " value " +
              std::to_string(m.value) + "]";
    return text;
  }

  template <class Emit>
  void successors(const State& s, Emit&& emit) const {
    for (std::uint8_t a = 0; a < 4; ++a) {
      if (script[a] == Do::nothing || s.actor[a].stage == kOver) continue;
      const auto go = [&](State n) {
        meet(n, a);
        emit(n, Step{s.actor[a].stage, a, s.actor[a].bucket});
      };
      if (script[a] == Do::split)
        split(s, a, go);
      else if (script[a] == Do::lengthen)
        lengthen(s, a, go);
      else if (script[a] == Do::clear)
        clear(s, a, go);
      else
        step(s, a, go);
    }
  }

  /// A clear that is under way, or was made, is met by all that are under way.
  void meet(State& n, std::uint8_t) const {
    bool now = n.cleared != 0;
    for (std::uint8_t c = 0; c < 4; ++c)
      now = now || (script[c] == Do::clear && n.actor[c].stage != kBegin && n.actor[c].stage != kOver);
    for (std::uint8_t b = 0; now && b < 4; ++b)
      if (script[b] != Do::clear && n.actor[b].stage != kBegin && n.actor[b].stage != kOver)
        n.actor[b].met = 1;
  }
  static void refuse(State& n, std::uint8_t a) {
    if (n.actor[a].met == 0) n.wrong = 4;
    n.actor[a] = {};
    n.actor[a].stage = kOver;
  }

  [[nodiscard]] bool far(std::uint8_t a) const {
    return script[a] == Do::find_far || script[a] == Do::change_far;
  }
  [[nodiscard]] bool changes(std::uint8_t a) const {
    return script[a] == Do::change_far || script[a] == Do::change_near;
  }

  template <class Go>
  void step(const State& s, std::uint8_t a, const Go& go) const {
    State n = s;
    Actor& x = n.actor[a];
    switch (s.actor[a].stage) {
      case kBegin:
        x.before = n.ended;
        if (changes(a) && x.done == 0) ++n.begun, x.done = 1;
        x.bucket = static_cast<std::uint8_t>(far(a) ? x.far_knows : n.directory);
        x.stage = kFirst;
        if (far(a)) {  // the parts arrive in either order
          State other = n;
          other.actor[a].order = 1;
          go(other);
        }
        x.order = 0;
        return go(n);
      case kFirst:
      case kSecond: read_part(n, x, x.stage == kFirst ? x.order : !x.order); return go(n);
      case kThird:
        x.seen.copy = n.memory[x.bucket].copy;
        x.stage = linked(x.seen) ? kBehind : kJudge;
        return go(n);
      case kBehind:
        x.behind = n.memory[kBehindOne];
        ++x.stage;
        return go(n);
      case kBehindToo:
        x.behind.copy = n.memory[kBehindOne].copy;
        ++x.stage;
        return go(n);
      case kJudge: return judge(n, a, go);
      case kLock: {
        std::uint64_t& word = n.memory[x.bucket].word;
        const bool free = !bucket::locked(word);
        const bool ok = without == Without::lock || (without == Without::proof ? free : word == x.seen.word);
        if (without == Without::proof && ok) x.seen.word = word;
        if (ok && without != Without::lock) word |= bucket::kLocked;
        if (ok && n.cleared != 0) n.wrong = 3;
        x.stage = bucket::next(Change::lock, ok) == Change::entries ? kEntries : kBegin;
        return go(n);
      }
      case kEntries:
      case kRest: {
        Memory* const seen = holder(x.seen, x.behind);
        if (seen == nullptr) return n.wrong = 2, go(n);
        Memory& m = n.memory[seen == &x.seen ? x.bucket : kBehindOne];
        if (x.stage == kEntries)
          m.value = ++seen->value;
        else
          m.copy = ++seen->copy;
        x.stage = x.stage == kEntries ? kRest : kPublish;
        return go(n);
      }
      case kPublish:
        n.memory[x.bucket].word = bucket::changed(x.seen.word, bucket::occupancy(x.seen.word),
                                                  sum_of(x.seen, x.behind, bucket::occupancy(x.seen.word)));
        if (n.cleared != 0) n.wrong = 3;
        ++n.ended;
        x = {};
        x.stage = kOver;
        return go(n);
      default: return;
    }
  }

  /// Part 0: word and place; part 1: the entry.
  static void read_part(State& n, Actor& x, bool entry) {
    const Memory& m = n.memory[x.bucket];
    if (entry) {
      x.seen.value = m.value;
    } else {
      x.seen.word = m.word;
      x.seen.place = m.place;
    }
    ++x.stage;
  }

  template <class Go>
  void judge(State n, std::uint8_t a, const Go& go) const {
    Actor& x = n.actor[a];
    std::uint32_t sum = sum_of(x.seen, x.behind, bucket::occupancy(x.seen.word));
    if (without == Without::behind && linked(x.seen)) sum = bucket::checksum(x.seen.word);
    if (!far(a))  // the word after it instead of the checksum
      sum = n.memory[x.bucket].word == x.seen.word || without == Without::look_twice
                ? bucket::checksum(x.seen.word)
                : ~bucket::checksum(x.seen.word);
    if (far(a) && without == Without::checksum) sum = bucket::checksum(x.seen.word);
    Look look = bucket::judge(x.seen.word, Place{x.seen.place}, sum, kHash);
    if (look == Look::moved && without == Without::moved) look = Look::good;
    if (look == Look::busy) return refuse(n, a), go(n);
    if (look != Look::good) {
      if (look == Look::moved) x.far_knows = static_cast<std::uint8_t>(n.directory);
      const Actor kept = x;
      x = {};
      x.far_knows = kept.far_knows;
      x.done = kept.done;
      x.before = kept.before;
      x.met = kept.met;
      // A find that tries again goes on with the time at which it began.
      x.stage = kBegin;
      return go(n);
    }
    const Memory* const seen = holder(x.seen, x.behind);
    if (changes(a)) {
      x.stage = seen != nullptr ? kLock : kOver;
      if (seen == nullptr) n.wrong = 2;
      return go(n);
    }
    if (seen == nullptr)
      n.wrong = 2;
    else if (seen->value < x.before || seen->value > n.begun || seen->value != seen->copy)
      n.wrong = 1;
    x = {};
    x.stage = kOver;
    go(n);
  }

  template <class Go>
  void split(const State& s, std::uint8_t a, const Go& go) const {
    State n = s;
    Actor& x = n.actor[a];
    Memory &old = n.memory[0], &fresh = n.memory[1], &behind = n.memory[kBehindOne];
    const bool early = without == Without::fill_first;
    switch (x.stage) {
      case kBegin: {
        x.seen.word = old.word;
        const bool ok = !bucket::locked(old.word);
        if (n.splitting == bucket::kAlone || bucket::exclusive(old.word)) {  // so its insert is refused
          x.stage = kOver;
          return go(n);
        }
        if (!ok) return;  // its insert reads again
        n.splitting = bucket::kSplitting;
        if (without != Without::split_lock) old.word |= bucket::kLocked;
        x.stage = bucket::next(Split::lock, ok) == Split::fill_new ? (early ? kName : kFill) : kOver;
        return go(n);
      }
      case kFill: {
        const Memory* const from = bucket::occupancy(x.seen.word) != 0 ? &old : &behind;
        fresh.value = from->value;
        fresh.copy = from->copy;
        fresh.place = Place{old.place}.half(1).bits;
        fresh.word = bucket::changed(0, 1, sum_of(fresh, {}, 1));
        x.stage = early ? kPublish : kName;
        return go(n);
      }
      case kName:
        n.directory = 1;
        x.stage = early ? kFill : kPublish;
        return go(n);
      case kPublish:
        if (linked(old)) behind.place = Place::behind(0, 0).bits;
        x.stage = kPlaces;
        return go(n);
      case kPlaces:
        old.place = Place{old.place}.half(0).linked(Place{old.place}.link()).bits;
        x.stage = kLock;  // the word after the place
        return go(n);
      case kLock:
        old.word = bucket::changed(x.seen.word, 0, sum_of(old, behind, 0));
        if (n.cleared != 0) n.wrong = 3;
        n.splitting = 0;
        x = {};
        x.stage = kOver;
        return go(n);
      default: return;
    }
  }

  /// Puts a bucket behind the first one.
  template <class Go>
  void lengthen(const State& s, std::uint8_t a, const Go& go) const {
    State n = s;
    Actor& x = n.actor[a];
    Memory& first = n.memory[0];
    const std::uint32_t occupied = bucket::occupancy(x.seen.word);
    switch (x.stage) {
      case kBegin:
        x.seen.word = first.word;
        if (n.splitting == bucket::kAlone || bucket::exclusive(first.word)) {  // so its insert is refused
          x.stage = kOver;
          return go(n);
        }
        if (bucket::locked(first.word)) return;  // its insert reads again
        n.splitting = bucket::kSplitting;
        first.word |= bucket::kLocked;
        x.stage = kFill;
        return go(n);
      case kFill:
        n.memory[kBehindOne].place = Place::behind(0, 0).bits;
        x.stage = bucket::next(Split::fill_new, false) == Split::publish_old ? kPlaces : kName;
        return go(n);
      case kPlaces:
        first.place = Place{first.place}.linked(kBehindOne).bits;
        x.stage = kLock;  // the word after the place
        return go(n);
      case kLock:
        first.word = bucket::changed(x.seen.word, occupied, sum_of(first, n.memory[kBehindOne], occupied));
        if (n.cleared != 0) n.wrong = 3;
        n.splitting = 0;
        x = {};
        x.stage = kOver;
        return go(n);
      default: return;
    }
  }

  /// The directory, then each bucket that was taken. seen has the words of the two buckets.
  template <class Go>
  void clear(const State& s, std::uint8_t a, const Go& go) const {
    using bucket::Exclusive;
    State n = s;
    Actor& x = n.actor[a];
    std::uint64_t* const seen[] = {&x.seen.word, &x.seen.place};
    const auto after = [&](Exclusive step, bool ok, Stage if_ok) {
      x.stage = bucket::next(step, ok) == Exclusive::give_back ? kRest : if_ok;
    };
    switch (x.stage) {
      case kBegin: {
        const bool ok = n.splitting == 0 || without == Without::directory;
        if (ok && without != Without::directory) n.splitting = bucket::kAlone;
        after(Exclusive::directories, ok, kFirst);
        if (!ok) x.stage = kOver;
        return go(n);
      }
      case kFirst:  // how many there are
        x.order = n.memory[1].word != 0 ? 2 : 1;
        x.stage = kSecond;
        return go(n);
      case kSecond: {
        *seen[x.bucket] = n.memory[x.bucket].word;
        after(Exclusive::buckets, !bucket::locked(*seen[x.bucket]) || without == Without::all, kThird);
        return go(n);
      }
      case kThird: {
        std::uint64_t& word = n.memory[x.bucket].word;
        const bool ok = word == *seen[x.bucket] || without == Without::all;
        if (ok) word = *seen[x.bucket] | bucket::kLocked | bucket::kExclusive;
        after(Exclusive::buckets, ok, kSecond);
        if (!ok || ++x.bucket != x.order) return go(n);
        n.cleared = 1;
        n.splitting = 0;
        x = {};
        x.stage = kOver;
        return go(n);
      }
      case kRest:
        if (x.bucket != 0 && without != Without::give_back) {
          --x.bucket;
          n.memory[x.bucket].word = *seen[x.bucket];
        } else {
          n.splitting = 0;
          x = {};
          x.stage = kOver;
        }
        return go(n);
      default: return;
    }
  }
};

constexpr Script kScripts[] = {
    {{Do::change_far, Do::clear, Do::split, Do::find_near}},
    {{Do::change_near, Do::clear, Do::split, Do::find_far}},
    {{Do::change_far, Do::change_near, Do::split, Do::clear}},
    {{Do::change_far, Do::change_near, Do::split, Do::find_far}},
    {{Do::change_far, Do::change_far, Do::split, Do::find_near}},
    {{Do::change_near, Do::find_far, Do::split, Do::find_near}},
    {{Do::change_far, Do::change_near, Do::change_far, Do::find_far}},
    {{Do::change_far, Do::change_near, Do::split}, true},
    {{Do::change_far, Do::split, Do::find_near}, true},
    {{Do::change_near, Do::split, Do::find_far}, true},
    {{Do::change_far, Do::change_near, Do::find_far}, true},
    {{Do::change_far, Do::clear, Do::find_near}, true},
    {{Do::change_far, Do::lengthen, Do::find_near}},
    {{Do::change_near, Do::lengthen, Do::find_far}},
    {{Do::change_near, Do::lengthen, Do::clear}},
};

TEST(Bucket, LosesNoChangeAndShowsNone) {
  for (const auto& script : kScripts) expect_sound(Buckets{.script = script});
}

TEST(Bucket, EachRuleIsNeeded) {
  expect_needed({Without::checksum, Without::look_twice, Without::proof, Without::lock, Without::fill_first,
                 Without::moved, Without::split_lock, Without::all, Without::directory, Without::give_back,
                 Without::behind},
                kScripts, [](Without w, const auto& script) { return explore(Buckets{w, script}); });
}

TEST(Bucket, TagsNameTheirEntries) {
  std::mt19937 random(1);
  for (int i = 0; i < 100'000; ++i) {
    const unsigned values = i % 2 != 0 ? 256 : 3;
    bucket::Tags tags;
    for (std::uint8_t& b : tags.byte) b = static_cast<std::uint8_t>(random() % values);
    const auto tag = static_cast<std::uint8_t>(random() % values);
    std::uint32_t same = 0;
    for (unsigned k = 0; k < bucket::kMostEntries; ++k) same |= std::uint32_t{tags.byte[k] == tag} << k;
    ASSERT_EQ(tags.with(tag), same);
  }
}

}  // namespace
}  // namespace kasane::model
