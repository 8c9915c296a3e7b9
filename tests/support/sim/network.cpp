// SPDX-License-Identifier: Apache-2.0
// See network.h.
#include "support/sim/network.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "base/assert.h"
#include "comm/cpu_atomic.h"
#include "comm/mailbox.h"
#include "comm/mailbox_replies.h"

namespace kasane::comm::sim {

/// What one rank sees of the network, and what waits at it.
class SimTransport final : public MailboxTransport {
 public:
  SimTransport(Network& net, Rank rank, std::uint32_t ranks, Bells& bells, const SimOptions& options)
      : MailboxTransport(rank, ranks, bells),
        net_(net),
        by_messages_(options.says_by_messages || (options.timing && !options.timing->one_sided)),
        replies_(options.reply_slots) {
    KASANE_CHECK(replies_.reserve_bytes(), "no memory for answers");
  }

  Facts facts() const noexcept override {
    return {.name = "sim",
            .target_cpu_needed = by_messages_,
            .puts_need_target = by_messages_,
            .atomics_coherent_with_cpu = true,
            .completes_inline = false,
            .answers_bring = true};
  }
  Result<void> attach(RegionId id, int fd, std::byte* local, std::size_t bytes) override;
  Post read(RemoteAddr from, void* to, std::size_t bytes, Completion* done) noexcept override;
  Post write(RemoteAddr to, const void* from, std::size_t bytes, Completion* done) noexcept override;
  Post write_notify(RemoteAddr to, const void* from, std::size_t bytes, std::uint64_t flag_offset,
                    std::uint64_t value, Completion* done) noexcept override;
  Post atomic(AtomicOp op, RemoteAddr at, std::uint64_t operand, std::uint64_t compare, std::uint64_t* result,
              Completion* done, Width width) noexcept override;
  Post fence(Rank target, Completion* done) noexcept override;
  Post send(Rank to, HandlerId, std::span<const std::byte> payload) noexcept override;
  Post request(Rank to, HandlerId, std::span<const std::byte> payload, PendingReply&) noexcept override;
  void reply(ReplyToken token, std::uint64_t value) noexcept override { reply_with(token, value, {}); }
  void reply_with(ReplyToken, std::uint64_t value, std::span<const std::byte> bytes) noexcept override;
  bool test(PendingReply&, std::uint64_t* value) noexcept override;
  bool poll() noexcept override;
  void sleep(Doorbell d, std::uint32_t seen, std::int64_t timeout_ns) noexcept override;
  void wake(Rank r, Doorbell d) noexcept override;

 private:
  friend class Network;
  [[nodiscard]] bool with_times() const noexcept { return net_.links_.has_value(); }
  SimTransport& peer(Rank r) const noexcept {
    KASANE_CHECK_OP(raw(r), <, ranks());
    return *net_.transports_[raw(r)];
  }
  std::byte* address(RemoteAddr at, std::size_t bytes) const noexcept {
    return peer(at.rank).here(at, bytes);
  }
  Post put(Rank to, HandlerId, std::span<const std::byte> payload, ReplyToken token) noexcept;
  void receive(Event event);
  void run(Event& event);

