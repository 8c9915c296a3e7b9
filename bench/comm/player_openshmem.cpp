// SPDX-License-Identifier: Apache-2.0
// Plays OpenSHMEM, with a context for each thread: put, fence, put for data and flag. Started by oshrun.
#include <shmem.h>

#include <deque>
#include <stdexcept>

#include "player_main.h"

namespace kasane::bench {
namespace {

class ShmemLane {
 public:
  ShmemLane(const Window& window, std::byte* base, int peer, unsigned lane)
      : window_(window), base_(base), peer_(peer), lane_(lane) {
    if (shmem_ctx_create(SHMEM_CTX_SERIALIZED, &context_) != 0) throw std::runtime_error("shmem_ctx_create");
  }
  [[nodiscard]] std::byte* source() const { return base_ + window_.source(lane_); }
  [[nodiscard]] const std::byte* arrived(bool together) const {
    return base_ + window_.data(lane_, together);
  }

  void pass(std::uint64_t bytes, bool together, std::uint64_t flag) {
    shmem_ctx_putmem(context_, base_ + window_.data(lane_, together), source(), bytes, peer_);
    shmem_ctx_fence(context_);  // the data before the flag
    shmem_ctx_uint64_p(context_, word(window_.flag(lane_, together)), flag, peer_);
  }
  void await(std::uint64_t, bool together, std::uint64_t flag, Patience patience) {
    std::atomic_ref<std::uint64_t> here(*word(window_.flag(lane_, together)));
    // acquire: the data after it
    for (unsigned looks = 1; here.load(std::memory_order_acquire) != flag; ++looks) {
      if (looks % kLooksBetweenProgress == 0) shmem_ctx_quiet(context_);
      patience.look();
    }
  }

  void issue(Op op, std::uint64_t bytes, std::uint64_t i) {
    const std::uint64_t at = window_.spread(i, bytes);
    std::byte* there = base_ + window_.target(lane_) + at;
    if (op == Op::read)
      shmem_ctx_getmem_nbi(context_, source() + at, there, bytes, peer_);
    else if (op == Op::write)
      shmem_ctx_putmem_nbi(context_, there, source() + at, bytes, peer_);
    else
      (void)shmem_ctx_ulong_atomic_fetch_add(context_, word(window_.word(lane_)), 1, peer_);
    ++issued_;
  }
  [[nodiscard]] unsigned outstanding() const { return issued_; }
  void drain(unsigned, Patience) {
    shmem_ctx_quiet(context_);
    issued_ = 0;
  }
  void progress() { shmem_ctx_quiet(context_); }
  void close() { shmem_ctx_destroy(context_); }

 private:
  static constexpr unsigned kLooksBetweenProgress = 1024;
  [[nodiscard]] std::uint64_t* word(std::uint64_t at) const {
    return reinterpret_cast<std::uint64_t*>(base_ + at);
  }
  Window window_;
  std::byte* base_;
  int peer_;
  unsigned lane_;
  shmem_ctx_t context_{};
  unsigned issued_ = 0;
};

class ShmemSystem {
 public:
  ShmemSystem(unsigned rank, Control&, const Window& window) : rank_(rank) {
    auto* base = static_cast<std::byte*>(shmem_malloc(window.bytes()));
    if (base == nullptr) throw std::runtime_error("shmem_malloc: the symmetric heap is too small");
    std::memset(base, 0, window.bytes());
    for (unsigned t = 0; t < window.lanes(); ++t)
      lanes_.emplace_back(window, base, 1 - static_cast<int>(rank), t);
    shmem_barrier_all();
  }
  ~ShmemSystem() {
    for (auto& lane : lanes_) lane.close();
  }
  ShmemSystem(const ShmemSystem&) = delete;
  ShmemSystem& operator=(const ShmemSystem&) = delete;
  [[nodiscard]] unsigned rank() const { return rank_; }
  [[nodiscard]] static unsigned helpers() { return 0; }
  [[nodiscard]] static std::string refuse(const Order& order) {
    return order.task == Task::operate && (order.op == Op::request || order.op == Op::send) ? "no messages"
                                                                                            : "";
  }
  ShmemLane& lane(unsigned t) { return lanes_[t]; }
  void serve() {
    for (auto& lane : lanes_) lane.progress();
  }

 private:
  unsigned rank_;
  std::deque<ShmemLane> lanes_;
};

}  // namespace
}  // namespace kasane::bench

int main() {
  int level = 0;
  if (shmem_init_thread(SHMEM_THREAD_MULTIPLE, &level) != 0 || level != SHMEM_THREAD_MULTIPLE ||
      shmem_n_pes() != 2) {
    std::fprintf(stderr, "openshmem player: wants SHMEM_THREAD_MULTIPLE and two PEs (has level %d)\n", level);
    shmem_global_exit(1);
  }
  const int status = kasane::bench::player_main<kasane::bench::ShmemSystem>(
      "openshmem", static_cast<unsigned>(shmem_my_pe()));
  shmem_finalize();
  return status;
}
