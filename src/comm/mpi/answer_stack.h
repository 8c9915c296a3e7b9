// SPDX-License-Identifier: Apache-2.0
// What this rank must send to its peers: answers to their requests and operations, credits, rings. Every
// answer has a node of its own, made with the transport, because the requester's slot has at most one answer
// outstanding: so answering never fails and never allocates.
//
//   reply(), handlers, wake() ── push ──► stack ── take_all ──► the lock's holder packs them into messages
//
// Thread safety: open(), reply(), operation(), flow_control() from any thread, also a fault handler's;
// take_all() by one thread at a time.
// Invariant: a node is in the stack, or with the thread that took it, at most once.
#pragma once

#include <cstdint>
#include <memory>

#include "base/assert.h"
#include "base/atomics.h"

namespace kasane::comm::mpi {

template <class Atomics = StdAtomics>
class AnswerStack {
 public:
  static constexpr std::uint32_t kEnd = 0xFFFFFFFFu;

  struct Node {
    std::uint64_t value = 0;
    std::uint32_t next = kEnd;
    /// a reply's: requested and not answered yet; a peer's flow control: in the stack already
    typename Atomics::template Atomic<bool> open{false};
  };
  /// What a node says. slot: of the requester.
  enum class About : std::uint8_t { reply, operation, flow_control };
  struct Meaning {
    std::uint32_t peer;
    About about;
    std::uint16_t slot;
  };

  AnswerStack(std::uint32_t peers, std::uint32_t slots)
      : slots_(slots), row_(2 * slots + 1), nodes_(new Node[std::size_t{peers} * row_]) {}

  /// A request came: one reply must follow.
  void open(std::uint32_t peer, std::uint16_t slot) noexcept {
    // relaxed: the handler, which runs later, passes on the token that leads to reply().
    nodes_[reply_node(peer, slot)].open.store(true, std::memory_order_relaxed);
  }
  void reply(std::uint32_t peer, std::uint16_t slot, std::uint64_t value) noexcept {
    const std::uint32_t id = reply_node(peer, slot);
    // relaxed: see open(); the exchange only detects a second answer.
    KASANE_CHECK(nodes_[id].open.exchange(false, std::memory_order_relaxed), "a request was answered twice");
    push(id, value);
  }
  void operation(std::uint32_t peer, std::uint16_t slot, std::uint64_t value) noexcept {
    push(peer * row_ + slots_ + slot, value);
  }
  /// The caller has changed the peer's credits or rings before: they are to be sent.
  void flow_control(std::uint32_t peer) noexcept {
    const std::uint32_t id = peer * row_ + 2 * slots_;
    // seq_cst: either this finds the node taken out, or the thread that takes it out (take_flow_control) sees
    // what the caller has set.
    if (!nodes_[id].open.exchange(true, std::memory_order_seq_cst)) push(id, 0);
  }
  /// To be called before credits and rings are read.
  void take_flow_control(std::uint32_t peer) noexcept {
    // seq_cst: see flow_control()
    nodes_[peer * row_ + 2 * slots_].open.store(false, std::memory_order_seq_cst);
  }

  // seq_cst: as in HandOver::look_back().
  [[nodiscard]] bool empty() const noexcept { return head_.load(std::memory_order_seq_cst) == kEnd; }
  /// The nodes pushed so far, oldest first, as a list linked by next.
  [[nodiscard]] std::uint32_t take_all() noexcept {
    std::uint32_t newest = head_.exchange(kEnd, std::memory_order_acquire);  // acquire: pairs with push()
    std::uint32_t oldest = kEnd;
    while (newest != kEnd) {
      const std::uint32_t id = newest;
      newest = nodes_[id].next;
      nodes_[id].next = oldest;
      oldest = id;
    }
    return oldest;
  }
  [[nodiscard]] Node& node(std::uint32_t id) noexcept { return nodes_[id]; }
  [[nodiscard]] Meaning meaning(std::uint32_t id) const noexcept {
    const std::uint32_t peer = id / row_, at = id % row_;
    if (at == 2 * slots_) return {peer, About::flow_control, 0};
    return {peer, at < slots_ ? About::reply : About::operation, static_cast<std::uint16_t>(at % slots_)};
  }

 private:
  [[nodiscard]] std::uint32_t reply_node(std::uint32_t peer, std::uint16_t slot) const noexcept {
    KASANE_CHECK_OP(slot, <, slots_);
    return peer * row_ + slot;
  }
  // Nodes are only taken all at once, so a node that is pushed again meanwhile does no harm (no ABA).
  void push(std::uint32_t id, std::uint64_t value) noexcept {
    Node& n = nodes_[id];
    n.value = value;
    std::uint32_t head = head_.load(std::memory_order_relaxed);  // relaxed: a guess, the compare-swap decides
    do {
      n.next = head;
      // release: publishes the node, and what the handler wrote before it answered.
    } while (!head_.compare_exchange_strong(head, id, std::memory_order_release, std::memory_order_relaxed));
  }

  std::uint32_t slots_, row_;
  std::unique_ptr<Node[]> nodes_;
  alignas(64) typename Atomics::template Atomic<std::uint32_t> head_{kEnd};
};

}  // namespace kasane::comm::mpi
