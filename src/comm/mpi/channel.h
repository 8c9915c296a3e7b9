// SPDX-License-Identifier: Apache-2.0
// The MPI side of the transport: what is on its way out and in. Posters fill a buffer and queue it; whoever gets the library's lock hands what is queued
// to the MPI, and looks again after it has let go, so that nothing is left lying by a poster that found the lock taken.
//
//   poster ── claim, fill, push, kick ──► queue ──┐                        ┌─► asks      posted receives ──► poll: collect()
//   reply(), wake(), handlers ──────► AnswerStack ┴─ drain (under the lock) ┴─► answers   posted receives ──► poll: collect()
//
// Thread safety: claim, buffer, push, kick: any thread. collect, settle, repost, start: the thread in the transport's gate.
// Invariants:
// - what a poster pushed before kick() is handed to the MPI by it, by the lock's holder after it, or, if the MPI was out of room, by a later poll;
// - a buffer has one owner: the pool, a poster, the queue, the MPI (sends_ or a posted receive), or the thread in the gate.
#pragma once

#include <array>
#include <atomic>
#include <vector>

#include "base/mpsc_ring.h"
#include "comm/mpi/answer_stack.h"
#include "comm/mpi/bulk.h"
#include "comm/index_pool.h"
#include "comm/mpi/library.h"
#include "comm/mpi/wire.h"

namespace kasane::comm::mpi {

/// What this rank owes and knows of a peer, besides its operations.
struct alignas(64) Peer {
  std::atomic<std::uint32_t> uncredited{0};   ///< sends to it that it has not told us it consumed
  std::atomic<std::uint32_t> consumed{0};     ///< sends from it that we have not told it that we consumed
  std::atomic<std::uint32_t> rings{0};        ///< doorbells of it to be rung, a bit each
  std::atomic<std::uint64_t> by_message_until_ns{0};   ///< it was outside the MPI when a window needed it there
  std::atomic<std::uint32_t> by_message_for_us{0};     ///< how long the next such pause is
  /// How far its loss has come; only forward.
  enum Loss : std::uint32_t { reachable, failed, reported };
  std::atomic<std::uint32_t> loss{reachable};
};

class Channel {
 public:
  static constexpr std::uint32_t kOut = 128;       ///< buffers for what posters send
  static constexpr std::uint32_t kAnswers = 64;    ///< buffers for answers
  static constexpr std::uint32_t kPosted = 32;     ///< receives posted ahead, for each of asks and answers
  static constexpr std::size_t kMostCollected = 16;        ///< messages that one collect() takes of each

  /// What drain has to know about a queued buffer; the bytes lie in it.
  struct Outgoing {
    std::uint32_t peer = 0;
    std::uint32_t bytes = 0;   ///< of the message; 0: there is none, the bulk is all
    Bulk bulk{};
  };
  struct Incoming {
    std::uint16_t buffer;
    std::uint32_t source;
    std::uint32_t bytes;
  };
  /// Messages that came and wait to be processed; there is room for every posted receive.
  class ReceivedMessages {
   public:
    [[nodiscard]] bool empty() const noexcept { return count_ == 0; }
    [[nodiscard]] const Incoming& front() const noexcept { return all_[first_]; }
    void push(const Incoming& i) noexcept { all_[(first_ + count_++) % kPosted] = i; }
    void pop() noexcept {
      first_ = (first_ + 1) % kPosted;
      --count_;
    }

   private:
    std::array<Incoming, kPosted> all_{};
    std::uint32_t first_ = 0, count_ = 0;
  };
  struct Ended {
    Bulk bulk;
    bool failed;
  };

  Channel(Library&, Communicator, std::vector<Peer>&, AnswerStack<>&);
  /// Posts the receives.
  Result<void> open();
  /// Takes back what is posted; waits a moment for what is on its way out. False if something still is: then the buffers must outlive the MPI.
  bool close() noexcept;
  /// The half of close() that waits for nobody. With the lock.
  void take_back_receives() noexcept;