  Network& net_;
  const bool by_messages_;
  ReplySlots replies_;
  std::deque<Event> due_;         ///< completions and messages that have arrived
  std::uint32_t incoming_ = 0;    ///< messages in flight to this rank, or due
  std::uint32_t operations_ = 0;  ///< posted by this rank, not completed
  bool in_progress_ = false;
};

// ---- the network ------------------------------------------------------------------------------------------

Network::Network(std::uint32_t ranks, const SimOptions& options, Dice& dice, Trace& trace, Sleeper& sleeper)
    : options_(options), dice_(dice), trace_(trace), sleeper_(sleeper), bells_(new Bells[ranks]()) {
  if (options.timing) links_.emplace(*options.timing, ranks);
  traffic_.resize(ranks);
  for (std::uint32_t r = 0; r < ranks; ++r) {
    transports_.push_back(std::make_unique<SimTransport>(*this, Rank{r}, ranks, bells_[r], options_));
  }
}

Network::~Network() = default;

Transport& Network::transport(Rank r) noexcept {
  KASANE_CHECK_OP(raw(r), <, transports_.size());
  return *transports_[raw(r)];
}

std::uint32_t Network::rung(Rank r) const noexcept {
  return transports_[raw(r)]->activity(Doorbell::messages);
}

bool Network::can_progress(Rank r) const noexcept {
  return !transports_[raw(r)]->due_.empty() && !transports_[raw(r)]->in_progress_;
}

/// Whether a post is answered `again`: because a queue is full, or for no reason.
bool Network::refuse(bool full) {
  if (full || links_) return full;
  const bool busy = !under_way_.empty() || std::any_of(transports_.begin(), transports_.end(),
                                                       [](const auto& t) { return !t->due_.empty(); });
  return busy && dice_.permille(options_.again_permille);
}

std::uint64_t Network::begin(std::uint32_t rank, std::uint32_t pieces, Completion* done) {
  operations_[next_operation_] = {.rank = rank, .pieces = pieces, .done = done};
  ++transports_[rank]->operations_;
  return next_operation_++;
}

void Network::launch(Event event) {
  if (links_) return launch_in_time(std::move(event));
  event.id = next_id_++;
  event.due = now_ + dice_.below(options_.max_delay_steps + std::uint64_t{1});
  trace_.mix(event.kind, event.from, event.to, event.bytes, event.due);
  under_way_.push_back(std::move(event));
  ++changes_;
}

Post Network::transfer(Event::Kind kind, std::uint32_t from, RemoteAddr at, std::byte* remote,
                       std::byte* local, std::size_t bytes, Completion* done, std::byte* flag,
                       std::uint64_t value) {
  if (refuse(transports_[from]->operations_ >= options_.operation_capacity)) return Post::again;
  // Cut at up to two places; equal places make fewer pieces, and an operation without bytes is one empty
  // piece.
  std::size_t cuts[4] = {0, 0, 0, bytes};
  if (options_.tear && !links_ && bytes > 1) {
    for (std::size_t* cut : {&cuts[1], &cuts[2]}) *cut = dice_.below(bytes);
    std::sort(cuts + 1, cuts + 3);
  }
  std::uint32_t pieces = 0;
  for (int i = 0; i < 3; ++i) pieces += cuts[i + 1] > cuts[i] ? 1u : 0u;
  count(from, at);
  const std::uint64_t operation = begin(from, std::max(pieces, 1u), done);
  operations_[operation].flag = flag;
  operations_[operation].value = value;
  for (int i = 0; i < 3; ++i) {
    if (cuts[i + 1] == cuts[i] && (pieces != 0 || i != 0)) continue;
    launch({.kind = kind,
            .from = from,
            .to = raw(at.rank),
            .operation = operation,
            .remote = remote + cuts[i],
            .local = local + cuts[i],
            .bytes = cuts[i + 1] - cuts[i],
            .payload = {}});
  }
  return Post::pending;
}

/// Whether something earlier must happen first.
bool Network::held_back(const Event& event) const {
  const bool is_fence = event.kind == Event::Kind::fence;
  if (!is_fence && options_.reorder) return false;
  return std::any_of(under_way_.begin(), under_way_.end(), [&](const Event& other) {
    if (other.from != event.from || other.to != event.to || other.id >= event.id) return false;
    return !options_.reorder || other.kind == Event::Kind::write || other.kind == Event::Kind::notify ||
           other.kind == Event::Kind::atomic;
  });
}

// ---- with times

/// What travels with an operation beside its bytes.
constexpr std::size_t kHeaderBytes = 32;

constexpr bool is_message(Event::Kind kind) noexcept {
  return kind == Event::Kind::message || kind == Event::Kind::reply || kind == Event::Kind::ring;
}

void Network::launch_in_time(Event event) {
  using Kind = Event::Kind;
  // Bytes go with a write or message, and come back with what completes a read.
  const bool carries = event.kind == Kind::write || event.kind == Kind::message ||
                       event.kind == Kind::reply || event.kind == Kind::completion;
  const std::size_t bytes = kHeaderBytes + (carries ? event.bytes : 0);
  if (event.from != event.to) {
    if (event.kind != Kind::completion)
      sleeper_.spend(links_->between(event.from, event.to).overhead_of(is_message(event.kind)));
    ++traffic_[event.from].messages_out, traffic_[event.from].bytes_out += bytes;
    ++traffic_[event.to].messages_in, traffic_[event.to].bytes_in += bytes;
  }
  event.id = next_id_++;
  event.chain = sleeper_.chain() + (event.from != event.to ? 1 : 0);
  event.due = links_->arrival(event.from, event.to, bytes, sleeper_.clock());
  const Timing& t = *options_.timing;
  if (t.late_one_in != 0 && event.from != event.to && event.id % t.late_one_in == 0) event.due += t.late_ns;
  ++changes_;
  const std::pair key{event.due, event.id};
  in_order_.emplace(key, std::move(event));
}

/// Whether a thread of the rank where it arrives must run for it to happen.
bool Network::needs_processor(const Event& event) const noexcept {
  switch (event.kind) {
    case Event::Kind::read:
    case Event::Kind::write:
    case Event::Kind::notify:
    case Event::Kind::atomic:
    case Event::Kind::fence: return !options_.timing->one_sided && !links_->in_host(event.from, event.to);
    case Event::Kind::completion:
    case Event::Kind::message:
    case Event::Kind::ring: return true;
    case Event::Kind::reply:
    case Event::Kind::lost: break;
  }
  return false;
}

std::uint32_t Network::deliver_next() {
  const auto first = in_order_.begin();
  Event event = std::move(first->second);
  in_order_.erase(first);
  now_ = event.due;
  ++changes_;
  const std::uint32_t at = event.to;
  if (dead(at, now_)) {  // nothing arrives; who has sent it is told in a while
    std::swap(event.from, event.to);
    event.due += options_.timing->notice_ns;
    event.kind = Event::Kind::lost;
    if (!dead(event.to, now_)) in_order_.emplace(std::pair{event.due, event.id}, std::move(event));
    return at;
  }
  if (event.kind == Event::Kind::lost) {
    transports_[at]->report_lost(Rank{event.from}, "it does not answer");
    return at;
  }
  const bool answers = event.kind == Event::Kind::completion || event.kind == Event::Kind::reply ||
                       event.kind == Event::Kind::ring;
  const std::uint32_t chain = event.chain;
  sleeper_.caused_by(chain);
  if (needs_processor(event)) {
    transports_[at]->due_.push_back(std::move(event));
  } else {
    happen(event);
  }
  sleeper_.caused_by(answers ? chain : 0);  // what a thread of the rank may have waited for
  return at;
}

bool Network::has_due(std::uint32_t rank) const noexcept {
  return !transports_[rank]->due_.empty() && !transports_[rank]->in_progress_;
}

std::size_t Network::count_eligible() {
  eligible_.clear();
  std::uint64_t next_due = ~std::uint64_t{0};
  for (std::size_t i = 0; i < under_way_.size(); ++i) {
    if (held_back(under_way_[i])) continue;
    next_due = std::min(next_due, under_way_[i].due);
    if (under_way_[i].due <= now_) eligible_.push_back(i);
  }
  if (!eligible_.empty() || under_way_.empty()) return eligible_.size();
  now_ = next_due;
  return count_eligible();
}

void Network::deliver(std::size_t index) {
  Event& place = under_way_[eligible_[index]];
  Event event = std::move(place);
  if (&place != &under_way_.back()) place = std::move(under_way_.back());
  under_way_.pop_back();
  trace_.mix(0xD, event.id);
  ++changes_;
  happen(event);
}

void Network::happen(Event& event) {
  switch (event.kind) {
    case Event::Kind::read:
      if (event.bytes != 0) std::memcpy(event.local, event.remote, event.bytes);
      return finish_piece(event);
    case Event::Kind::write:
      if (event.bytes != 0) std::memcpy(event.remote, event.local, event.bytes);
      return finish_piece(event);
    case Event::Kind::notify:
      std::memcpy(event.remote, &event.operand, sizeof(event.operand));
      return finish_piece(event);
    case Event::Kind::atomic: execute(event); return finish_piece(event);
    case Event::Kind::fence: return finish_piece(event);
    case Event::Kind::ring:
    case Event::Kind::lost: return;
    case Event::Kind::completion:
    case Event::Kind::message: return transports_[event.to]->receive(std::move(event));
    case Event::Kind::reply: {
      SimTransport& requester = *transports_[event.to];
      const auto* const bytes = reinterpret_cast<const std::byte*>(event.payload.data());
      KASANE_CHECK(
          requester.replies_.answer(event.token.slot, event.token.stamp, event.operand, {bytes, event.bytes}),
          "a request was answered twice");
      requester.ring_messages();
      return;
    }
  }
}

void Network::execute(const Event& event) {
  const std::uint64_t old = cpu_atomic(event.op, event.width, event.remote, event.operand, event.compare);
  if (event.local != nullptr) std::memcpy(event.local, &old, sizeof(old));
  trace_.mix(0xA, event.id, old);
}

/// After the last piece the news of completion travels back.
void Network::finish_piece(const Event& event) {
  const auto it = operations_.find(event.operation);
  if (--it->second.pieces != 0) return;
  // the bytes are there; the flag is an event of its own, later
  if (std::byte* flag = std::exchange(it->second.flag, nullptr)) {
    it->second.pieces = 1;
    launch({.kind = Event::Kind::notify,
            .from = event.from,
            .to = event.to,
            .operation = event.operation,
            .remote = flag,
            .bytes = 8,
            .operand = it->second.value,
            .payload = {}});
    if (links_) return;
    under_way_.back().id = event.id;  // as old as the write: fences posted since wait for it
    return;
  }
  launch({.kind = Event::Kind::completion,
          .from = event.to,
          .to = it->second.rank,
          .operation = event.operation,
          .bytes = links_ && event.kind == Event::Kind::read ? event.bytes : 0,
          .done = it->second.done,
          .payload = {}});
  operations_.erase(it);
}

// ---- one rank ---------------------------------------------------------------------------------------------

Result<void> SimTransport::attach(RegionId id, int /*fd*/, std::byte* local, std::size_t bytes) {
  KASANE_TRY(may_attach(id, local, bytes));
  // peers' memory is reachable, but is not shown as mapped: the network must be used
  (void)new_region(id, local);
  publish(id, bytes);
  return {};
}

Post SimTransport::read(RemoteAddr from, void* to, std::size_t bytes, Completion* done) noexcept {
  std::byte* remote = address(from, bytes);
  return net_.transfer(Event::Kind::read, raw(rank()), from, remote, static_cast<std::byte*>(to), bytes,
                       done);
}

Post SimTransport::write(RemoteAddr to, const void* from, std::size_t bytes, Completion* done) noexcept {
  std::byte* remote = address(to, bytes);
  auto* local = static_cast<std::byte*>(const_cast<void*>(from));  // only read, see Network::happen
  return net_.transfer(Event::Kind::write, raw(rank()), to, remote, local, bytes, done);
}

Post SimTransport::write_notify(RemoteAddr to, const void* from, std::size_t bytes, std::uint64_t flag_offset,
                                std::uint64_t value, Completion* done) noexcept {
  KASANE_CHECK_OP(flag_offset % 8, ==, 0u);
  std::byte* remote = address(to, bytes);
  std::byte* flag = address({to.rank, to.region, flag_offset}, 8);
  auto* local = static_cast<std::byte*>(const_cast<void*>(from));  // only read, see Network::happen
  return net_.transfer(Event::Kind::write, raw(rank()), to, remote, local, bytes, done, flag, value);
}

Post SimTransport::atomic(AtomicOp op, RemoteAddr at, std::uint64_t operand, std::uint64_t compare,
                          std::uint64_t* result, Completion* done, Width width) noexcept {
  KASANE_CHECK_OP(at.offset % static_cast<std::size_t>(width), ==, 0u);
  std::byte* remote = address(at, static_cast<std::size_t>(width));
  if (net_.refuse(operations_ >= net_.options_.operation_capacity)) return Post::again;
  net_.count(raw(rank()), at);
  net_.launch({.kind = Event::Kind::atomic,
               .op = op,
               .width = width,
               .from = raw(rank()),
               .to = raw(at.rank),
               .operation = net_.begin(raw(rank()), 1, done),
               .remote = remote,
               .local = reinterpret_cast<std::byte*>(result),
               .bytes = static_cast<std::size_t>(width),
               .operand = operand,
               .compare = compare,
               .payload = {}});
  return Post::pending;
}

Post SimTransport::fence(Rank target, Completion* done) noexcept {
  KASANE_CHECK_OP(raw(target), <, ranks());
  if (net_.refuse(operations_ >= net_.options_.operation_capacity)) return Post::again;
  net_.launch({.kind = Event::Kind::fence,
               .from = raw(rank()),
               .to = raw(target),
               .operation = net_.begin(raw(rank()), 1, done),
               .payload = {}});
  return Post::pending;
}

Post SimTransport::put(Rank to, HandlerId id, std::span<const std::byte> payload, ReplyToken token) noexcept {
  check_message(id, payload);
  SimTransport& target = peer(to);
  if (net_.refuse(target.incoming_ >= net_.options_.ring_capacity)) return Post::again;
  ++target.incoming_;
  Event event{.kind = Event::Kind::message,
              .from = raw(rank()),
              .to = raw(to),
              .bytes = payload.size(),
              .handler = id,
              .token = token,
              .payload = {}};
  event.payload.resize((payload.size() + 7) / 8);
  if (!payload.empty()) std::memcpy(event.payload.data(), payload.data(), payload.size());
  net_.launch(std::move(event));
  return Post::done;
}

Post SimTransport::send(Rank to, HandlerId id, std::span<const std::byte> payload) noexcept {
  return put(to, id, payload, {.requester = rank(), .slot = ~0u, .stamp = 0});
}

Post SimTransport::request(Rank to, HandlerId id, std::span<const std::byte> payload,
                           PendingReply& pending) noexcept {
  return replies_.request(to, pending, [&](std::uint32_t slot, std::uint64_t stamp) {
    return put(to, id, payload, {.requester = rank(), .slot = slot, .stamp = stamp});
  });
}

void SimTransport::reply_with(ReplyToken token, std::uint64_t value,
                              std::span<const std::byte> bytes) noexcept {
  KASANE_CHECK_OP(bytes.size(), <=, kMaxAnswer);
  if (!bytes.empty() && !with_times() && net_.dice_.permille(net_.options_.answer_alone_permille)) bytes = {};
  Event event{.kind = Event::Kind::reply,
              .from = raw(rank()),
              .to = raw(token.requester),
              .bytes = bytes.size(),
              .operand = value,
              .token = token,
              .payload = {}};
  event.payload.resize((bytes.size() + 7) / 8);
  if (!bytes.empty()) std::memcpy(event.payload.data(), bytes.data(), bytes.size());
  net_.launch(std::move(event));
}

bool SimTransport::test(PendingReply& pending, std::uint64_t* value) noexcept {
  if (!replies_.answered(pending)) return false;
  replies_.take(pending, value);
  ++net_.changes_;
  return true;
}

void SimTransport::receive(Event event) {
  due_.push_back(std::move(event));
  ring_messages();
}

bool SimTransport::poll() noexcept {
  if (with_times() && due_.empty() && !in_progress_) net_.sleeper_.polled_in_vain();
  if (in_progress_ || due_.empty()) return false;
  in_progress_ = true;
  // Some of what is due, not always all: the rest arrives "later".
  std::uint64_t n = with_times() ? due_.size() : 1 + net_.dice_.below(due_.size());
  net_.trace_.mix(0xB, raw(rank()), n);
  for (; n != 0 && !due_.empty(); --n) {
    Event event = std::move(due_.front());
    due_.pop_front();
    ++net_.changes_;
    run(event);
    if (with_times()) net_.sleeper_.caused_by(0);
    // After the handler: until then its message occupies the ring, as it does in shared memory.
    if (event.kind == Event::Kind::message)
      --incoming_;
    else if (event.kind == Event::Kind::completion)
      --operations_;
  }
  in_progress_ = false;
  return true;
}

void SimTransport::run(Event& event) {
  if (with_times()) {
    net_.sleeper_.spend(net_.links_->between(event.from, event.to).overhead_of(is_message(event.kind)));
    net_.sleeper_.caused_by(event.chain);
    if (event.kind == Event::Kind::ring) return bells()[raw(event.bell)].ring();
    if (event.kind != Event::Kind::completion && event.kind != Event::Kind::message)
      return net_.happen(event);
  }
  if (event.kind == Event::Kind::completion) {
    if (event.done != nullptr) event.done->fn(event.done);
    return;
  }
  run_handler(raw(event.handler), event.from,
              {reinterpret_cast<const std::byte*>(event.payload.data()), event.bytes}, event.token.slot,
              event.token.stamp);
}

void SimTransport::sleep(Doorbell d, std::uint32_t seen, std::int64_t timeout_ns) noexcept {
  if (activity(d) == seen) net_.sleeper_.sleep(*this, d, seen, timeout_ns);
}

void SimTransport::wake(Rank r, Doorbell d) noexcept {
  if (with_times() && r != rank())
    return net_.launch(
        {.kind = Event::Kind::ring, .from = raw(rank()), .to = raw(r), .bell = d, .payload = {}});
  peer(r).bells()[raw(d)].ring();
  ++net_.changes_;
}

}  // namespace kasane::comm::sim
