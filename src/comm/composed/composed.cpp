// SPDX-License-Identifier: Apache-2.0
// See composed.h and docs/design/comm_composed.md.
#include "comm/composed/composed.h"

#include <atomic>
#include <string>
#include <utility>

#include "base/assert.h"
#include "comm/agree.h"

namespace kasane::comm::composed {
namespace {

/// While the near part has work and the network had none, poll the network only every so many times: that
/// costs more than a near message.
constexpr std::uint32_t kFarEvery = 16;

class ComposedTransport final : public Transport {
 public:
  ComposedTransport(Parts parts, OutOfBand& all)
      : Transport(parts.near->rank(), parts.near->ranks()),
        all_(all),
        near_(std::move(parts.near)),
        far_(std::move(parts.far)),
        near_facts_(near_->facts()),
        far_facts_(far_->facts()),
        atomics_by_far_(!far_facts_.atomics_coherent_with_cpu),
        detail_(describe()) {
    for (const bool is_near : parts.is_near) by_rank_.push_back(is_near ? near_.get() : far_.get());
  }

  Facts facts() const noexcept override;
  Result<std::byte*> make_memory(RegionId id, std::size_t bytes) override {
    return near_->make_memory(id, bytes);
  }
  void limit_memory() noexcept override { near_->limit_memory(); }
  Result<void> attach(RegionId id, int fd, std::byte* local, std::size_t bytes) override;
  std::byte* mapped(Rank r, RegionId id) const noexcept override { return part(r).mapped(r, id); }

  Post read(RemoteAddr from, void* to, std::size_t bytes, Completion* c) noexcept override {
    return part(from.rank).read(from, to, bytes, c);
  }
  Post write(RemoteAddr to, const void* from, std::size_t bytes, Completion* c) noexcept override {
    return part(to.rank).write(to, from, bytes, c);
  }
  Post write_notify(RemoteAddr to, const void* from, std::size_t bytes, std::uint64_t flag_offset,
                    std::uint64_t value, Completion* c) noexcept override {
    return part(to.rank).write_notify(to, from, bytes, flag_offset, value, c);
  }
  Post atomic(AtomicOp op, RemoteAddr at, std::uint64_t operand, std::uint64_t compare, std::uint64_t* result,
              Completion* c, Width width) noexcept override {
    Transport& by = atomics_by_far_ ? *far_ : part(at.rank);
    return by.atomic(op, at, operand, compare, result, c, width);
  }
  Post fence(Rank target, Completion* c) noexcept override;

  void set_handler(HandlerId id, Handler fn, void* context) noexcept override {
    near_->set_handler(id, fn, context);
    far_->set_handler(id, fn, context);
  }
  Post send(Rank to, HandlerId id, std::span<const std::byte> payload) noexcept override {
    return part(to).send(to, id, payload);
  }
  Post request(Rank to, HandlerId id, std::span<const std::byte> payload,
               PendingReply& pending) noexcept override {
    return part(to).request(to, id, payload, pending);
  }
  void reply(ReplyToken token, std::uint64_t value) noexcept override {
    part(token.requester).reply(token, value);
  }
  void reply_with(ReplyToken token, std::uint64_t value, std::span<const std::byte> bytes) noexcept override {
    part(token.requester).reply_with(token, value, bytes);
  }
  bool test(PendingReply& pending, std::uint64_t* value) noexcept override {
    return part(pending.to).test(pending, value);
  }

  bool arm() noexcept override { return far_->arm(); }
  std::uint32_t activity(Doorbell d) const noexcept override { return near_->activity(d); }
  void sleep(Doorbell, std::uint32_t seen, std::int64_t timeout_ns) noexcept override;
  void wake(Rank to, Doorbell d) noexcept override { part(to).wake(to, d); }

  bool lost(Rank r) const noexcept override { return part(r).lost(r); }
  void set_peer_lost(PeerLost fn, void* context) noexcept override {
    near_->set_peer_lost(fn, context);
    far_->set_peer_lost(fn, context);
  }
  void set_nudge(Nudge fn, void* context) noexcept override { near_->set_nudge(fn, context); }

 private:
  bool poll() noexcept override;

  bool is_near(Rank r) const noexcept {
    KASANE_CHECK_OP(raw(r), <, ranks());
    return by_rank_[raw(r)] == near_.get();
  }
  Transport& part(Rank r) const noexcept {
    KASANE_CHECK_OP(raw(r), <, ranks());
    return *by_rank_[raw(r)];
  }
  std::string describe() const;

