// SPDX-License-Identifier: Apache-2.0
// A job of three ranks in one process over shared memory or UCX's TCP, whose ranks 1 and 2 have service
// threads that can be held up, and an Issuer for rank 0 on bare transport operations: read, write and atomics
// (inline over shared memory), and a request that adds at its target and can be answered `again`.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <memory>
#include <thread>

#include "comm/blocking.h"
#include "comm/collectives/collectives.h"
#include "comm/collectives/over_transport.h"
#include "comm/command.h"
#include "comm/out_of_band.h"
#include "comm/shm/shm_transport.h"
#include "comm/ucx/ucx_transport.h"

namespace kasane::comm::test {

inline constexpr RegionId kRegion{1};
inline constexpr HandlerId kAdd{1};
inline constexpr std::size_t kRegionBytes = 1 << 16;

/// The payload of kAdd: the word at offset grows by value; the answer is what it was.
struct Add {
  std::uint64_t offset, value;
};

enum class Over { shm, ucx_tcp };

class ThreeRanks {
 public:
  static constexpr std::uint32_t kRanks = 3;

  explicit ThreeRanks(Over over = Over::shm) {
    auto job = create_job(kRanks, shm::job_bytes(kRanks));
    EXPECT_TRUE(job) << job.error().message;
    job_ = *job;
    std::array<std::thread, kRanks> attaching;
    for (std::uint32_t r = 0; r < kRanks; ++r) {
      job_.rank = Rank{r};
      ranks_[r].start(job_);
      attaching[r] = std::thread([this, r, over] { ranks_[r].join(over); });
    }
    for (auto& thread : attaching) thread.join();
    for (std::uint32_t r = 1; r < kRanks; ++r)
      ranks_[r].service = std::thread([this, r] { ranks_[r].serve(); });
  }
  ~ThreeRanks() {
    for (std::uint32_t r = 1; r < kRanks; ++r) ranks_[r].stop();
    std::array<std::thread, kRanks> closing;  // together: a network may want an answer of its peers
    for (std::uint32_t r = 0; r < kRanks; ++r)
      closing[r] = std::thread([this, r] { ranks_[r].network.reset(); });
    for (auto& thread : closing) thread.join();
    for (auto& rank : ranks_) rank.close();
    close_job(job_);
  }

  [[nodiscard]] Transport& transport() { return *ranks_[0].transport; }
  [[nodiscard]] std::byte* memory(std::uint32_t rank) { return ranks_[rank].memory; }
  [[nodiscard]] std::atomic_ref<std::uint64_t> word(std::uint32_t rank, std::size_t offset) {
    return std::atomic_ref<std::uint64_t>(*reinterpret_cast<std::uint64_t*>(memory(rank) + offset));
  }
  /// While held, the rank's service thread runs no message, so that its ring fills. Returns when the thread
  /// has seen it: it may have been about to look.
  void hold(std::uint32_t rank, bool held) {
    OneRank& r = ranks_[rank];
    r.held.store(held, std::memory_order_seq_cst);
    r.transport->wake(Rank{rank}, Doorbell::messages);
    while (r.rests.load(std::memory_order_seq_cst) != held) std::this_thread::yield();
  }

 private:
  struct OneRank {
    std::unique_ptr<Transport> host, network;
    Transport* transport = nullptr;  // host, or network
    Bells bells{};
    std::byte* memory = nullptr;
    int fd = -1;
    std::unique_ptr<PollWaiter> waiter;
    std::unique_ptr<Collectives> all;
    std::unique_ptr<OverTransport> exchange;
    std::thread service;
    std::atomic<bool> held{false}, rests{false}, stopping{false};

    void start(const Job& job) {
      auto created = shm::create(job);
      EXPECT_TRUE(created) << created.error().message;
      host = std::move(*created);
      fd = ::memfd_create("kasane-test", MFD_CLOEXEC);
      EXPECT_EQ(::ftruncate(fd, kRegionBytes), 0);
      memory =
          static_cast<std::byte*>(::mmap(nullptr, kRegionBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    }
    void join(Over over) {
      transport = over == Over::shm ? host.get() : join_network();
      transport->set_handler(kAdd, &add, this);
      EXPECT_TRUE(transport->attach(kRegion, fd, memory, kRegionBytes));
    }
    Transport* join_network() {
      waiter = std::make_unique<PollWaiter>(*host);
      all = std::make_unique<Collectives>(*host, *waiter);
      exchange = std::make_unique<OverTransport>(*host, *all);
      ucx::Options options;
      options.tls = "tcp,self";
      auto created = ucx::create(*exchange, bells, options);
      EXPECT_TRUE(created) << created.error().message;
      network = std::move(*created);
      return network.get();
    }
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
        rests.store(held.load(std::memory_order_seq_cst), std::memory_order_seq_cst);
        while (!rests.load(std::memory_order_seq_cst) && transport->progress()) {
          if (held.load(std::memory_order_seq_cst)) rests.store(true, std::memory_order_seq_cst);
        }
        transport->sleep(Doorbell::messages, seen, kNoNap);
      }
    }
    void stop() {
      stopping.store(true, std::memory_order_seq_cst);
      transport->wake(transport->rank(), Doorbell::messages);
      service.join();
    }
    void close() {
      exchange.reset();
      all.reset();
      host.reset();
      ::munmap(memory, kRegionBytes);
      ::close(fd);
    }
    static constexpr std::int64_t kNoNap = -1;
  };

