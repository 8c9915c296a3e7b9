// SPDX-License-Identifier: Apache-2.0
// A transport that passes on to another one and counts what it passes on, and how long the longest chain is
// in which each operation was posted after the one before had completed: the number of round trips that a
// caller waits for, whatever else it has outstanding.
// Thread safety: none of its own.
#pragma once

#include <algorithm>
#include <deque>
#include <map>

#include "comm/transport.h"

namespace kasane::test {

class CountingTransport final : public comm::Transport {
 public:
  explicit CountingTransport(comm::Transport& inner)
      : Transport(inner.rank(), inner.ranks()), inner_(inner) {}

  std::uint32_t reads = 0, writes = 0, atomics = 0, requests = 0;
  /// ranks whose frames are mapped here, in addition to those that the transport has mapped
  std::map<Rank, std::byte*> maps;
  /// One-sided operations since the last call.
  std::uint32_t trips() {
    const std::uint32_t n = reads + writes + atomics;
    reads = writes = atomics = 0;
    return n;
  }

  /// Round trips one after the other since the last call, requests among them.
  struct Chain {
    std::uint32_t one_sided = 0, requests = 0;
    [[nodiscard]] std::uint32_t all() const { return one_sided + requests; }
  };
  Chain chain() {
    const Chain c = longest_;
    longest_ = {};
    return c;
  }

  [[nodiscard]] comm::Facts facts() const noexcept override { return inner_.facts(); }
  Result<std::byte*> make_memory(comm::RegionId id, std::size_t bytes) override {
    return inner_.make_memory(id, bytes);
  }
  Result<void> attach(comm::RegionId id, int fd, std::byte* local, std::size_t bytes) override {
    return inner_.attach(id, fd, local, bytes);
  }
  [[nodiscard]] std::byte* mapped(Rank rank, comm::RegionId id) const noexcept override {
    if (const auto it = maps.find(rank); it != maps.end() && id == comm::RegionId{0}) return it->second;
    return inner_.mapped(rank, id);
  }
  comm::Post read(comm::RemoteAddr from, void* to, std::size_t bytes, comm::Completion* c) noexcept override {
    return one_sided(reads, c, [&](comm::Completion* w) { return inner_.read(from, to, bytes, w); });
  }
  comm::Post write(comm::RemoteAddr to, const void* from, std::size_t bytes,
                   comm::Completion* c) noexcept override {
    return one_sided(writes, c, [&](comm::Completion* w) { return inner_.write(to, from, bytes, w); });
  }
  comm::Post write_notify(comm::RemoteAddr to, const void* from, std::size_t bytes, std::uint64_t flag,
                          std::uint64_t value, comm::Completion* c) noexcept override {
    return one_sided(
        writes, c, [&](comm::Completion* w) { return inner_.write_notify(to, from, bytes, flag, value, w); });
  }
  comm::Post atomic(comm::AtomicOp op, comm::RemoteAddr at, std::uint64_t operand, std::uint64_t compare,
                    std::uint64_t* result, comm::Completion* c, comm::Width width) noexcept override {
    return one_sided(atomics, c, [&](comm::Completion* w) {
      return inner_.atomic(op, at, operand, compare, result, w, width);
    });
  }
  comm::Post fence(Rank target, comm::Completion* c) noexcept override { return inner_.fence(target, c); }
  void set_handler(comm::HandlerId id, comm::Handler fn, void* context) noexcept override {
    inner_.set_handler(id, fn, context);
  }
  comm::Post send(Rank to, comm::HandlerId id, std::span<const std::byte> payload) noexcept override {
    return inner_.send(to, id, payload);
  }
  comm::Post request(Rank to, comm::HandlerId id, std::span<const std::byte> payload,
                     comm::PendingReply& pending) noexcept override {
    const comm::Post post = inner_.request(to, id, payload, pending);
    if (post == comm::Post::again) return post;
    ++requests;
    asked_[pending.slot] = longest_;
    ++asked_[pending.slot].requests;
    return post;
  }
  void reply(comm::ReplyToken token, std::uint64_t value) noexcept override { inner_.reply(token, value); }
  void reply_with(comm::ReplyToken token, std::uint64_t value,
                  std::span<const std::byte> bytes) noexcept override {
    inner_.reply_with(token, value, bytes);
  }
  [[nodiscard]] bool test(comm::PendingReply& pending, std::uint64_t* value) noexcept override {
    const std::uint32_t slot = pending.slot;
    if (!inner_.test(pending, value)) return false;
    reach(asked_[slot]);
    return true;
  }
  bool arm() noexcept override { return inner_.arm(); }
  [[nodiscard]] std::uint32_t activity(comm::Doorbell d) const noexcept override {
    return inner_.activity(d);
  }
  void sleep(comm::Doorbell d, std::uint32_t seen, std::int64_t timeout_ns) noexcept override {
    inner_.sleep(d, seen, timeout_ns);
  }
  void wake(Rank rank, comm::Doorbell d) noexcept override { inner_.wake(rank, d); }

 protected:
  bool poll() noexcept override { return inner_.progress(); }

 private:
  struct Wrapped : comm::Completion {
    CountingTransport* transport = nullptr;
    comm::Completion* inner = nullptr;
    Chain reached;
    bool in_use = false;
  };

  template <class F>
  comm::Post one_sided(std::uint32_t& counter, comm::Completion* c, const F& post) noexcept {
    auto it = std::find_if(under_way_.begin(), under_way_.end(), [](const Wrapped& w) { return !w.in_use; });
    Wrapped& w = it != under_way_.end() ? *it : under_way_.emplace_back();
    w.transport = this;
    w.inner = c;
    w.reached = longest_;
    ++w.reached.one_sided;
    w.in_use = true;
    w.fn = [](comm::Completion* done) noexcept {
      auto& self = *static_cast<Wrapped*>(done);
      self.transport->reach(self.reached);
      self.in_use = false;
      self.inner->status = self.status;
      self.inner->fn(self.inner);
    };
    const comm::Post result = post(&w);
    if (result != comm::Post::pending) w.in_use = false;
    if (result == comm::Post::done) reach(w.reached);
    counter += result != comm::Post::again ? 1 : 0;
    return result;
  }
  void reach(const Chain& c) {
    if (std::pair(c.all(), c.requests) > std::pair(longest_.all(), longest_.requests)) longest_ = c;
  }

  comm::Transport& inner_;
  Chain longest_;
  std::deque<Wrapped> under_way_;         // never moved: completions name their elements
  std::map<std::uint32_t, Chain> asked_;  // by slot
};

}  // namespace kasane::test
