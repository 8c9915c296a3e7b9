// SPDX-License-Identifier: Apache-2.0
// Records handed from many threads to a thread that takes them all at once. No ABA: no thread pops a single
// one. Thread safety: everything from any thread. A record is linked by its member `next`, and on one stack
// at a time.
#pragma once

#include <atomic>

namespace kasane::comm {

template <class Record>
class TakeAllStack {
 public:
  void push(Record* record) noexcept {
    Record* head = head_.load(std::memory_order_relaxed);  // relaxed: only compared
    do {
      record->next = head;
      // seq_cst: release for the record's content; and a thread that pushes and then looks at something else
      // must not look before it has pushed (flush).
    } while (
        !head_.compare_exchange_weak(head, record, std::memory_order_seq_cst, std::memory_order_relaxed));
  }
  /// Oldest first, linked by next.
  [[nodiscard]] Record* take_all() noexcept {
    if (empty()) return nullptr;
    // acquire: the records' contents; seq_cst: as in push()
    Record* newest = head_.exchange(nullptr, std::memory_order_seq_cst);
    Record* oldest = nullptr;
    while (newest != nullptr) {
      Record* below = newest->next;
      newest->next = oldest;
      oldest = newest;
      newest = below;
    }
    return oldest;
  }
  // seq_cst: the other half of a pusher's "push, then look".
  [[nodiscard]] bool empty() const noexcept { return head_.load(std::memory_order_seq_cst) == nullptr; }

 private:
  std::atomic<Record*> head_{nullptr};
};

}  // namespace kasane::comm