  Job job_;
  std::array<OneRank, kRanks> ranks_;
};

/// Carries commands out on rank 0's transport. Kind::prepared is kAdd: at remote, transfer.value; the answer
/// goes to *answers[record], unless that is null.
class TestIssuer final : public Issuer {
 public:
  explicit TestIssuer(Transport& transport, std::byte* memory) : transport_(transport), memory_(memory) {
    transport_.set_poll_hook(
        [](void* self) noexcept { return static_cast<TestIssuer*>(self)->poll_requests(); }, this);
  }
  ~TestIssuer() { transport_.set_poll_hook(nullptr, nullptr); }
  TestIssuer(const TestIssuer&) = delete;
  TestIssuer& operator=(const TestIssuer&) = delete;

  std::array<std::uint64_t*, 256> answers{};

  Issued issue(const Command& c) noexcept override {
    Record* record = take(c);
    if (record == nullptr) return Issued::again;
    switch (post(c, *record)) {
      case Post::done: finish(*record); break;
      case Post::pending: break;
      case Post::again: record->state.store(free, std::memory_order_release); return Issued::again;
    }
    return Issued::done;
  }
  /// Once at most for a command; retries get the copy that was marked here.
  void hold(Command& c) noexcept override {
    EXPECT_EQ(c.epoch, Command::kUncounted);
    c.epoch = 0;
  }

 private:
  static constexpr std::size_t kRecords = 12;  // a peer
  enum State : int { free, taken, waiting };
  /// One outstanding operation. waiting: a request whose answer the poll hook looks for.
  struct Record : Completion {
    std::atomic<int> state{free};
    PendingReply pending;
    Command command;
  };

  Record* take(const Command& c) noexcept {
    // One pool a peer: with one for all, a peer that completes nothing would use up all records.
    for (std::size_t i = 0; i < kRecords; ++i) {
      Record& r = records_[raw(c.remote.rank) * kRecords + i];
      int expected = free;
      if (!r.state.compare_exchange_strong(expected, taken, std::memory_order_acquire)) continue;
      r.fn = [](Completion* done) noexcept { finish(static_cast<Record&>(*done)); };
      r.status = Status::ok;
      r.command = c;
      return &r;
    }
    return nullptr;
  }

  static void finish(Record& r) noexcept {
    const Callback done = r.command.on_complete;
    const Status status = r.status;
    r.state.store(free, std::memory_order_release);
    done.fn(done.context, status);
  }

  Post post(const Command& c, Record& r) noexcept {
    switch (c.kind) {
      case Command::Kind::read:
        return transport_.read(c.remote, memory_ + c.transfer.local.offset, c.transfer.bytes, &r);
      case Command::Kind::write:
        return transport_.write(c.remote, memory_ + c.transfer.local.offset, c.transfer.bytes, &r);
      case Command::Kind::atomic:
        return transport_.atomic(c.op, c.remote, c.atomic.operand, c.atomic.compare, c.atomic.result, &r,
                                 c.width);
      case Command::Kind::prepared: return request(c, r);
      case Command::Kind::write_notify: break;
    }
    ADD_FAILURE() << "no such command";
    return Post::done;
  }

  Post request(const Command& c, Record& r) noexcept {
    const Add payload{c.remote.offset, c.transfer.value};
    const std::uint32_t before = transport_.activity(Doorbell::messages);
    const Post sent = transport_.request(c.remote.rank, kAdd, as_payload(payload), r.pending);
    if (sent == Post::again) return sent;
    r.state.store(waiting, std::memory_order_seq_cst);
    // The answer may have come, and rung, and been looked for in vain, before we said that we wait for it.
    if (transport_.activity(Doorbell::messages) != before)
      transport_.wake(transport_.rank(), Doorbell::messages);
    return sent;
  }

  // One thread looks; a thread that comes meanwhile makes it look once more.
  bool poll_requests() noexcept {
    if (pollers_.fetch_add(1, std::memory_order_acq_rel) != 0) return false;
    bool any = false;
    int seen = 1;
    do {
      for (Record& r : records_) {
        if (r.state.load(std::memory_order_seq_cst) != waiting ||
            !transport_.test(r.pending, answers[r.command.record]))
          continue;
        finish(r);
        any = true;
      }
    } while (!leave(seen));
    return any;
  }
  bool leave(int& seen) noexcept {
    return pollers_.compare_exchange_strong(seen, 0, std::memory_order_acq_rel, std::memory_order_acquire);
  }

  Transport& transport_;
  std::byte* memory_;
  std::array<Record, kRecords * ThreeRanks::kRanks> records_;
  std::atomic<int> pollers_{0};
};

inline Command make_add(std::uint32_t peer, std::uint64_t offset, std::uint64_t value, std::uint32_t record,
                        Callback done) {
  Command c{};
  c.kind = Command::Kind::prepared;
  c.record = record;
  c.remote = {Rank{peer}, kRegion, offset};
  c.on_complete = done;
  c.transfer.value = value;
  return c;
}

inline Command make_atomic(AtomicOp op, std::uint32_t peer, std::uint64_t offset, std::uint64_t operand,
                           std::uint64_t* result, Callback done) {
  Command c{};
  c.kind = Command::Kind::atomic;
  c.op = op;
  c.width = Width::eight;
  c.remote = {Rank{peer}, kRegion, offset};
  c.on_complete = done;
  c.atomic = {.operand = operand, .compare = 0, .result = result};
  return c;
}

inline Command make_transfer(Command::Kind kind, std::uint32_t peer, std::uint64_t remote,
                             std::uint64_t local, std::uint64_t bytes, Callback done) {
  Command c{};
  c.kind = kind;
  c.remote = {Rank{peer}, kRegion, remote};
  c.on_complete = done;
  c.transfer = {.local = {kRegion, local}, .bytes = bytes, .flag_offset = 0, .value = 0};
  return c;
}

}  // namespace kasane::comm::test
