// SPDX-License-Identifier: Apache-2.0
// Several outstanding one-sided operations of one thread: posted one after the other, awaited together.
// Thread safety: an object belongs to one thread. Nothing allocates. The memory that an operation reads or
// writes must live until await() has returned.
#pragma once

#include <atomic>
#include <cstdint>

#include "comm/blocking.h"

namespace kasane::comm {

class Batch {
 public:
  explicit Batch(Blocking& io) noexcept : io_(io) {
    done_.batch = this;
    done_.fn = [](Completion* c) noexcept {
      // release: what the operation brought is visible to the thread that sees the count.
      static_cast<Done*>(c)->batch->completed_.fetch_add(1, std::memory_order_release);
    };
  }
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;
  ~Batch() { await(); }

  void read(RemoteAddr from, void* to, std::size_t bytes) {
    io_.count_round_trip(from);
    post([&] { return io_.transport().read(from, to, bytes, &done_); });
  }
  void write(RemoteAddr to, const void* from, std::size_t bytes) {
    io_.count_round_trip(to);
    post([&] { return io_.transport().write(to, from, bytes, &done_); });
  }
  void atomic(AtomicOp op, RemoteAddr at, std::uint64_t operand, std::uint64_t compare,
              std::uint64_t* result) {
    io_.count_round_trip(at);
    post([&] { return io_.transport().atomic(op, at, operand, compare, result, &done_); });
  }

  /// Returns when everything posted has completed. More may be posted afterwards.
  void await() {
    // acquire: pairs with fn
    io_.waiter().until([this] { return completed_.load(std::memory_order_acquire) == posted_; });
  }
  [[nodiscard]] Blocking& io() const noexcept { return io_; }

 private:
  struct Done : Completion {
    Batch* batch = nullptr;
  };

  template <class F>
  void post(const F& operation) {
    Post result = Post::again;
    io_.waiter().until([&] {  // may be called again after it was true
      if (result == Post::again) result = operation();
      return result != Post::again;
    });
    if (result == Post::pending) ++posted_;
  }

  Blocking& io_;
  Done done_;
  std::uint32_t posted_ = 0;  // operations that did not complete inline
  std::atomic<std::uint32_t> completed_{0};
};

}  // namespace kasane::comm
