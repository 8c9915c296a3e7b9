// SPDX-License-Identifier: Apache-2.0
#include "stress/program.h"

#include <algorithm>
#include <map>

namespace kasane::stress {
namespace {

struct Cell {
  std::uint32_t object;
  std::uint32_t offset;
  std::uint8_t width;
  bool known = false;  ///< was written since it was allocated
  std::uint64_t value = 0;
};

using Cells = std::vector<std::uint32_t>;  // numbers of cells

/// A child that was forked and not joined.
struct Child {
  std::uint16_t slot;
  Cells left;                       ///< cells that come back at the join
  Cells lent;                       ///< ours: may be written again when no child reads them any more
  std::vector<std::uint32_t> heap;  ///< objects that it may have freed and did not
};

struct Scope {
  std::uint32_t thread;
  std::uint32_t depth;
  Cells own;                                    ///< may be written
  Cells borrowed;                               ///< may be read as long as this thread lives
  std::map<std::uint32_t, std::uint32_t> lent;  ///< ours, but so many children read it
  std::vector<Child> children;
  std::vector<std::uint32_t> heap;  ///< objects that it may free when it holds all their cells
  std::vector<Op> ops;
  std::uint16_t slots = 0;
};

class Generator {
 public:
  Generator(std::uint64_t seed, const Limits& limits) : limits_(limits), state_(seed) {
    program_.seed = seed;
  }

  Program run() {
    Scope root = begin(0);
    for (unsigned i = 2 + pick(4); i > 0; --i) allocate(root);
    act(root, limits_.actions * 2);
    join_all(root);
    for (std::uint32_t lock = 0; lock < kLocks; ++lock)
      emit(root, {OpKind::check, 8, 0, lock, 0, added_[lock]});
    read_everything(root);
    end(root);
    return std::move(program_);
  }

