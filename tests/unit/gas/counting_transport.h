// SPDX-License-Identifier: Apache-2.0
// A transport that counts what it hands on to another one.
// Thread safety: none of its own.
#pragma once

#include "comm/transport.h"

namespace kasane::test {

class CountingTransport final : public comm::Transport {
 public:
  explicit CountingTransport(comm::Transport& inner) : Transport(inner.rank(), inner.ranks()), inner_(inner) {}

  std::uint32_t reads = 0, writes = 0, atomics = 0, requests = 0;
  /// One-sided operations since the last call.
  std::uint32_t trips() {
    const std::uint32_t n = reads + writes + atomics;
    reads = writes = atomics = 0;
    return n;
  }

  [[nodiscard]] comm::Facts facts() const noexcept override { return inner_.facts(); }
  Result<void> attach(comm::RegionId id, int fd, std::byte* local, std::size_t bytes) override { return inner_.attach(id, fd, local, bytes); }
  [[nodiscard]] std::byte* mapped(Rank rank, comm::RegionId id) const noexcept override { return inner_.mapped(rank, id); }
  comm::Post read(comm::RemoteAddr from, void* to, std::size_t bytes, comm::Completion* c) noexcept override {
    return counted(reads, inner_.read(from, to, bytes, c));
  }
  comm::Post write(comm::RemoteAddr to, const void* from, std::size_t bytes, comm::Completion* c) noexcept override {
    return counted(writes, inner_.write(to, from, bytes, c));
  }
  comm::Post write_notify(comm::RemoteAddr to, const void* from, std::size_t bytes, std::uint64_t flag, std::uint64_t value,
                          comm::Completion* c) noexcept override {
    return counted(writes, inner_.write_notify(to, from, bytes, flag, value, c));
  }
  comm::Post atomic(comm::AtomicOp op, comm::RemoteAddr at, std::uint64_t operand, std::uint64_t compare, std::uint64_t* result, comm::Completion* c,
                    comm::Width width) noexcept override {
    return counted(atomics, inner_.atomic(op, at, operand, compare, result, c, width));
  }
  comm::Post fence(Rank target, comm::Completion* c) noexcept override { return inner_.fence(target, c); }
  void set_handler(comm::HandlerId id, comm::Handler fn, void* context) noexcept override { inner_.set_handler(id, fn, context); }
  comm::Post send(Rank to, comm::HandlerId id, std::span<const std::byte> payload) noexcept override { return inner_.send(to, id, payload); }
  comm::Post request(Rank to, comm::HandlerId id, std::span<const std::byte> payload, comm::PendingReply& pending) noexcept override {
    return counted(requests, inner_.request(to, id, payload, pending));
  }
  void reply(comm::ReplyToken token, std::uint64_t value) noexcept override { inner_.reply(token, value); }
  [[nodiscard]] bool test(comm::PendingReply& pending, std::uint64_t* value) noexcept override { return inner_.test(pending, value); }
  bool arm() noexcept override { return inner_.arm(); }
  [[nodiscard]] std::uint32_t activity(comm::Doorbell d) const noexcept override { return inner_.activity(d); }
  void sleep(comm::Doorbell d, std::uint32_t seen, std::int64_t timeout_ns) noexcept override { inner_.sleep(d, seen, timeout_ns); }
  void wake(Rank rank, comm::Doorbell d) noexcept override { inner_.wake(rank, d); }

 protected:
  bool poll() noexcept override { return inner_.progress(); }

 private:
  static comm::Post counted(std::uint32_t& counter, comm::Post post) noexcept {
    counter += post != comm::Post::again ? 1 : 0;
    return post;
  }
  comm::Transport& inner_;
};

}  // namespace kasane::test
