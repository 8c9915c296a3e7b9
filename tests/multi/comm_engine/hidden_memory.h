// SPDX-License-Identifier: Apache-2.0
// A transport whose peers' memory cannot be seen, though that of the transport below can: so the engine's
// network paths run between real processes and threads with nothing but shared memory. Everything is done by
// the transport below.
#pragma once

#include "comm/transport.h"

namespace kasane::comm::test {

class HiddenMemory : public Transport {
 public:
  explicit HiddenMemory(Transport& below) : Transport(below.rank(), below.ranks()), below_(below) {}

  Facts facts() const noexcept override {
    Facts f = below_.facts();
    f.name = "hidden";
    f.completes_inline = false;
    return f;
  }
  Result<std::byte*> make_memory(RegionId id, std::size_t bytes) override {
    return below_.make_memory(id, bytes);
  }
  Result<void> attach(RegionId id, int fd, std::byte* local, std::size_t bytes) override {
    return below_.attach(id, fd, local, bytes);
  }
  std::byte* mapped(Rank r, RegionId id) const noexcept override {
    return r == rank() ? below_.mapped(r, id) : nullptr;
  }
  Post read(RemoteAddr from, void* to, std::size_t bytes, Completion* c) noexcept override {
    return below_.read(from, to, bytes, c);
  }
  Post write(RemoteAddr to, const void* from, std::size_t bytes, Completion* c) noexcept override {
    return below_.write(to, from, bytes, c);
  }
  Post write_notify(RemoteAddr to, const void* from, std::size_t bytes, std::uint64_t flag_offset,
                    std::uint64_t value, Completion* c) noexcept override {
    return below_.write_notify(to, from, bytes, flag_offset, value, c);
  }
  Post atomic(AtomicOp op, RemoteAddr at, std::uint64_t operand, std::uint64_t compare, std::uint64_t* result,
              Completion* c, Width w) noexcept override {
    return below_.atomic(op, at, operand, compare, result, c, w);
  }
  Post fence(Rank target, Completion* c) noexcept override { return below_.fence(target, c); }
  void set_handler(HandlerId id, Handler fn, void* context) noexcept override {
    below_.set_handler(id, fn, context);
  }
  Post send(Rank to, HandlerId id, std::span<const std::byte> payload) noexcept override {
    return below_.send(to, id, payload);
  }
  Post request(Rank to, HandlerId id, std::span<const std::byte> payload, PendingReply& p) noexcept override {
    return below_.request(to, id, payload, p);
  }
  void reply(ReplyToken token, std::uint64_t value) noexcept override { below_.reply(token, value); }
  bool test(PendingReply& p, std::uint64_t* value) noexcept override { return below_.test(p, value); }
  bool arm() noexcept override { return below_.arm(); }
  std::uint32_t activity(Doorbell d) const noexcept override { return below_.activity(d); }
  void sleep(Doorbell d, std::uint32_t seen, std::int64_t timeout_ns) noexcept override {
    below_.sleep(d, seen, timeout_ns);
  }
  void wake(Rank r, Doorbell d) noexcept override { below_.wake(r, d); }
  bool lost(Rank r) const noexcept override { return below_.lost(r); }
  void set_peer_lost(PeerLost fn, void* context) noexcept override { below_.set_peer_lost(fn, context); }

 protected:
  bool poll() noexcept override { return below_.progress(); }

 private:
  Transport& below_;
};

}  // namespace kasane::comm::test
