// SPDX-License-Identifier: Apache-2.0
/// @file
/// A team: one thread for each worker of the job, which stays at its rank and has its part of the data, for
/// programs that go over the same memory step by step. What a member touched first (placement::first_touch),
/// or what was placed at its rank, is local in every step; only what it reads of others' parts is
/// transferred.
///
///     kasane::team([=](kasane::member& me) {
///       auto [first, last] = me.part(0, n);
///       for (…) { step(first, last); me.wait(); }
///     });
///
/// How members get to their workers: each begins at its rank (a placed spawn), and waits there until all have
/// begun; so no worker is idle, and looks for others' work, when they go on. A member that was stolen while
/// it waited goes back before its wait returns. An index names the same rank in every team.
///
/// **Thread safety**: a member belongs to one thread. All members of a team (of a rank, where it says "here")
/// make the same calls of wait, wait_here and deal in the same order.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <kasane/kasane.hpp>
#include <memory>
#include <utility>
#include <vector>

/// libc's; public headers include the standard library alone.
extern "C" int getcpu(unsigned* cpu, unsigned* node) noexcept;

namespace kasane {

/// [first, last).
struct part_of_range {
  std::size_t first, last;
};

namespace detail {

/// What the members of one rank share: words in memory of that rank, on a page whose owner never changes.
struct alignas(128) TeamWords {
  /// phase 32 | members that have arrived in it 32
  std::uint64_t meeting;
  /// number of the deal 24 | its next chunk 40
  alignas(128) std::uint64_t deal;
  /// members of the rank have met those of others
  bool met;
};

/// A node of the tree in which ranks meet: the first of up to four, to which it belongs, and the others.
struct TeamNode {
  explicit TeamNode(std::uint32_t ranks) : up(ranks), down(ranks) {}
  barrier up;    ///< all have come; only the first waits for that
  barrier down;  ///< it lets the others go
};

/// The words of all ranks, and where one member of each rank meets those of the others.
///
/// Few ranks meet at one barrier. More of them meet in a tree, since the last to come to a barrier wakes the
/// others one after the other. Its nodes are made in the first meeting, which all have at the one barrier.
class TeamMeeting {
 public:
  explicit TeamMeeting(std::uint32_t ranks)
      : pages_(static_cast<std::byte*>(allocate_zeroed(2 * ranks * page_small, page_small,
                                                       placement::block.in_pages(page_small).fixed()))),
        ranks_(ranks),
        all_(ranks) {}
  ~TeamMeeting() {
    if (is_tree()) for_each_node([](TeamNode* node) { std::destroy_at(node); });
  }
  TeamMeeting(const TeamMeeting&) = delete;
  TeamMeeting& operator=(const TeamMeeting&) = delete;

  [[nodiscard]] TeamWords* words_of(std::uint32_t rank) const noexcept {
    return static_cast<TeamWords*>(static_cast<void*>(pages_.get() + 2 * rank * page_small));
  }
  /// Before the first meet(), by one member at each rank.
  void begin(std::uint32_t rank) {
    if (!is_tree()) return;
    for (std::uint32_t apart = 1, level = 0; has_node(rank, apart); apart *= kFan, ++level)
      std::construct_at(node_of(rank, level), std::min(kFan, (ranks_ - rank + apart - 1) / apart));
  }
  /// Until a member of each rank is here. first: the first time.
  void meet(std::uint32_t rank, bool first) {
    if (first || !is_tree())
      all_.arrive_and_wait();
    else
      climb(rank, 1, 0);
  }

 private:
  static constexpr std::uint32_t kFan = 4, kOneBarrier = 16;

  [[nodiscard]] bool is_tree() const noexcept { return ranks_ > kOneBarrier; }
  /// Is the rank the first of a node whose ranks are so far apart, with others?
  [[nodiscard]] bool has_node(std::uint32_t rank, std::uint32_t apart) const noexcept {
    return apart < ranks_ && rank % (apart * kFan) == 0;
  }
  /// On pages of their own, which nobody changes: all keep copies.
  [[nodiscard]] TeamNode* node_of(std::uint32_t rank, std::uint32_t level) const noexcept {
    return static_cast<TeamNode*>(static_cast<void*>(pages_.get() + (2 * rank + 1) * page_small)) + level;
  }
  template <class Callable>
  void for_each_node(const Callable& f) const {
    for (std::uint32_t rank = 0; rank < ranks_; rank += kFan)
      for (std::uint32_t apart = 1, level = 0; has_node(rank, apart); apart *= kFan, ++level)
        f(node_of(rank, level));
  }
  void climb(std::uint32_t rank, std::uint32_t apart, std::uint32_t level) {
    if (apart >= ranks_) return;
    const std::uint32_t first = rank - rank % (apart * kFan);
    TeamNode& node = *node_of(first, level);
    if (rank != first) {
      static_cast<void>(node.up.arrive());
      return node.down.arrive_and_wait();
    }
    node.up.arrive_and_wait();
    climb(rank, apart * kFan, level + 1);
    // It arrives again when all have passed: they come to `up` before.
    static_cast<void>(node.down.arrive());
  }