  // ---- any thread
  [[nodiscard]] std::uint32_t claim() noexcept { return out_pool_.take(); }
  void release(std::uint32_t buffer) noexcept { (buffer < kOut ? out_pool_ : answer_pool_).put(buffer < kOut ? buffer : buffer - kOut); }
  [[nodiscard]] std::uint32_t claim_answer() noexcept {
    const std::uint32_t i = answer_pool_.take();
    return i == IndexPool<>::kNone ? i : i + kOut;
  }
  [[nodiscard]] std::byte* buffer(std::uint32_t index) noexcept { return out_[index].bytes; }
  [[nodiscard]] RequestHead& head(std::uint32_t index) noexcept { return *reinterpret_cast<RequestHead*>(out_[index].bytes); }
  [[nodiscard]] Outgoing& outgoing(std::uint32_t index) noexcept { return outgoing_[index]; }
  void push(std::uint32_t index) noexcept;
  /// See that what was pushed, or owed, goes out.
  void kick() noexcept;
  /// After unlock() of the library's lock by whoever did something else under it.
  void look_back() noexcept;
  /// Has some peer failed?
  [[nodiscard]] bool any_lost() const noexcept { return any_lost_.load(std::memory_order_acquire); }  // acquire: sees the peer's loss
  void lose(std::uint32_t peer) noexcept;
  [[nodiscard]] bool lost(std::uint32_t peer) const noexcept;

  // ---- the thread in the gate
  /// Lets the MPI progress and takes what has come. False if the lock was taken.
  bool collect(ReceivedMessages& requests, ReceivedMessages& answers, std::vector<Ended>& ended) noexcept;
  [[nodiscard]] const std::byte* request(std::uint16_t buffer) const noexcept { return requests_.buffers[buffer].bytes; }
  [[nodiscard]] const std::byte* answer(std::uint16_t buffer) const noexcept { return answers_.buffers[buffer].bytes; }
  void repost_request(std::uint16_t buffer) noexcept { requests_.idle.push_back(buffer); }
  void repost_answer(std::uint16_t buffer) noexcept { answers_.idle.push_back(buffer); }
  /// False if there are as many as there may be.
  bool start_at_owner(const Bulk& bulk) noexcept;
  /// Hands on what processing has left: receives to post, transfers to start, answers.
  void settle() noexcept;

 private:
  struct Receives {
    int tag;
    std::array<Buffer, kPosted> buffers;
    std::array<Request, kPosted> requests;
    std::array<std::uint16_t, kPosted> order;   ///< buffers in the order they were posted in, from first on
    std::uint32_t first = 0, posted = 0;
    std::vector<std::uint16_t> idle;             ///< to be posted again
  };
  struct PendingSend {
    Request request;
    std::uint16_t buffer;
  };
  static constexpr std::uint16_t kNoBuffer = 0xFFFF;

  bool try_lock_briefly() noexcept;
  // Under the lock:
  void drain() noexcept;
  bool drain_one(std::uint32_t index) noexcept;
  void send_now(std::uint32_t index, std::uint32_t peer, std::uint32_t bytes, int tag) noexcept;
  void drain_answers() noexcept;
  bool pack(std::uint32_t node) noexcept;
  void close_answer(std::uint32_t peer) noexcept;
  void post_idle(Receives&) noexcept;
  void take_arrivals(ReceivedMessages& requests, ReceivedMessages& answers) noexcept;
  void take(Receives&, const Arrival&, ReceivedMessages&) noexcept;
  void test_sends() noexcept;

  Library& library_;
  const Module& table_;
  Communicator channel_;
  std::vector<Peer>& peers_;
  AnswerStack<>& pending_answers_;
  std::vector<Buffer> out_;              // kOut, then kAnswers
  std::vector<Outgoing> outgoing_;
  IndexPool<> out_pool_{kOut}, answer_pool_{kAnswers};
  MpscRing<std::uint16_t> queue_{256};   // holds every buffer there is and what the ring may keep back, so it is never full
  HandOver<> hand_over_;
  std::atomic<bool> any_lost_{false};

  // Under the lock:
  Receives requests_, answers_;
  std::vector<PendingSend> sends_;
  BulkTable mine_, theirs_;
  std::uint32_t taken_answers_ = AnswerStack<>::kEnd;   ///< taken from the stack and not sent yet
  std::vector<std::uint16_t> open_;               ///< by peer: the answer message being filled, or kNoBuffer
  std::vector<std::uint32_t> opened_;             ///< the peers that have one
  // In the gate:
  std::vector<Bulk> starts_;
};
static_assert(Channel::kOut + Channel::kAnswers + 16 <= 256);

}  // namespace kasane::comm::mpi
