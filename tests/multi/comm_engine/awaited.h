// SPDX-License-Identifier: Apache-2.0
// The engine's operations as calls that return when they have completed. They wait through a Waiter: it
// polls, or parks the user-level thread and lets the worker run another one meanwhile.
//
//   Awaited io(engine, waiter);
//   KASANE_TRY(io.write({.to = {rank, region, 0}, .from = {region, 64}, .bytes = 8}));
//
// Errors: invalid_argument for refused arguments, peer_lost with the rank.
// Thread safety: an object belongs to one thread.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "comm/engine/completion.h"
#include "comm/engine/engine.h"
#include "comm/waiter.h"

namespace kasane::comm::test {

class Awaited {
 public:
  Awaited(Engine& engine, Waiter& waiter) noexcept : engine_(engine), waiter_(waiter) {}

  Result<void> read(const ReadParams& p) { return run(&Engine::try_read_async, p, p.from.rank); }
  Result<void> write(const WriteParams& p) { return run(&Engine::try_write_async, p, p.to.rank); }
  Result<void> write_notify(const WriteNotifyParams& p) {
    return run(&Engine::try_write_notify_async, p, p.to.rank);
  }
  Result<void> read(const StridedParams& p) { return run(&Engine::try_read_strided_async, p, p.remote.rank); }
  Result<void> write(const StridedParams& p) {
    return run(&Engine::try_write_strided_async, p, p.remote.rank);
  }
  Result<void> read(const VectorParams& p) { return run(&Engine::try_read_vector_async, p, p.rank); }
  Result<void> write(const VectorParams& p) { return run(&Engine::try_write_vector_async, p, p.rank); }
  Result<void> copy(const CopyParams& p) { return run(&Engine::try_copy_async, p, p.to.rank); }
  Result<void> accumulate(const AccumulateParams& p) {
    return run(&Engine::try_accumulate_async, p, p.to.rank);
  }
  Result<void> send(const SendParams& p) { return run(&Engine::try_send_async, p, p.to); }
  Result<void> flush(Rank rank = kNoRank) {
    return run(&Engine::try_flush_async, FlushParams{.rank = rank, .on_complete = {}}, rank);
  }
  /// Returns the old value; p.result is ignored.
  Result<std::uint64_t> atomic(AtomicParams p) {
    std::uint64_t old = 0;
    p.result = &old;
    KASANE_TRY(run(&Engine::try_atomic_async, p, p.at.rank));
    return old;
  }
  /// Returns the answer; p.answer is ignored.
  Result<std::uint64_t> request(RequestParams p) {
    std::uint64_t answer = 0;
    p.answer = &answer;
    KASANE_TRY(run(&Engine::try_request_async, p, p.to));
    return answer;
  }

 private:
  template <class Params>
  Result<void> run(bool (Engine::*post)(const Params&) noexcept, Params p, Rank peer) {
    Flag done;
    p.on_complete = done.callback();
    // A waiter may call the predicate again after it was true; the operation must not be posted twice.
    bool accepted = false;
    waiter_.until([&] { return accepted || (accepted = (engine_.*post)(p)); });
    const Status status = done.wait(waiter_);
    if (status == Status::ok) [[likely]]
      return {};
    if (status == Status::refused)
      return fail(Errc::invalid_argument, "refused: " + Engine::explain_refusal());
    return fail(Errc::peer_lost, "rank " + std::to_string(raw(peer)) + " is lost");
  }

  Engine& engine_;
  Waiter& waiter_;
};

}  // namespace kasane::comm::test