  unique_array<std::byte> pages_;
  std::uint32_t ranks_;
  barrier all_;
};

}  // namespace detail

/// A member of a team: which part of the data is its own, and where it meets the others.
class member {
 public:
  /// Alone: the sequential elision of what team() runs. It needs no runtime.
  member() noexcept = default;
  /// Number `index` of `size` members, for part() alone: it meets no others.
  member(std::size_t index, std::size_t size) noexcept
      : index_(static_cast<std::uint32_t>(index)), size_(static_cast<std::uint32_t>(size)) {}

  /// 0 to size() - 1; those of a rank follow each other.
  [[nodiscard]] std::size_t index() const noexcept { return index_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  /// The rank at which it stays.
  [[nodiscard]] std::uint32_t rank() const noexcept { return rank_; }
  /// 0 to rank_size() - 1, among the members of its rank.
  [[nodiscard]] std::uint32_t rank_index() const noexcept { return index_ - rank_ * rank_size_; }
  [[nodiscard]] std::uint32_t rank_size() const noexcept { return rank_size_; }
  /// The NUMA node of the CPU that runs it now, in the system's numbers; 0 where the system does not say. It
  /// stays the same where all workers of the rank are bound to one node (`--bind numa`, a rank a node). A
  /// member of a rank on several nodes may go on at another worker after wait(), wait_here() or another wait.
  [[nodiscard]] std::uint32_t numa_node() const noexcept {
    unsigned cpu = 0, node = 0;
    return ::getcpu(&cpu, &node) == 0 ? node : 0;
  }

  /// This member's part of [begin, end); all parts but the last are multiples of `unit`.
  [[nodiscard]] part_of_range part(std::size_t begin, std::size_t end, std::size_t unit = 1) const noexcept {
    return cut(begin, end, unit, index_, size_);
  }
  /// The same where [begin, end) belongs to this rank: among its members.
  [[nodiscard]] part_of_range part_here(std::size_t begin, std::size_t end,
                                        std::size_t unit = 1) const noexcept {
    return cut(begin, end, unit, rank_index(), rank_size_);
  }

  /// Deals [first, last), which belongs to this rank, to its members: calls f(begin, end) for chunks of
  /// `chunk` (the last may be smaller), each once, at the member that asks first. No other rank takes one. It
  /// does not wait for the others: wait_here() does. Up to 2^40 chunks.
  template <class Callable>
  void deal(std::size_t first, std::size_t last, std::size_t chunk, Callable&& f) {
    const std::size_t chunks = (last - first + chunk - 1) / chunk;
    const auto call = [&](std::size_t i) { f(first + i * chunk, std::min(last, first + (i + 1) * chunk)); };
    if (rank_size_ == 1) {
      for (std::size_t i = 0; i < chunks; ++i) call(i);
      return;
    }
    const std::uint64_t number = ++deals_ & kDealMask;
    for (std::size_t i = take(number); i < chunks; i = take(number)) {
      stay();
      call(i);
    }
  }
  /// Goes back to its rank, if an idle worker of another one has taken it: after calls at which a thread may
  /// move (a lock, a yield, a wait for something else, many accesses of atomics). wait, wait_here and deal do
  /// so themselves.
  void stay() const {
    while (kasane::rank() != rank_) this_thread::move_to(rank_);
  }

  /// Until all members are here. What each did before is visible to all afterwards. The members of a rank
  /// meet at one word of it, and then one of each rank meets the others.
  void wait() { meet(true); }
  /// Until all members of this rank are here; orders memory among them alone.
  void wait_here() { meet(false); }

 private:
  template <class Callable>
  friend void team(Callable body);

  static constexpr std::uint64_t kDealMask = (1u << 24) - 1, kChunkMask = (std::uint64_t{1} << 40) - 1;
  /// Looks at the word before a waiting member sleeps: about 10 µs. Longer would take the CPU from the thread
  /// that is waited for, where a job shares its cores.
  static constexpr int kLooks = 500;

  member(std::uint32_t index, std::uint32_t workers, detail::TeamMeeting* meeting) noexcept
      : index_(index),
        size_(workers * kasane::ranks()),
        rank_(index / workers),
        rank_size_(workers),
        meeting_(meeting),
        words_(meeting->words_of(rank_)) {}

  [[nodiscard]] static part_of_range cut(std::size_t begin, std::size_t end, std::size_t unit, std::size_t i,
                                         std::size_t n) noexcept {
    const std::size_t units = (end - begin + unit - 1) / unit;
    const auto at = [&](std::size_t k) { return std::min(end, begin + units * k / n * unit); };
    return {at(i), at(i + 1)};
  }

  /// The next chunk of that deal. A member that is late finds a later deal in the word: then all chunks of
  /// its own are taken, since a member begins a deal only when the one before has no chunk left.
  [[nodiscard]] std::size_t take(std::uint64_t number) const noexcept {
    const std::atomic_ref<std::uint64_t> word(words_->deal);
    std::uint64_t seen = word.load(std::memory_order_relaxed);
    for (;;) {
      const std::uint64_t behind = (number - (seen >> 40)) & kDealMask;
      if (behind > kDealMask / 2) return kChunkMask;
      const std::uint64_t next = behind == 0 ? seen & kChunkMask : 0;
      // Chunks carry no data from member to member: wait_here() orders what they wrote.
      if (word.compare_exchange_weak(seen, number << 40 | (next + 1), std::memory_order_relaxed)) return next;
    }
  }

  void meet(bool others) {
    if (meeting_ == nullptr) return;
    const bool ranks = others && size_ != rank_size_;
    if (rank_size_ == 1) {
      if (ranks) meet_others();
      return;
    }
    const std::atomic_ref<std::uint64_t> word(words_->meeting);
    // acq_rel: the last one passes on what the others wrote.
    const std::uint64_t before = word.fetch_add(1, std::memory_order_acq_rel);
    if (static_cast<std::uint32_t>(before) + 1 == rank_size_) {
      if (ranks) meet_others();
      word.store(((before >> 32) + 1) << 32, std::memory_order_seq_cst);  // before it looks for sleepers
      atomic_ref<std::uint64_t>(words_->meeting).notify_all();
      return;
    }
    for (int looks = 0;; ++looks) {
      const std::uint64_t now = word.load(std::memory_order_acquire);
      if (now >> 32 != before >> 32) break;
      if (looks < kLooks)
        __builtin_ia32_pause();
      else  // back before it looks again: where atomics are inline, another rank has a copy of the word
        atomic_ref<std::uint64_t>(words_->meeting).wait(now), stay();
    }
    stay();  // loads that are calls may let others run
  }

  void meet_others() {
    const bool first = !words_->met;
    if (first) words_->met = true;
    meeting_->meet(rank_, first);
    stay();
  }

  std::uint32_t index_ = 0, size_ = 1, rank_ = 0, rank_size_ = 1;
  std::uint64_t deals_ = 0;
  detail::TeamMeeting* meeting_ = nullptr;
  detail::TeamWords* words_ = nullptr;
};

/// Calls body(member), each time on a copy of body, once on each worker of the job; returns when all have
/// returned. From main or on a thread. The workers have nothing else to do meanwhile, or members wait for
/// them. An exception that leaves a member ends the program, since the others wait for it.
/// Consistency: as forking and joining the members. Throws error EAGAIN: no stack slot is left.
template <class Callable>
void team(Callable body) {
  const auto all = [&body] {
    const std::uint32_t workers = kasane::workers(), size = kasane::ranks() * workers;
    // Not on this stack, which changes: other ranks would fetch it at each wait.
    const auto meeting = std::make_unique<detail::TeamMeeting>(kasane::ranks());
    const auto run = [workers, meeting = meeting.get(), &body](std::uint32_t index) noexcept {
      member me(index, workers, meeting);
      me.stay();
      if (me.rank_index() == 0) meeting->begin(me.rank());
      me.wait();
      Callable mine(body);
      mine(me);
    };
    std::vector<thread> others;
    others.reserve(size - 1);
    for (std::uint32_t i = 1; i < size; ++i) others.emplace_back(at{i / workers}, run, i);
    run(0);
    for (auto& t : others) t.join();
  };
  if (this_thread::get_id() == thread::id())
    kasane::run(all);
  else
    all();
}

/// body(member) of a team of one.
template <class Callable>
void team_of_one(Callable&& body) {
  member me;
  body(me);
}

}  // namespace kasane
