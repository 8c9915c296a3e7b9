// SPDX-License-Identifier: Apache-2.0
#include "comm/collectives/schedule.h"

#include <algorithm>

#include "base/assert.h"

namespace kasane::comm {

class Builder {
 public:
  Builder(Schedule& schedule, const Plan& plan) : p_(plan), s_(schedule), n_(plan.members), me_(plan.me) {
    s_.steps_.clear();
    s_.reduction_ = plan.reduction;
  }
  void build();

 private:
  struct Segment {
    std::size_t begin, bytes;
  };

  void barrier();
  void broadcast_tree();
  void broadcast_long();
  void allreduce_flat();
  void allreduce_doubling();
  void allreduce_long();
  void allgather_direct();
  void allgather_bruck();
  void reduce_scatter(std::byte* own);

  void send(std::uint32_t to, const std::byte* from, std::size_t bytes, std::uint8_t phase = 0) {
    s_.steps_.push_back(
        {.kind = CollectiveStep::Kind::send, .phase = phase, .peer = to, .from = from, .bytes = bytes});
  }
  void receive(std::uint32_t from, std::byte* into, std::size_t bytes, std::uint8_t phase = 0) {
    s_.steps_.push_back(
        {.kind = CollectiveStep::Kind::receive, .phase = phase, .peer = from, .into = into, .bytes = bytes});
  }
  void copy(std::byte* into, const std::byte* from, std::size_t bytes) {
    s_.steps_.push_back({.kind = CollectiveStep::Kind::copy, .into = into, .from = from, .bytes = bytes});
  }
  void combine(std::byte* into, const std::byte* left, const std::byte* right, std::size_t bytes) {
    s_.steps_.push_back(
        {.kind = CollectiveStep::Kind::combine, .into = into, .from = left, .right = right, .bytes = bytes});
  }
  /// Separates network steps that use what was received from those that received it.
  void end_round() { copy(nullptr, nullptr, 0); }
  /// Memory that lives as long as the schedule; to be called once a schedule.
  std::byte* scratch(std::size_t bytes) {
    if (s_.scratch_bytes_ < bytes) {
      s_.scratch_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
      s_.scratch_bytes_ = bytes;
    }
    return s_.scratch_.get();
  }

  [[nodiscard]] std::uint32_t after(std::uint32_t k) const { return (me_ + k) % n_; }
  [[nodiscard]] std::uint32_t before(std::uint32_t k) const { return (me_ + n_ - k) % n_; }
  [[nodiscard]] std::uint32_t from_root(std::uint32_t v) const { return (v + p_.root) % n_; }
  /// The i-th of n nearly equal parts of the bytes, cut between elements of unit bytes.
  [[nodiscard]] Segment segment(std::uint32_t i, std::size_t unit) const {
    const std::size_t elements = p_.bytes / unit;
    const std::size_t begin = elements * i / n_ * unit, end = elements * (i + 1) / n_ * unit;
    return {begin, i + 1 == n_ ? p_.bytes - begin : end - begin};
  }
  [[nodiscard]] Segment part(std::uint32_t i) const { return segment(i, p_.reduction.element_bytes); }
  [[nodiscard]] bool is_long() const { return p_.bytes > kShortBytes && p_.bytes / n_ >= 64; }

