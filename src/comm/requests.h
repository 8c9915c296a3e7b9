// SPDX-License-Identifier: Apache-2.0
// Several outstanding requests of one thread. Answers are taken as they come, also while a further request
// waits to be sent: so no thread holds reply slots while it waits for one.
// Thread safety: an object belongs to one thread. Nothing allocates.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "comm/blocking.h"

namespace kasane::comm {

/// Where an answer goes. Each field is set before await() returns, unless null.
struct AnswerPlace {
  std::uint64_t* value = nullptr;
  std::span<std::byte> into{};     ///< for the bytes that the answer brings
  std::size_t* brought = nullptr;  ///< how many these were
};

class Requests {
 public:
  /// doorbell_delay_ns: of each (PendingReply).
  explicit Requests(Blocking& io, std::uint32_t doorbell_delay_ns = 0) noexcept
      : io_(io), doorbell_delay_ns_(doorbell_delay_ns) {}
  Requests(const Requests&) = delete;
  Requests& operator=(const Requests&) = delete;
  ~Requests() { await(); }

  /// Sends one more request, once there is room.
  void post(Rank to, HandlerId handler, std::span<const std::byte> payload, const AnswerPlace& answer = {}) {
    bool posted = false;  // the predicate may be called again after it was true
    io_.waiter().until([&] {
      if (posted) return true;
      collect();
      for (Posted& p : posted_) {
        if (p.taken) continue;
        p.pending = PendingReply{.doorbell_delay_ns = doorbell_delay_ns_, .into = answer.into};
        posted = p.taken = io_.transport().request(to, handler, payload, p.pending) != Post::again;
        p.answer = answer;
        posted_count_ += posted ? 1 : 0;
        return posted;
      }
      return false;
    });
  }
  /// Returns when every answer has come.
  void await() {
    io_.waiter().until([this] {
      collect();
      return posted_count_ == 0;
    });
  }

 private:
  static constexpr std::size_t kAtOnce = 32;
  struct Posted {
    PendingReply pending;
    AnswerPlace answer;
    bool taken = false;
  };

  void collect() {
    if (posted_count_ == 0) return;
    for (Posted& p : posted_) {
      std::uint64_t value = 0;
      if (!p.taken || !io_.transport().test(p.pending, &value)) continue;
      p.taken = false;
      --posted_count_;
      if (p.answer.value != nullptr) *p.answer.value = value;
      if (p.answer.brought != nullptr) *p.answer.brought = p.pending.brought;
    }
  }

  Blocking& io_;
  const std::uint32_t doorbell_delay_ns_;
  std::array<Posted, kAtOnce> posted_{};
  std::size_t posted_count_ = 0;
};

/// post(requests, i, answer) for each of the answers; those that are `again` are asked for again. What needs
/// no request sets its answer itself. At most as many at the same time as a Requests has room for.
template <class Post>
void request_each(Blocking& io, std::span<std::uint64_t> answers, std::uint64_t again, const Post& post) {
  std::fill(answers.begin(), answers.end(), again);
  for (;; io.waiter().pause()) {
    {
      Requests requests(io);
      for (std::size_t i = 0; i < answers.size(); ++i)
        if (answers[i] == again) post(requests, i, answers[i]);
    }
    if (std::find(answers.begin(), answers.end(), again) == answers.end()) return;
  }
}

/// The request to every rank, the caller's included, at the same time; those that answer `again` are asked
/// again. answered(rank, answer) for each rank's last answer.
template <class Answered>
void request_all(Blocking& io, HandlerId handler, std::span<const std::byte> payload, std::uint64_t again,
                 Answered&& answered) {
  constexpr std::uint32_t kTogether = 64;
  const std::uint32_t ranks = io.transport().ranks();
  for (std::uint32_t first = 0; first < ranks; first += kTogether) {
    const std::uint32_t n = std::min(kTogether, ranks - first);
    std::array<std::uint64_t, kTogether> answers;
    request_each(io, {answers.data(), n}, again,
                 [&](Requests& requests, std::size_t i, std::uint64_t& answer) {
                   requests.post(Rank{first + static_cast<std::uint32_t>(i)}, handler, payload, {&answer});
                 });
    for (std::uint32_t i = 0; i < n; ++i) answered(Rank{first + i}, answers[i]);
  }
}

}  // namespace kasane::comm
