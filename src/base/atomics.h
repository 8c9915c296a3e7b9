// SPDX-License-Identifier: Apache-2.0
// The atomics of a lock-free structure, as a policy that the structures of base take as a template parameter.
// The program uses StdAtomics. The tests use a policy in which a scheduler may switch threads at every
// operation (tests/support/interleave.h), so that a structure runs under every interleaving of a small
// program.
//
// A policy has one member, template <class T> Atomic, with the part of std::atomic's interface that is used:
// load, store, exchange, compare_exchange_strong, fetch_add, each with explicit memory orders. There are no
// fences: all orders are those of operations, which the thread sanitizer understands.
#pragma once

#include <atomic>

namespace kasane {

struct StdAtomics {
  template <class T>
  using Atomic = std::atomic<T>;
};

}  // namespace kasane
