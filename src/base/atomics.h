// SPDX-License-Identifier: Apache-2.0
// Which atomics a lock-free structure is built from. The structures of base take this policy as a template parameter:
// the program uses StdAtomics; the tests use one whose every operation is a point where a scheduler may switch threads
// (tests/support/interleave.h), so that a structure is run under every interleaving of a small program.
//
// A policy has one member, template <class T> Atomic, with the part of std::atomic's interface that is used:
// load, store, exchange, compare_exchange_strong, fetch_add, each with explicit memory orders. There is no fence: all
// orders are those of operations, which the thread sanitizer understands.
#pragma once

#include <atomic>

namespace kasane {

struct StdAtomics {
  template <class T>
  using Atomic = std::atomic<T>;
};

}  // namespace kasane
