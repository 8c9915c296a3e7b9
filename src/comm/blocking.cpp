// SPDX-License-Identifier: Apache-2.0
// Blocking: post until accepted, then await the completion. Each predicate given to the waiter may be called
// again after it was true, so each remembers that it has posted.
#include "comm/blocking.h"

#include "comm/batch.h"

namespace kasane::comm {
namespace {

/// Calls post until it is accepted.
template <class F>
void until_accepted(Waiter& waiter, const F& post) {
  Post result = Post::again;
  waiter.until([&] {
    if (result == Post::again) result = post();
    return result != Post::again;
  });
}

std::uint64_t rmw(Blocking& io, AtomicOp op, RemoteAddr at, std::uint64_t operand,
                  std::uint64_t compare = 0) {
  std::uint64_t old = 0;
  Batch(io).atomic(op, at, operand, compare, &old);  // awaited by its destructor
  return old;
}

}  // namespace

void Blocking::read(RemoteAddr from, void* to, std::size_t bytes) { Batch(*this).read(from, to, bytes); }

void Blocking::write(RemoteAddr to, const void* from, std::size_t bytes) {
  Batch(*this).write(to, from, bytes);
}

// Adds 0: the contract has no atomic load, and a plain read may be torn.
std::uint64_t Blocking::load(RemoteAddr at) { return rmw(*this, AtomicOp::fetch_add, at, 0); }

void Blocking::store(RemoteAddr at, std::uint64_t value) { rmw(*this, AtomicOp::swap, at, value); }

std::uint64_t Blocking::fetch_add(RemoteAddr at, std::uint64_t operand) {
  return rmw(*this, AtomicOp::fetch_add, at, operand);
}

std::uint64_t Blocking::fetch_and(RemoteAddr at, std::uint64_t operand) {
  return rmw(*this, AtomicOp::fetch_and, at, operand);
}

std::uint64_t Blocking::fetch_or(RemoteAddr at, std::uint64_t operand) {
  return rmw(*this, AtomicOp::fetch_or, at, operand);
}

std::uint64_t Blocking::swap(RemoteAddr at, std::uint64_t operand) {
  return rmw(*this, AtomicOp::swap, at, operand);
}

std::uint64_t Blocking::compare_swap(RemoteAddr at, std::uint64_t expected, std::uint64_t desired) {
  return rmw(*this, AtomicOp::compare_swap, at, desired, expected);
}

void Blocking::send(Rank to, HandlerId handler, std::span<const std::byte> payload) {
  until_accepted(waiter_, [&] { return transport_.send(to, handler, payload); });
}

std::uint64_t Blocking::request(Rank to, HandlerId handler, std::span<const std::byte> payload,
                                std::uint32_t doorbell_delay_ns) {
  PendingReply pending{.doorbell_delay_ns = doorbell_delay_ns};
  until_accepted(waiter_, [&] { return transport_.request(to, handler, payload, pending); });
  std::uint64_t value = 0;
  bool answered = false;
  waiter_.until([&] {
    if (!answered) answered = transport_.test(pending, &value);
    return answered;
  });
  return value;
}

}  // namespace kasane::comm