 private:
  std::uint64_t next() {  // splitmix64
    std::uint64_t z = (state_ += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  std::uint32_t pick(std::size_t bound) {
    return bound == 0 ? 0 : static_cast<std::uint32_t>(next() % bound);
  }
  bool chance(std::uint32_t percent) { return pick(100) < percent; }
  std::uint32_t take_out(Cells& from) {
    const std::uint32_t i = pick(from.size()), cell = from[i];
    from[i] = from.back();
    from.pop_back();
    return cell;
  }
  static void append(Cells& to, const Cells& from) { to.insert(to.end(), from.begin(), from.end()); }
  static void emit(Scope& s, Op op) { s.ops.push_back(op); }

  // ---- threads and objects ----

  Scope begin(std::uint32_t depth) {
    Scope s;
    s.thread = static_cast<std::uint32_t>(program_.threads.size());
    s.depth = depth;
    program_.threads.push_back({0, 0, static_cast<std::uint32_t>(program_.objects.size())});
    const std::uint32_t frame = add_object(kFrameBytes, s.thread);
    if (limits_.stacks) append(s.own, add_cells(frame, 4 + pick(8)));
    return s;
  }
  void end(Scope& s) {
    program_.threads[s.thread].first_op = static_cast<std::uint32_t>(program_.ops.size());
    program_.threads[s.thread].ops = static_cast<std::uint32_t>(s.ops.size());
    program_.ops.insert(program_.ops.end(), s.ops.begin(), s.ops.end());
  }
  std::uint32_t add_object(std::uint32_t bytes, std::uint32_t thread) {
    program_.objects.push_back({bytes, thread});
    cells_of_.emplace_back();
    return static_cast<std::uint32_t>(program_.objects.size() - 1);
  }
  /// Cells of one width, dense or spread over the object.
  Cells add_cells(std::uint32_t object, std::uint32_t wanted) {
    const auto width = static_cast<std::uint8_t>(1u << pick(4));
    const std::uint32_t bytes = program_.objects[object].bytes;
    const std::uint32_t stride =
        chance(70) ? width : std::max<std::uint32_t>(width, (bytes / std::max(1u, wanted)) & ~7u);
    Cells cells;
    for (std::uint32_t i = 0; i < wanted && (i + 1) * stride <= bytes; ++i) {
      cells.push_back(static_cast<std::uint32_t>(cells_.size()));
      cells_.push_back({object, i * stride, width});
    }
    cells_of_[object] = cells;
    return cells;
  }

  // ---- actions ----

  void act(Scope& s, std::uint32_t actions) {
    for (std::uint32_t i = 1 + pick(actions * 2); i > 0; --i) {
      const std::uint32_t dice = pick(100);
      if (dice < 30)
        write(s);
      else if (dice < 55)
        read(s);
      else if (dice < 67)
        fork(s);
      else if (dice < 71)
        group(s);
      else if (dice < 78)
        join_one(s);
      else if (dice < 84)
        add(s);
      else if (dice < 89)
        allocate(s);
      else if (dice < 93)
        free_one(s);
      else if (dice < 98)
        emit(s, {OpKind::work, 0, 0, 0, 0, pick(limits_.work) + 1u});
      else
        emit(s, {OpKind::yield, 0, 0, 0, 0, 0});
    }
  }

  void write_cell(Scope& s, std::uint32_t number) {
    Cell& c = cells_[number];
    c.value = chance(25) ? pick(3) : next();  // often a value that was there before
    if (c.width < 8) c.value &= (std::uint64_t{1} << (8 * c.width)) - 1;
    c.known = true;
    emit(s, {OpKind::write, c.width, 0, c.object, c.offset, c.value});
  }
  void write(Scope& s) {
    if (s.own.empty()) return;
    for (std::uint32_t n = 1 + pick(4); n > 0; --n) write_cell(s, s.own[pick(s.own.size())]);
  }
  void read_cell(Scope& s, std::uint32_t number) {
    const Cell& c = cells_[number];
    if (c.known) emit(s, {OpKind::read, c.width, 0, c.object, c.offset, c.value});
  }
  void read(Scope& s) {
    for (std::uint32_t n = 1 + pick(4); n > 0; --n) {
      Cells all = s.own;
      append(all, s.borrowed);
      for (const auto& [cell, count] : s.lent) all.push_back(cell);
      if (all.empty()) return;
      read_cell(s, all[pick(all.size())]);
    }
  }
  void read_everything(Scope& s) {
    for (std::uint32_t c : s.own) read_cell(s, c);
  }
  void add(Scope& s) {
    const std::uint32_t lock = pick(kLocks);
    const std::uint64_t value = pick(1000);
    added_[lock] += value;
    emit(s, {OpKind::add, 8, 0, lock, 0, value});
  }
  void allocate(Scope& s) {
    static constexpr std::uint32_t kSizes[] = {16, 48, 128, 512, 2048, 4096, 9000, 20000, 70000, 140000};
    const std::uint32_t object = add_object(kSizes[chance(85) ? pick(7) : pick(10)], kHeap);
    emit(s, {OpKind::allocate, 0, 0, object, 0, 0});
    s.heap.push_back(object);
    append(s.own, add_cells(object, 4 + pick(60)));
  }
  void free_one(Scope& s) {
    if (s.heap.empty()) return;
    const std::uint32_t i = pick(s.heap.size()), object = s.heap[i];
    if (!holds_all(s, object)) return;  // another thread holds or reads some of it
    std::erase_if(s.own, [&](std::uint32_t c) { return cells_[c].object == object; });
    s.heap.erase(s.heap.begin() + i);
    emit(s, {OpKind::release, 0, 0, object, 0, 0});
  }

  // ---- forks ----

  [[nodiscard]] bool may_fork(const Scope& s, std::uint32_t children) const {
    return s.depth < limits_.depth && program_.threads.size() + children <= limits_.threads &&
           s.slots + children <= kMaxChildren;
  }
  /// Hands cells of s to a new child: some to write, some to read, sometimes a whole object to free.
  Scope spawn(Scope& s) {
    Scope child = begin(s.depth + 1);
    Child record{s.slots++, {}, {}, {}};
    if (!s.heap.empty() && chance(30)) hand_over(s, child, pick(s.heap.size()));
    for (std::uint32_t n = pick(s.own.size() / 2 + 1); n > 0; --n) child.own.push_back(take_out(s.own));
    for (std::uint32_t n = pick(s.own.size() / 3 + 1); n > 0; --n) s.lent[take_out(s.own)] = 0;
    for (auto& [cell, count] : s.lent) {
      if (count != 0 && !chance(30)) continue;
      ++count;
      record.lent.push_back(cell);
    }
    child.borrowed = record.lent;
    for (std::uint32_t c : s.borrowed)  // lent by a thread that waits for this one, which waits for the child
      if (chance(30)) child.borrowed.push_back(c);
    emit(s, {OpKind::fork, 0, record.slot, child.thread, 0, 0});
    s.children.push_back(std::move(record));
    return child;
  }
  void hand_over(Scope& s, Scope& child, std::uint32_t i) {
    const std::uint32_t object = s.heap[i];
    if (!holds_all(s, object)) return;
    std::erase_if(s.own, [&](std::uint32_t c) { return cells_[c].object == object; });
    append(child.own, cells_of_[object]);
    child.heap.push_back(object);
    s.heap.erase(s.heap.begin() + i);
  }
  [[nodiscard]] bool holds_all(const Scope& s, std::uint32_t object) const {
    const auto held = std::count_if(s.own.begin(), s.own.end(),
                                    [&](std::uint32_t c) { return cells_[c].object == object; });
    return static_cast<std::size_t>(held) == cells_of_[object].size();
  }
  /// What the child leaves behind goes to its record; its frame is gone.
  void leave(Scope& parent, std::uint16_t slot, Scope& child) {
    join_all(child);
    for (Child& record : parent.children) {
      if (record.slot != slot) continue;
      std::erase_if(child.own, [&](std::uint32_t c) {
        return program_.objects[cells_[c].object].thread == child.thread;
      });
      record.left = child.own;
      record.heap = child.heap;
    }
    end(child);
  }
  void fork(Scope& s) {
    if (!may_fork(s, 1)) return;
    const std::uint16_t slot = s.slots;
    Scope child = spawn(s);
    act(child, limits_.actions);
    leave(s, slot, child);
  }

  /// Siblings that meet at a barrier: phases of writing one's own part, then of reading all parts.
  void group(Scope& s) {
    const std::uint32_t members = 2 + pick(3);
    if (!may_fork(s, members) || s.own.size() < 2 * members) return;
    Cells common;
    for (std::uint32_t n = members + pick(s.own.size() / 2 - members + 1); n > 0; --n)
      common.push_back(take_out(s.own));
    const auto barrier = static_cast<std::uint32_t>(program_.barriers.size());
    program_.barriers.push_back({members});
    const std::uint16_t first_slot = s.slots;
    std::vector<Scope> scopes;
    for (std::uint32_t m = 0; m < members; ++m) scopes.push_back(spawn(s));
    for (std::uint32_t phase = 0, phases = 2 * (1 + pick(2)); phase < phases; ++phase) {
      for (std::uint32_t m = 0; m < members; ++m) {
        Scope& me = scopes[m];
        Cells mine;
        for (std::size_t i = 0; i < common.size(); ++i)
          if (phase % 2 == 1 || i % members == m) mine.push_back(common[i]);
        for (std::uint32_t n = 1 + pick(6); n > 0; --n) {
          if (phase % 2 == 0)
            write_cell(me, mine[pick(mine.size())]);
          else
            read_cell(me, mine[pick(mine.size())]);
        }
        if (chance(50)) act(me, 2);
        emit(me, {OpKind::barrier, 0, 0, barrier, 0, 0});
      }
    }
    for (std::uint32_t m = 0; m < members; ++m) {
      for (std::size_t i = m; i < common.size(); i += members) scopes[m].own.push_back(common[i]);
      leave(s, static_cast<std::uint16_t>(first_slot + m), scopes[m]);
    }
  }

  // ---- joins ----

  void join(Scope& s, std::size_t i) {
    const Child record = s.children[i];
    s.children.erase(s.children.begin() + static_cast<std::ptrdiff_t>(i));
    emit(s, {OpKind::join, 0, record.slot, 0, 0, 0});
    append(s.own, record.left);
    s.heap.insert(s.heap.end(), record.heap.begin(), record.heap.end());
    for (std::uint32_t c : record.lent) {
      if (--s.lent[c] != 0) continue;
      s.lent.erase(c);
      s.own.push_back(c);
    }
  }
  void join_one(Scope& s) {
    if (!s.children.empty()) join(s, pick(s.children.size()));
  }
  void join_all(Scope& s) {
    while (!s.children.empty()) join(s, pick(s.children.size()));
  }

  Limits limits_;
  std::uint64_t state_;
  Program program_;
  std::vector<Cell> cells_;
  std::vector<Cells> cells_of_;
  std::uint64_t added_[kLocks] = {};
};

}  // namespace

std::string to_string(const Program& p) {
  static constexpr const char* kNames[] = {"write",   "read",     "fork",    "join", "add",  "check",
                                           "barrier", "allocate", "release", "work", "yield"};
  std::string text;
  for (std::size_t t = 0; t < p.threads.size(); ++t) {
    text += "thread " + std::to_string(t) + ", frame object " + std::to_string(p.threads[t].frame) + "\n";
    for (std::uint32_t i = 0; i < p.threads[t].ops; ++i) {
      const Op& op = p.ops[p.threads[t].first_op + i];
      text += "  " + std::to_string(i) + " " + kNames[static_cast<int>(op.kind)] + " target " +
              std::to_string(op.target) + " slot " + std::to_string(op.slot) + " offset " +
              std::to_string(op.offset) + " width " + std::to_string(op.width) + " value " +
              std::to_string(op.value) + "\n";
    }
  }
  return text;
}

void stretch(Program& p, std::uint64_t kept_bytes) {
  std::vector<bool> kept;
  for (const Object& o : p.objects) kept.push_back(o.thread == kHeap);
  for (const Op& o : p.ops)
    if (o.kind == OpKind::release) kept[o.target] = false;
  const auto bytes = kept_bytes / static_cast<std::uint64_t>(std::max<std::ptrdiff_t>(
                                      1, std::count(kept.begin(), kept.end(), true)));
  for (Object& o : p.objects) {
    if (o.thread != kHeap) continue;
    const std::uint32_t pieces = (o.bytes + kTogether - 1) / kTogether;
    o.distance = static_cast<std::uint32_t>(bytes / pieces / kTogether * kTogether);
    o.bytes = pieces * o.distance;
  }
  for (Op& o : p.ops)
    if ((o.kind == OpKind::write || o.kind == OpKind::read) && p.objects[o.target].distance != 0)
      o.offset = o.offset / kTogether * p.objects[o.target].distance + o.offset % kTogether;
}

Program generate(std::uint64_t seed, const Limits& limits) { return Generator(seed, limits).run(); }

}  // namespace kasane::stress
