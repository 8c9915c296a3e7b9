// SPDX-License-Identifier: Apache-2.0
// Several reads and writes of one thread under way at once: they cost the time of one trip.
// Thread safety: an object belongs to one thread. Nothing allocates. Buffers must stay until await() has returned.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "comm/blocking.h"

namespace kasane::comm {

class Transfers {
 public:
  explicit Transfers(Blocking& io) noexcept : io_(io) {}
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;
  ~Transfers() { await(); }

  void read(RemoteAddr from, void* to, std::size_t bytes) {
    post([&](Completion* c) { return io_.transport().read(from, to, bytes, c); });
  }
  void write(RemoteAddr to, const void* from, std::size_t bytes) {
    post([&](Completion* c) { return io_.transport().write(to, from, bytes, c); });
  }
  /// Returns when all have completed.
  void await() {
    io_.waiter().until([this] { return under_way() == 0; });
  }

 private:
  static constexpr std::size_t kAtOnce = 16;
  struct Slot : Completion {
    std::atomic<bool> taken{false};
    Slot() noexcept {
      fn = [](Completion* self) noexcept {
        // release: what the transfer brought is visible to who sees it over.
        static_cast<Slot*>(self)->taken.store(false, std::memory_order_release);
      };
    }
  };

  [[nodiscard]] std::size_t under_way() const noexcept {
    std::size_t n = 0;
    for (const Slot& slot : slots_) n += slot.taken.load(std::memory_order_acquire) ? 1 : 0;   // acquire: pairs with fn
    return n;
  }
  template <class F>
  void post(const F& start) {
    bool posted = false;   // the predicate may be called again after it was true
    io_.waiter().until([&] {
      if (posted) return true;
      for (Slot& slot : slots_) {
        if (slot.taken.load(std::memory_order_acquire)) continue;
        slot.taken.store(true, std::memory_order_relaxed);   // ours alone until it is posted
        const Post result = start(&slot);
        if (result != Post::pending) slot.taken.store(false, std::memory_order_relaxed);
        posted = result != Post::again;
        break;
      }
      return posted;
    });
  }

  Blocking& io_;
  std::array<Slot, kAtOnce> slots_;
};

}  // namespace kasane::comm
