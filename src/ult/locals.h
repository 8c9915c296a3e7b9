// SPDX-License-Identifier: Apache-2.0
// What thread_local is for OS threads, for user-level threads: a few pointers a thread, which go where it
// goes. (A thread_local or a function static belongs to the OS thread or the process, so a thread that moves
// finds another's.)
//
// The values lie in the thread's control block, so get() is one load, or one remote load for a thread born on
// another rank. Keys are the job's: rank 0's threads region numbers them, and holds the destructors (code has
// one address on all ranks, rule 14).
//
// Thread safety: each thread its own values; create_key from any thread. Keys are never destroyed; there are
// kLocalKeys of them.
#pragma once

#include <cstdint>

namespace kasane::ult {

class Locals {
 public:
  /// A new key, for all threads of the job; their values start as null. When a thread ends, destructor (may
  /// be null) runs on it for each value that is not null, in the order of the keys; a value set by a
  /// destructor is dropped. Throws std::system_error (resource_unavailable_try_again) when all keys are in
  /// use.
  static std::uint32_t create_key(void (*destructor)(void*));
  /// The calling thread's value.
  [[nodiscard]] static void* get(std::uint32_t key);
  static void set(std::uint32_t key, void* value);

  /// The calling thread is at its end: destroys its values.
  static void destroy_all() noexcept;
};

}  // namespace kasane::ult
