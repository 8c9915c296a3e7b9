// SPDX-License-Identifier: Apache-2.0
// An atomic of the contract executed by this CPU, on mapped memory: by the poster within a host, by the owner
// for messages that request it.
// Thread safety: as the CPU's atomics. seq_cst throughout: the protocols above order a store to one word
// before a load of another.
#pragma once

#include <atomic>

#include "comm/transport.h"

namespace kasane::comm {

template <class Word>
[[gnu::always_inline]] inline Word cpu_atomic_word(AtomicOp op, Word* at, Word operand,
                                                   Word compare) noexcept {
  std::atomic_ref<Word> word(*at);
  // seq_cst, all: the protocols above order a store to one word before a load of another.
  switch (op) {
    case AtomicOp::fetch_add: return word.fetch_add(operand, std::memory_order_seq_cst);
    case AtomicOp::fetch_and: return word.fetch_and(operand, std::memory_order_seq_cst);
    case AtomicOp::fetch_or: return word.fetch_or(operand, std::memory_order_seq_cst);
    case AtomicOp::fetch_xor: return word.fetch_xor(operand, std::memory_order_seq_cst);
    // seq_cst: a store to one word before a load of another
    case AtomicOp::swap: return word.exchange(operand, std::memory_order_seq_cst);
    case AtomicOp::compare_swap: break;
  }
  // seq_cst: a store to one word before a load of another
  word.compare_exchange_strong(compare, operand, std::memory_order_seq_cst);
  return compare;
}

/// The old value, zero-extended. at is aligned to width. One instruction where op and width are constants of
/// the caller.
[[gnu::always_inline]] inline std::uint64_t cpu_atomic(AtomicOp op, Width width, std::byte* at,
                                                       std::uint64_t operand,
                                                       std::uint64_t compare) noexcept {
  if (width == Width::eight)
    return cpu_atomic_word(op, reinterpret_cast<std::uint64_t*>(at), operand, compare);
  return cpu_atomic_word(op, reinterpret_cast<std::uint32_t*>(at), static_cast<std::uint32_t>(operand),
                         static_cast<std::uint32_t>(compare));
}

}  // namespace kasane::comm
