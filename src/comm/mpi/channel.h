// SPDX-License-Identifier: Apache-2.0
// The MPI side of the transport: messages to be sent and messages received. A posting thread fills a buffer
// and queues it. The thread that gets the library's lock gives what is queued to the MPI, and looks at the
// queue again after it has unlocked: so no buffer stays behind that was queued while the lock was taken.
//
//   poster ── claim, fill, push, kick ──► queue ──┐                         ┌─► requests
//   reply(), wake(), handlers ──────► AnswerStack ┴─ drain (under the lock) ┴─► answers
//
//   posted receives, for requests and for answers ──► poll: collect()
//
// Thread safety: claim, buffer, push, kick: any thread. collect, settle, repost, start: the thread in the
// transport's gate.
// Invariants:
// - what a thread pushed before kick() is given to the MPI by it, by the lock's holder after it, or, if the
//   MPI was out of room, by a later poll;
// - a buffer belongs to exactly one of: the pool, a posting thread, the queue, the MPI (sends_ or a posted
//   receive), the thread in the gate.
#pragma once

#include <array>
#include <atomic>
#include <vector>

#include "base/mpsc_ring.h"
#include "comm/index_pool.h"
#include "comm/mpi/answer_stack.h"
#include "comm/mpi/bulk.h"
#include "comm/mpi/library.h"
#include "comm/mpi/wire.h"

namespace kasane::comm::mpi {

/// What this rank knows of a peer, and must tell it, besides operations.
struct alignas(64) Peer {
  std::atomic<std::uint32_t> uncredited{0};  ///< sends to it whose credit it has not returned
  std::atomic<std::uint32_t> consumed{0};    ///< sends from it whose credit is to be returned
  std::atomic<std::uint32_t> rings{0};       ///< doorbells of it to be rung, a bit each
  /// until then messages replace windows: it was outside the MPI
  std::atomic<std::uint64_t> by_message_until_ns{0};
  std::atomic<std::uint32_t> by_message_for_us{0};  ///< length of the next such period
  /// States of a loss; they only move forward.
  enum Loss : std::uint32_t { reachable, failed, reported };
  std::atomic<std::uint32_t> loss{reachable};
};

class Channel {
 public:
  static constexpr std::uint32_t kOut = 128;     ///< buffers for requests
  static constexpr std::uint32_t kAnswers = 64;  ///< buffers for answers
  /// receives posted ahead, for each of requests and answers
  static constexpr std::uint32_t kPosted = 32;
  static constexpr std::size_t kMostCollected = 16;  ///< messages of each that one collect() takes

  /// What drain needs to know about a queued buffer; the message's bytes are in the buffer.
  struct Outgoing {
    std::uint32_t peer = 0;
    std::uint32_t bytes = 0;  ///< of the message; 0: there is no message, only the bulk transfer
    Bulk bulk{};
  };
  struct Incoming {
    std::uint16_t buffer;
    std::uint32_t source;
    std::uint32_t bytes;
  };
  /// Messages that were received and wait to be processed; there is room for every posted receive.
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
  /// Cancels the posted receives, and waits a moment for outstanding sends. False if some are still
  /// outstanding: then the buffers must outlive the MPI.
  bool close() noexcept;
  /// The half of close() that waits for no peer. Under the lock.
  void take_back_receives() noexcept;

  // ---- any thread
  [[nodiscard]] std::uint32_t claim() noexcept { return out_pool_.take(); }
  void release(std::uint32_t buffer) noexcept {
    (buffer < kOut ? out_pool_ : answer_pool_).put(buffer < kOut ? buffer : buffer - kOut);
  }
  [[nodiscard]] std::uint32_t claim_answer() noexcept {
    const std::uint32_t i = answer_pool_.take();
    return i == IndexPool<>::kNone ? i : i + kOut;
  }
  [[nodiscard]] std::byte* buffer(std::uint32_t index) noexcept { return out_[index].bytes; }
  [[nodiscard]] RequestHead& head(std::uint32_t index) noexcept {
    return *reinterpret_cast<RequestHead*>(out_[index].bytes);
  }
  [[nodiscard]] Outgoing& outgoing(std::uint32_t index) noexcept { return outgoing_[index]; }
  void push(std::uint32_t index) noexcept;
  /// Gives what was pushed to the MPI, or leaves that to the lock's holder.
  void kick() noexcept;
  /// To be called after the library's lock, which was held for something else, was unlocked.
  void look_back() noexcept;
  /// Has some peer failed?
  // acquire: sees the peer's loss.
  [[nodiscard]] bool any_lost() const noexcept { return any_lost_.load(std::memory_order_acquire); }
  void lose(std::uint32_t peer) noexcept;
  [[nodiscard]] bool lost(std::uint32_t peer) const noexcept;

  // ---- the thread in the gate
  /// Lets the MPI progress and takes what has arrived. False if the lock was taken.
  bool collect(ReceivedMessages& requests, ReceivedMessages& answers, std::vector<Ended>& ended) noexcept;
  [[nodiscard]] const std::byte* request(std::uint16_t buffer) const noexcept {
    return requests_.buffers[buffer].bytes;
  }
  [[nodiscard]] const std::byte* answer(std::uint16_t buffer) const noexcept {
    return answers_.buffers[buffer].bytes;
  }
  void repost_request(std::uint16_t buffer) noexcept { requests_.idle.push_back(buffer); }
  void repost_answer(std::uint16_t buffer) noexcept { answers_.idle.push_back(buffer); }
  /// False if the most transfers are outstanding.
  bool start_at_owner(const Bulk& bulk) noexcept;
  /// Posts receives, starts transfers and sends answers, as processing has left them.
  void settle() noexcept;

 private:
  struct Receives {
    int tag;
    std::array<Buffer, kPosted> buffers;
    std::array<Request, kPosted> requests;
    std::array<std::uint16_t, kPosted> order;  ///< buffers in the order they were posted, beginning at first
    std::uint32_t first = 0, posted = 0;
    std::vector<std::uint16_t> idle;  ///< to be posted again
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
  std::vector<Buffer> out_;  // kOut for requests, then kAnswers
  std::vector<Outgoing> outgoing_;
  IndexPool<> out_pool_{kOut}, answer_pool_{kAnswers};
  // never full: room for every buffer, and for cells that the ring keeps back
  MpscRing<std::uint16_t> queue_{256};
  HandOver<> hand_over_;
  std::atomic<bool> any_lost_{false};

  // Under the lock:
  Receives requests_, answers_;
  std::vector<PendingSend> sends_;
  BulkTable mine_, theirs_;
  std::uint32_t taken_answers_ = AnswerStack<>::kEnd;  ///< taken from the stack, not sent yet
  std::vector<std::uint16_t> open_;    ///< by peer: the answer message being filled, or kNoBuffer
  std::vector<std::uint32_t> opened_;  ///< the peers that have one
  // In the gate:
  std::vector<Bulk> starts_;
};
static_assert(Channel::kOut + Channel::kAnswers + 16 <= 256);

}  // namespace kasane::comm::mpi