  OutOfBand& all_;
  // In this order, so that the network is destroyed first: it rings near's doorbells.
  std::unique_ptr<Transport> near_;
  std::unique_ptr<Transport> far_;
  std::vector<Transport*> by_rank_;  ///< the part that reaches each rank
  const Facts near_facts_, far_facts_;
  const bool atomics_by_far_;
  const std::string detail_;
  std::atomic<std::uint32_t> far_skipped_{0};  ///< consecutive polls of the network left out
  std::atomic<bool> far_quiet_{false};         ///< its last poll found nothing
};

// ---- facts ------------------------------------------------------------------------------------------------

std::string ComposedTransport::describe() const {
  std::string text = std::string(near_facts_.name) + " within, " + std::string(far_facts_.name);
  if (!far_facts_.detail.empty()) text += " (" + std::string(far_facts_.detail) + ")";
  return text + " between";
}

Facts ComposedTransport::facts() const noexcept {
  const Facts& n = near_facts_;
  const Facts& f = far_facts_;
  return {.name = "composed",
          .target_cpu_needed = n.target_cpu_needed || f.target_cpu_needed,
          .puts_need_target = n.puts_need_target || f.puts_need_target,
          .atomics_coherent_with_cpu = n.atomics_coherent_with_cpu && f.atomics_coherent_with_cpu,
          .completes_inline = n.completes_inline && f.completes_inline,
          .ordered = n.ordered && f.ordered,
          .pins_memory = n.pins_memory || f.pins_memory,
          .poll_every_ns = far_->facts().poll_every_ns,
          .answers_bring = n.answers_bring || f.answers_bring,
          .detail = detail_};
}

// ---- regions ----------------------------------------------------------------------------------------------

Result<void> ComposedTransport::attach(RegionId id, int fd, std::byte* local, std::size_t bytes) {
  // Only a host's own ranks know that it failed: without agree() others would wait for it.
  KASANE_TRY(agree(all_, near_->attach(id, fd, local, bytes), "attach of region " + std::to_string(raw(id))));
  return far_->attach(id, fd, local, bytes);
}

// ---- operations -------------------------------------------------------------------------------------------

Post ComposedTransport::fence(Rank target, Completion* c) noexcept {
  if (!is_near(target)) return far_->fence(target, c);
  const Post inline_done = near_->fence(target, c);  // always done: near completes inline
  return atomics_by_far_ ? far_->fence(target, c) : inline_done;
}

// ---- progress and sleep -----------------------------------------------------------------------------------

// Returns false only after polling both: callers then sleep.
bool ComposedTransport::poll() noexcept {
  const bool near_any = near_->progress();
  // relaxed, all three: only decide how often to poll; a lost update costs one poll more or less. The poll
  // itself orders what it finds.
  if (near_any && far_quiet_.load(std::memory_order_relaxed) &&
      far_skipped_.load(std::memory_order_relaxed) + 1 < kFarEvery) {
    far_skipped_.store(far_skipped_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    return true;
  }
  const bool far_any = far_->progress();
  far_skipped_.store(0, std::memory_order_relaxed);
  far_quiet_.store(!far_any, std::memory_order_relaxed);
  return near_any || far_any;
}

void ComposedTransport::sleep(Doorbell d, std::uint32_t seen, std::int64_t timeout_ns) noexcept {
  // The network's sleep, on the bells of both, knows how its arrivals are heard of.
  (d == Doorbell::messages ? far_ : near_)->sleep(d, seen, timeout_ns);
}

}  // namespace

Result<std::unique_ptr<Transport>> create(Parts parts, OutOfBand& all) {
  KASANE_CHECK(parts.near != nullptr && parts.far != nullptr, "a composed transport has two parts");
  const Transport& near = *parts.near;
  const Transport& far = *parts.far;
  if (near.rank() != far.rank() || near.ranks() != far.ranks() || parts.is_near.size() != near.ranks() ||
      all.ranks() != near.ranks()) {
    return fail(Errc::internal, "the parts of a composed transport disagree: rank " +
                                    std::to_string(raw(near.rank())) + " of " + std::to_string(near.ranks()) +
                                    " and rank " + std::to_string(raw(far.rank())) + " of " +
                                    std::to_string(far.ranks()));
  }
  // fence() and the atomics depend on it.
  if (!near.facts().completes_inline || !parts.is_near[raw(near.rank())]) {
    return fail(Errc::internal, "the near part must complete inline and reach its own rank");
  }
  return std::make_unique<ComposedTransport>(std::move(parts), all);
}

}  // namespace kasane::comm::composed