  const Plan& p_;
  Schedule& s_;
  std::uint32_t n_, me_;
};

void Builder::build() {
  KASANE_CHECK_OP(p_.root, <, n_);
  switch (p_.collective) {
    case Collective::barrier: return barrier();
    case Collective::broadcast:
      return n_ > 2 && p_.bytes > 8 * kShortBytes ? broadcast_long() : broadcast_tree();
    case Collective::allreduce:
      if (is_long()) return allreduce_long();
      return n_ <= 4 ? allreduce_flat() : allreduce_doubling();
    case Collective::allgather:
      return n_ > 8 && (p_.bytes <= 128 || p_.bytes * n_ <= 8 * kShortBytes) ? allgather_bruck()
                                                                             : allgather_direct();
  }
}

void Builder::barrier() {
  if (n_ <= 4) {
    for (std::uint32_t k = 1; k < n_; ++k) send(after(k), nullptr, 0);
    for (std::uint32_t k = 1; k < n_; ++k) receive(before(k), nullptr, 0);
    return;
  }
  // After the round of distance d, every member knows (through others) that the 2d - 1 members before it have
  // come.
  for (std::uint32_t d = 1; d < n_; d *= 2) {
    send(after(d), nullptr, 0);
    receive(before(d), nullptr, 0);
    end_round();
  }
}

// With v = me - root (mod n), the parent of v is v without its lowest set bit, and the children of v are v
// plus each smaller power of two.
void Builder::broadcast_tree() {
  const std::uint32_t v = (me_ + n_ - p_.root) % n_;
  std::uint32_t bit = 1;
  while (bit < n_ && (v & bit) == 0) bit *= 2;
  if (v != 0) {
    receive(from_root(v - bit), p_.out, p_.bytes);
    end_round();
  }
  for (bit /= 2; bit != 0; bit /= 2) {
    if (v + bit < n_) send(from_root(v + bit), p_.out, p_.bytes);
  }
}

// Each member gets its part from the root (phase 0) and sends it to all others (phase 1); the root sends its
// own part.
void Builder::broadcast_long() {
  auto piece = [&](std::uint32_t i) { return segment(i, 64); };
  const Segment mine = piece(me_);
  if (me_ != p_.root) {
    receive(p_.root, p_.out + mine.begin, mine.bytes, 0);
    end_round();
  }
  for (std::uint32_t k = 1; k < n_; ++k) {
    const std::uint32_t to = after(k), from = before(k);
    if (me_ == p_.root) send(to, p_.out + piece(to).begin, piece(to).bytes, 0);
    if (to != p_.root) send(to, p_.out + mine.begin, mine.bytes, 1);
    if (me_ != p_.root) receive(from, p_.out + piece(from).begin, piece(from).bytes, 1);
  }
}

// Every member sends part j to member j, which combines all n of them, in rank order, in own (which holds its
// own part).
void Builder::reduce_scatter(std::byte* own) {
  const Segment mine = part(me_);
  std::byte* const others = s_.scratch_.get();  // n parts; the caller has made room
  for (std::uint32_t k = 1; k < n_; ++k) {
    send(after(k), p_.out + part(after(k)).begin, part(after(k)).bytes, 0);
    receive(before(k), others + before(k) * mine.bytes, mine.bytes, 0);
  }
  end_round();
  std::byte* const first = others;
  for (std::uint32_t r = 1; r < me_; ++r) combine(first, first, others + r * mine.bytes, mine.bytes);
  if (me_ > 0) combine(own, first, own, mine.bytes);
  for (std::uint32_t r = me_ + 1; r < n_; ++r) combine(own, own, others + r * mine.bytes, mine.bytes);
}

void Builder::allreduce_flat() {
  std::byte* const memory = scratch((n_ + 1) * p_.bytes);
  for (std::uint32_t k = 1; k < n_; ++k) send(after(k), p_.out, p_.bytes);
  for (std::uint32_t k = 1; k < n_; ++k) receive(before(k), memory + before(k) * p_.bytes, p_.bytes);
  if (n_ == 1) return;
  auto operand = [&](std::uint32_t r) { return r == me_ ? p_.out : memory + r * p_.bytes; };
  std::byte* const sum = memory + n_ * p_.bytes;
  std::byte* const first = n_ == 2 ? p_.out : sum;
  combine(first, operand(0), operand(1), p_.bytes);
  for (std::uint32_t r = 2; r < n_; ++r) combine(r + 1 == n_ ? p_.out : sum, sum, operand(r), p_.bytes);
}

// The first 2 · extra members join in pairs, so that a power of two remains; partners at distance d then hold
// neighbouring ranges.
void Builder::allreduce_doubling() {
  std::uint32_t power = 1;
  while (power * 2 <= n_) power *= 2;
  const std::uint32_t extra = n_ - power;
  std::byte* const other = scratch(p_.bytes);
  if (me_ < 2 * extra && me_ % 2 == 0) {
    send(me_ + 1, p_.out, p_.bytes);
    end_round();
    return receive(me_ + 1, p_.out, p_.bytes);
  }
  if (me_ < 2 * extra) {
    receive(me_ - 1, other, p_.bytes);
    combine(p_.out, other, p_.out, p_.bytes);
  }
  const std::uint32_t v = me_ < 2 * extra ? me_ / 2 : me_ - extra;
  auto member = [&](std::uint32_t w) { return w < extra ? 2 * w + 1 : w + extra; };
  for (std::uint32_t d = 1; d < power; d *= 2) {
    const std::uint32_t w = v ^ d;
    send(member(w), p_.out, p_.bytes);
    receive(member(w), other, p_.bytes);
    if (w < v)
      combine(p_.out, other, p_.out, p_.bytes);
    else
      combine(p_.out, p_.out, other, p_.bytes);
  }
  if (me_ < 2 * extra) send(me_ - 1, p_.out, p_.bytes);
}

void Builder::allreduce_long() {
  const Segment mine = part(me_);
  scratch(n_ * mine.bytes);
  reduce_scatter(p_.out + mine.begin);
  for (std::uint32_t k = 1; k < n_; ++k) {
    send(after(k), p_.out + mine.begin, mine.bytes, 1);
    receive(before(k), p_.out + part(before(k)).begin, part(before(k)).bytes, 1);
  }
}

void Builder::allgather_direct() {
  for (std::uint32_t k = 1; k < n_; ++k) {
    send(after(k), p_.in, p_.bytes);
    receive(before(k), p_.out + before(k) * p_.bytes, p_.bytes);
  }
  copy(p_.out + me_ * p_.bytes, p_.in, p_.bytes);
}

// After the round of distance d a member holds the blocks of 2d members, its own first.
void Builder::allgather_bruck() {
  std::byte* const held = scratch(n_ * p_.bytes);  // block i is that of member me + i
  copy(held, p_.in, p_.bytes);
  for (std::uint32_t d = 1; d < n_; d *= 2) {
    const std::size_t bytes = std::min(d, n_ - d) * p_.bytes;
    send(before(d), held, bytes);
    receive(after(d), held + d * p_.bytes, bytes);
    end_round();
  }
  for (std::uint32_t i = 0; i < n_; ++i) copy(p_.out + after(i) * p_.bytes, held + i * p_.bytes, p_.bytes);
}

void Schedule::build(const Plan& plan) { Builder(*this, plan).build(); }

}  // namespace kasane::comm
