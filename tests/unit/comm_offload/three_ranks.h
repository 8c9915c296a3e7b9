// SPDX-License-Identifier: Apache-2.0
// A job of three ranks in one process over shared memory, whose ranks 1 and 2 have service threads that can be held up, and an Issuer for rank 0 on bare
// transport operations: inline ones (read, write, atomics) and one that takes its time and can be answered `again` (a request that adds at its target).
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <memory>
#include <thread>

#include "comm/blocking.h"
#include "comm/command.h"
#include "comm/shm/shm_transport.h"

namespace kasane::comm::test {

inline constexpr RegionId kRegion{1};
inline constexpr HandlerId kAdd{1};
inline constexpr std::size_t kRegionBytes = 1 << 16;

/// The payload of kAdd: the word at offset grows by value; the answer is what it was.
struct Add {
  std::uint64_t offset, value;
};

class ThreeRanks {
 public:
  static constexpr std::uint32_t kRanks = 3;

  ThreeRanks() {
    auto job = create_job(kRanks, shm::job_bytes(kRanks));
    EXPECT_TRUE(job) << job.error().message;
    job_ = *job;
    std::array<std::thread, kRanks> attaching;
    for (std::uint32_t r = 0; r < kRanks; ++r) {
      job_.rank = Rank{r};
      ranks_[r].start(job_);
      attaching[r] = std::thread([this, r] { ranks_[r].attach(); });
    }
    for (auto& thread : attaching) thread.join();
    for (std::uint32_t r = 1; r < kRanks; ++r) ranks_[r].service = std::thread([this, r] { ranks_[r].serve(); });
  }
  ~ThreeRanks() {
    for (std::uint32_t r = 1; r < kRanks; ++r) ranks_[r].stop();
    for (auto& rank : ranks_) rank.close();
    close_job(job_);
  }

  [[nodiscard]] Transport& transport() { return *ranks_[0].transport; }
  [[nodiscard]] std::byte* memory(std::uint32_t rank) { return ranks_[rank].memory; }
  [[nodiscard]] std::atomic_ref<std::uint64_t> word(std::uint32_t rank, std::size_t offset) {
    return std::atomic_ref<std::uint64_t>(*reinterpret_cast<std::uint64_t*>(memory(rank) + offset));
  }
  /// While held, the rank's service thread runs no message, so that its ring fills.
  void hold(std::uint32_t rank, bool held) {
    ranks_[rank].held.store(held, std::memory_order_seq_cst);
    ranks_[rank].transport->wake(Rank{rank}, Doorbell::messages);
  }

 private:
  struct OneRank {
    std::unique_ptr<Transport> transport;
    std::byte* memory = nullptr;
    int fd = -1;
    std::thread service;
    std::atomic<bool> held{false}, stopping{false};

    void start(const Job& job) {
      auto created = shm::create(job);
      EXPECT_TRUE(created) << created.error().message;
      transport = std::move(*created);
      transport->set_handler(kAdd, &add, this);
      fd = ::memfd_create("kasane-test", MFD_CLOEXEC);
      EXPECT_EQ(::ftruncate(fd, kRegionBytes), 0);
      memory = static_cast<std::byte*>(::mmap(nullptr, kRegionBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    }
    void attach() { EXPECT_TRUE(transport->attach(kRegion, fd, memory, kRegionBytes)); }
    static void add(void* self, const Message& message) noexcept {
      auto& rank = *static_cast<OneRank*>(self);
      const auto& what = *reinterpret_cast<const Add*>(message.payload.data());
      std::atomic_ref<std::uint64_t> word(*reinterpret_cast<std::uint64_t*>(rank.memory + what.offset));
      rank.transport->reply(message.token, word.fetch_add(what.value, std::memory_order_seq_cst));
    }
    void serve() {
      for (;;) {
        const std::uint32_t seen = transport->activity(Doorbell::messages);
        if (stopping.load(std::memory_order_seq_cst)) return;
        while (!held.load(std::memory_order_seq_cst) && transport->progress()) {}
        transport->sleep(Doorbell::messages, seen, kNoNap);
      }
    }
    void stop() {
      stopping.store(true, std::memory_order_seq_cst);
      transport->wake(transport->rank(), Doorbell::messages);
      service.join();
    }
    void close() {
      transport.reset();
      ::munmap(memory, kRegionBytes);
      ::close(fd);
    }
    static constexpr std::int64_t kNoNap = -1;
  };

  Job job_;
  std::array<OneRank, kRanks> ranks_;
};

/// Carries commands out on rank 0's transport. Kind::prepared is kAdd: at remote, transfer.value; the answer goes to *answers[record], unless that is null.
class TestIssuer final : public Issuer {
 public:
  explicit TestIssuer(Transport& transport, std::byte* memory) : transport_(transport), memory_(memory) {
    transport_.set_poll_hook([](void* self) noexcept { return static_cast<TestIssuer*>(self)->poll_requests(); }, this);
  }
  ~TestIssuer() { transport_.set_poll_hook(nullptr, nullptr); }
  TestIssuer(const TestIssuer&) = delete;
  TestIssuer& operator=(const TestIssuer&) = delete;

