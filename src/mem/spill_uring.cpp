// SPDX-License-Identifier: Apache-2.0
#include "mem/spill_uring.h"

#include <liburing.h>
#include <sched.h>

#include <cerrno>
#include <functional>

#include "base/assert.h"
#include "base/renumbered.h"

namespace kasane::mem {
namespace {

class SpillUring final : public SpillEngine {
 public:
  ~SpillUring() override {
    if (open_) ::io_uring_queue_exit(&ring_);
  }

  /// 0 or an errno.
  int open(unsigned depth) {
    const int made = ::io_uring_queue_init(depth, &ring_, 0);
    open_ = made == 0;
    if (open_) ring_.ring_fd = ring_.enter_ring_fd = renumbered(ring_.ring_fd);
    return -made;
  }

  [[nodiscard]] bool reads_and_writes() {
    io_uring_probe* probe = ::io_uring_get_probe_ring(&ring_);
    if (probe == nullptr) return false;
    const bool both = io_uring_opcode_supported(probe, IORING_OP_READ) != 0 &&
                      io_uring_opcode_supported(probe, IORING_OP_WRITE) != 0;
    ::io_uring_free_probe(probe);
    return both;
  }

  /// Sends one empty request: a filter may allow the ring and refuse its use. 0 or an errno.
  int round_trip() {
    io_uring_prep_nop(::io_uring_get_sqe(&ring_));
    const int sent = ::io_uring_submit_and_wait(&ring_, 1);
    if (sent < 0) return -sent;
    io_uring_cqe* cqe = nullptr;
    if (::io_uring_peek_cqe(&ring_, &cqe) == 0) io_uring_cqe_seen(&ring_, cqe);
    return 0;
  }

  bool register_memory(std::span<std::byte> memory) noexcept override {
    // Refused where this user may not lock so much memory (ulimit -l).
    const iovec all{memory.data(), memory.size()};
    if (::io_uring_register_buffers(&ring_, &all, 1) != 0) return false;
    registered_ = memory;
    return true;
  }

  void start(std::uint32_t slot, const SpillTransfer& t) noexcept override {
    io_uring_sqe* sqe = ::io_uring_get_sqe(&ring_);
    KASANE_CHECK(sqe != nullptr, "more transfers started than the ring is deep");
    const bool registered = std::less_equal<>()(registered_.data(), t.memory) &&
                            std::less<>()(t.memory, registered_.data() + registered_.size());
    if (t.op == SpillOp::read && registered)
      io_uring_prep_read_fixed(sqe, t.fd, t.memory, t.bytes, t.offset, 0);
    else if (t.op == SpillOp::read)
      io_uring_prep_read(sqe, t.fd, t.memory, t.bytes, t.offset);
    else
      io_uring_prep_write(sqe, t.fd, t.memory, t.bytes, t.offset);
    io_uring_sqe_set_data64(sqe, slot);
  }

  void flush() noexcept override {
    while (io_uring_sq_ready(&ring_) != 0) {
      const int sent = ::io_uring_submit(&ring_);
      if (sent >= 0) continue;
      // The kernel is short of memory for requests; those under way will give some back.
      KASANE_CHECK(sent == -EAGAIN || sent == -EBUSY || sent == -EINTR,
                   "io_uring_enter refuses what it took before");
      ::sched_yield();
    }
  }

  unsigned reap(std::span<SpillResult> results) noexcept override {
    unsigned n = 0, head = 0;
    io_uring_cqe* cqe = nullptr;
    io_uring_for_each_cqe(&ring_, head, cqe) {
      if (n == results.size()) break;
      results[n++] = {static_cast<std::uint32_t>(cqe->user_data), cqe->res};
    }
    io_uring_cq_advance(&ring_, n);
    return n;
  }

  bool ready() noexcept override { return io_uring_cq_ready(&ring_) != 0; }

  void sleep() noexcept override {
    // Not io_uring_wait_cqe(): before Linux 5.11 it may submit, which only the submitting side may do.
    while (!ready())
      ::io_uring_enter(static_cast<unsigned>(ring_.ring_fd), 0, 1, IORING_ENTER_GETEVENTS, nullptr);
  }

 private:
  io_uring ring_{};
  std::span<std::byte> registered_;  // the kernel's buffer 0
  bool open_ = false;
};

tl::unexpected<Error> refused(int error) {
  const char* why = error == ENOSYS ? "the kernel has no io_uring"
                    : error == EPERM
                        ? "the kernel refuses io_uring (kernel.io_uring_disabled, or a seccomp filter)"
                        : "io_uring cannot be set up";
  return fail_errno(Errc::unsupported, why, error);
}

}  // namespace

Result<std::unique_ptr<SpillEngine>> make_spill_uring(unsigned depth) {
  auto ring = std::make_unique<SpillUring>();
  if (const int error = ring->open(depth); error != 0) return refused(error);
  if (!ring->reads_and_writes())
    return fail(Errc::unsupported, "this kernel's io_uring has no plain reads and writes (Linux 5.6)");
  if (const int error = ring->round_trip(); error != 0) return refused(error);
  return ring;
}

}  // namespace kasane::mem
