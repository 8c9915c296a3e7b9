// SPDX-License-Identifier: Apache-2.0
#include "comm/mpi/channel.h"

#include <cstring>

#include "base/clock.h"

namespace kasane::comm::mpi {
namespace {

constexpr int kSpins = 200;              ///< tries of a taken lock; its holder is inside one MPI call
constexpr std::size_t kSendsTested = 8;  ///< outstanding sends that one collect() tests
constexpr std::uint64_t kLeaveNs = 5'000'000'000;  ///< how long close() waits for outstanding sends
constexpr std::size_t kSomeIdle = 4;               ///< receives are posted again in batches of so many

AnswerHead& answer_head(std::byte* buffer) noexcept { return *reinterpret_cast<AnswerHead*>(buffer); }

}  // namespace

Channel::Channel(Library& library, Communicator channel, std::vector<Peer>& peers,
                 AnswerStack<>& pending_answers)
    : library_(library),
      table_(library.table()),
      channel_(channel),
      peers_(peers),
      pending_answers_(pending_answers),
      out_(kOut + kAnswers),
      outgoing_(kOut + kAnswers),
      mine_(library, channel),
      theirs_(library, channel),
      open_(peers.size(), kNoBuffer) {
  requests_.tag = kRequestTag;
  answers_.tag = kAnswerTag;
  sends_.reserve(kOut + kAnswers);
  opened_.reserve(peers.size());
  starts_.reserve(BulkTable::kCapacity);
  for (Receives* r : {&requests_, &answers_}) {
    r->idle.reserve(kPosted);
    for (std::uint16_t i = 0; i < kPosted; ++i) r->idle.push_back(i);
  }
}

Result<void> Channel::open() {
  const bool posted = library_.locked([&] {
    post_idle(requests_);
    post_idle(answers_);
    return requests_.idle.empty() && answers_.idle.empty();
  });
  return posted ? Result<void>() : fail(Errc::io, std::string(library_.name()) + " refuses to receive");
}

bool Channel::close() noexcept {
  const std::uint64_t until = now_ns() + kLeaveNs;
  auto busy = [&] {
    drain();
    test_sends();
    auto ignore = [](const Bulk&, int) {};
    mine_.poll(ignore);
    theirs_.poll(ignore);
    return !sends_.empty() || !mine_.empty() || !theirs_.empty();
  };
  bool left = library_.locked(busy);
  while (left && now_ns() < until) left = library_.locked(busy);
  library_.locked([&] {
    take_back_receives();
    return 0;
  });
  return !left;
}

void Channel::take_back_receives() noexcept {
  for (Receives* receives : {&requests_, &answers_}) {
    Receives& r = *receives;
    for (std::uint32_t i = 0; i < r.posted; ++i) {
      Request& request = r.requests[r.order[(r.first + i) % kPosted]];
      table_.cancel(&request);
      for (bool done = false; !done;) {
        if (table_.test(&request, &done, nullptr) != 0) break;
      }
    }
    r.posted = 0;
  }
}

// ---- out --------------------------------------------------------------------------------------------------

void Channel::push(std::uint32_t index) noexcept {
  KASANE_CHECK(queue_.try_push(static_cast<std::uint16_t>(index)) != Push::full,
               "more buffers are queued than there are");
}

void Channel::kick() noexcept {
  hand_over_.announce();
  look_back();
}

void Channel::look_back() noexcept {
  hand_over_.look_back(library_.lock(), [this] { drain(); });
}

bool Channel::try_lock_briefly() noexcept {
  for (int i = 0; i < kSpins; ++i) {
    if (library_.lock().try_lock()) return true;
    relax();
  }
  return false;
}

void Channel::lose(std::uint32_t peer) noexcept {
  std::uint32_t expected = Peer::reachable;
  // once; published by the next line
  peers_[peer].loss.compare_exchange_strong(expected, Peer::failed, std::memory_order_acq_rel);
  any_lost_.store(true, std::memory_order_release);
}

bool Channel::lost(std::uint32_t peer) const noexcept {
  // relaxed: ordered by any_lost()
  return any_lost() && peers_[peer].loss.load(std::memory_order_relaxed) != Peer::reachable;
}

void Channel::drain() noexcept {
  while (std::uint16_t* next = queue_.front()) {
    if (!drain_one(*next)) break;
    queue_.pop();
  }
  drain_answers();
}

/// False if there is no room for it yet.
bool Channel::drain_one(std::uint32_t index) noexcept {
  Outgoing& o = outgoing_[index];
  if (index >= kOut) {
    send_now(index, o.peer, o.bytes, kAnswerTag);
    return true;
  }
  const bool bulk = o.bulk.way != Bulk::Way::none;
  if (bulk && mine_.full()) return false;
  if (lost(o.peer)) {  // the loss ends the operation
    release(index);
    return true;
  }
  const Bulk transfer = o.bulk;
  // A receive is posted before the message that makes the peer send. A send follows the message that makes
  // the peer receive.
  int code = transfer.way == Bulk::Way::receive ? mine_.start(transfer) : 0;
  const std::uint32_t peer = o.peer;
  if (o.bytes != 0) {
    send_now(index, peer, o.bytes, kRequestTag);
  } else {
    release(index);
  }
  if (bulk && transfer.way != Bulk::Way::receive) code = mine_.start(transfer);
  if (code != 0) lose(peer);
  return true;
}

void Channel::send_now(std::uint32_t index, std::uint32_t peer, std::uint32_t bytes, int tag) noexcept {
  if (lost(peer)) return release(index);
  PendingSend send{.request = {}, .buffer = static_cast<std::uint16_t>(index)};
  bool done = false;
  int code = table_.send(channel_, out_[index].bytes, bytes, peer, tag, &send.request);
  if (code == 0) code = table_.test(&send.request, &done, nullptr);  // most sends have completed by now
  if (code != 0) lose(peer);
  if (code != 0 || done) {
    release(index);
  } else {
    sends_.push_back(send);  // reserved for every buffer: does not allocate
  }
}

void Channel::test_sends() noexcept {
  for (std::size_t i = 0, n = 0; i < sends_.size() && n < kSendsTested; ++n) {
    bool done = false;
    const int code = table_.test(&sends_[i].request, &done, nullptr);
    if (code != 0) lose(outgoing_[sends_[i].buffer].peer);
    if (code == 0 && !done) {
      ++i;
      continue;
    }
    release(sends_[i].buffer);
    sends_.erase(sends_.begin() + static_cast<std::ptrdiff_t>(i));  // keeps the oldest in front
  }
}

// ---- answers ----------------------------------------------------------------------------------------------

void Channel::drain_answers() noexcept {
  if (taken_answers_ == AnswerStack<>::kEnd && pending_answers_.empty()) return;
  for (;;) {
    if (taken_answers_ == AnswerStack<>::kEnd) taken_answers_ = pending_answers_.take_all();
    if (taken_answers_ == AnswerStack<>::kEnd) break;
    // Read before: once packed, the node may be pushed again.
    const std::uint32_t next = pending_answers_.node(taken_answers_).next;
    if (!pack(taken_answers_)) break;  // no free buffer: the rest follows when some sends have completed
    taken_answers_ = next;
  }
  for (const std::uint32_t peer : opened_) close_answer(peer);
  opened_.clear();
}

/// Adds the node's answer to the message that is being filled for its peer.
bool Channel::pack(std::uint32_t node) noexcept {
  const auto meaning = pending_answers_.meaning(node);
  std::uint16_t& open = open_[meaning.peer];
  if (open == kNoBuffer) {
    const std::uint32_t fresh = claim_answer();
    if (fresh == IndexPool<>::kNone) return false;
    open = static_cast<std::uint16_t>(fresh);
    opened_.push_back(meaning.peer);  // reserved for every peer
    answer_head(buffer(fresh)) = {};
    outgoing_[fresh] = {.peer = meaning.peer, .bytes = sizeof(AnswerHead)};
  }
  if (meaning.about == AnswerStack<>::About::flow_control) {
    pending_answers_.take_flow_control(meaning.peer);  // close_answer() reads them
    return true;
  }
  Outgoing& o = outgoing_[open];
  if (o.bytes + sizeof(Record) > kAnswerBytes) {
    close_answer(meaning.peer);
    std::erase(opened_, meaning.peer);
    return pack(node);
  }
  const Record record{
      .kind = meaning.about == AnswerStack<>::About::reply ? RecordKind::reply : RecordKind::operation,
      .slot = meaning.slot,
      .value = pending_answers_.node(node).value};
  std::memcpy(buffer(open) + o.bytes, &record, sizeof(record));
  o.bytes += sizeof(record);
  ++answer_head(buffer(open)).records;
  return true;
}

void Channel::close_answer(std::uint32_t peer) noexcept {
  const std::uint16_t index = open_[peer];
  open_[peer] = kNoBuffer;
  AnswerHead& head = answer_head(buffer(index));
  // seq_cst: after take_flow_control(), see AnswerStack<>::flow_control().
  head.credits = peers_[peer].consumed.exchange(0, std::memory_order_seq_cst);
  head.rings = static_cast<std::uint16_t>(peers_[peer].rings.exchange(0, std::memory_order_seq_cst));
  send_now(index, peer, outgoing_[index].bytes, kAnswerTag);
}

// ---- in ---------------------------------------------------------------------------------------------------

void Channel::post_idle(Receives& r) noexcept {
  while (!r.idle.empty()) {
    const std::uint16_t b = r.idle.back();
    if (table_.receive(channel_, r.buffers[b].bytes, sizeof(Buffer), kAnySource, r.tag, &r.requests[b]) != 0)
      return;
    r.idle.pop_back();
    r.order[(r.first + r.posted++) % kPosted] = b;
  }
}

void Channel::take(Receives& r, const Arrival& arrival, ReceivedMessages& inbox) noexcept {
  const std::uint16_t b = r.order[r.first];
  r.first = (r.first + 1) % kPosted;
  --r.posted;
  inbox.push({.buffer = b, .source = arrival.source, .bytes = arrival.bytes});
}

/// Receives of one tag are matched in the order they were posted, so only the oldest of each tag is tested.
void Channel::take_arrivals(ReceivedMessages& requests, ReceivedMessages& answers) noexcept {
  for (std::size_t n = 0; n < 2 * kMostCollected; ++n) {
    std::array<Request, 2> oldest{};
    std::array<Receives*, 2> whose{};
    int count = 0;
    for (Receives* r : {&answers_, &requests_}) {
      if (r->posted == 0) continue;
      whose[static_cast<std::size_t>(count)] = r;
      oldest[static_cast<std::size_t>(count++)] = r->requests[r->order[r->first]];
    }
    int index = kNothing;
    Arrival arrival{};
    if (count == 0 || table_.test_any(oldest.data(), count, &index, &arrival) != 0) {
      // A receive from any source fails only if a peer has gone and the MPI cannot say which.
      if (count != 0) library_.abort(1);
      return;
    }
    if (index == kNothing) return;
    Receives& r = *whose[static_cast<std::size_t>(index)];
    take(r, arrival, &r == &requests_ ? requests : answers);
  }
}

bool Channel::collect(ReceivedMessages& requests, ReceivedMessages& answers,
                      std::vector<Ended>& ended) noexcept {
  if (!try_lock_briefly()) return false;
  hand_over_.begin_drain();
  drain();
  take_arrivals(requests, answers);
  if (!sends_.empty()) test_sends();
  auto note = [&](const Bulk& bulk, int code) {
    if (code != 0) lose(bulk.peer);
    ended.push_back({bulk, code != 0});
  };
  if (!mine_.empty()) mine_.poll(note);
  if (!theirs_.empty()) theirs_.poll(note);
  library_.lock().unlock();
  look_back();
  return true;
}

bool Channel::start_at_owner(const Bulk& bulk) noexcept {
  if (starts_.size() == starts_.capacity()) return false;
  starts_.push_back(bulk);
  return true;
}

void Channel::settle() noexcept {
  const bool receives = requests_.idle.size() >= kSomeIdle || answers_.idle.size() >= kSomeIdle;
  if (starts_.empty() && !receives && pending_answers_.empty()) return;
  hand_over_.announce();  // if the lock stays taken, its holder drains
  if (!try_lock_briefly()) return;
  hand_over_.begin_drain();
  drain();
  post_idle(requests_);
  post_idle(answers_);
  while (!starts_.empty() && !theirs_.full()) {
    if (theirs_.start(starts_.back()) != 0) lose(starts_.back().peer);
    starts_.pop_back();
  }
  library_.lock().unlock();
  look_back();
}

}  // namespace kasane::comm::mpi