  std::array<std::uint64_t*, 256> answers{};

  Issued issue(const Command& c) noexcept override {
    switch (c.kind) {
      case Command::Kind::read: return finish(transport_.read(c.remote, memory_ + c.transfer.local.offset, c.transfer.bytes, nullptr), c);
      case Command::Kind::write: return finish(transport_.write(c.remote, memory_ + c.transfer.local.offset, c.transfer.bytes, nullptr), c);
      case Command::Kind::atomic:
        return finish(transport_.atomic(c.op, c.remote, c.atomic.operand, c.atomic.compare, c.atomic.result, nullptr, c.width), c);
      case Command::Kind::prepared: return request(c);
      case Command::Kind::write_notify: break;
    }
    ADD_FAILURE() << "no such command";
    return Issued::done;
  }

 private:
  enum State : int { free, taken, waiting, looked_at };
  struct Request {
    std::atomic<int> state{free};
    PendingReply pending;
    Command command;
  };

  static Issued finish(Post post, const Command& c) noexcept {
    if (post == Post::again) return Issued::again;
    c.on_complete.fn(c.on_complete.context, Status::ok);
    return Issued::done;
  }

  Issued request(const Command& c) noexcept {
    for (Request& r : requests_) {
      int expected = free;
      if (!r.state.compare_exchange_strong(expected, taken, std::memory_order_acquire)) continue;
      const Add payload{c.remote.offset, c.transfer.value};
      r.command = c;
      const Post post = transport_.request(c.remote.rank, kAdd, as_payload(payload), r.pending);
      r.state.store(post == Post::again ? free : waiting, std::memory_order_release);
      return post == Post::again ? Issued::again : Issued::done;
    }
    return Issued::again;
  }

  bool poll_requests() noexcept {
    bool any = false;
    for (Request& r : requests_) {
      int expected = waiting;
      if (!r.state.compare_exchange_strong(expected, looked_at, std::memory_order_acquire)) continue;
      if (!transport_.test(r.pending, answers[r.command.record])) {
        r.state.store(waiting, std::memory_order_release);
        continue;
      }
      const Callback done = r.command.on_complete;
      r.state.store(free, std::memory_order_release);
      done.fn(done.context, Status::ok);
      any = true;
    }
    return any;
  }

  Transport& transport_;
  std::byte* memory_;
  std::array<Request, 24> requests_;
};

inline Command make_add(std::uint32_t peer, std::uint64_t offset, std::uint64_t value, std::uint32_t record, Callback done) {
  Command c{};
  c.kind = Command::Kind::prepared;
  c.record = record;
  c.remote = {Rank{peer}, kRegion, offset};
  c.on_complete = done;
  c.transfer.value = value;
  return c;
}

inline Command make_atomic(AtomicOp op, std::uint32_t peer, std::uint64_t offset, std::uint64_t operand, std::uint64_t* result, Callback done) {
  Command c{};
  c.kind = Command::Kind::atomic;
  c.op = op;
  c.width = Width::eight;
  c.remote = {Rank{peer}, kRegion, offset};
  c.on_complete = done;
  c.atomic = {.operand = operand, .compare = 0, .result = result};
  return c;
}

inline Command make_transfer(Command::Kind kind, std::uint32_t peer, std::uint64_t remote, std::uint64_t local, std::uint64_t bytes, Callback done) {
  Command c{};
  c.kind = kind;
  c.remote = {Rank{peer}, kRegion, remote};
  c.on_complete = done;
  c.transfer = {.local = {kRegion, local}, .bytes = bytes, .flag_offset = 0, .value = 0};
  return c;
}

}  // namespace kasane::comm::test
