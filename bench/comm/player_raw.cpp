// SPDX-License-Identifier: Apache-2.0
// Plays raw shared memory: loads, stores and memcpy on memory that both processes map. The limit for all
// systems on one host.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <system_error>

#include "player_main.h"

namespace kasane::bench {
namespace {

class RawLane {
 public:
  RawLane(const Window& window, std::byte* mine, std::byte* theirs, unsigned lane)
      : window_(window), mine_(mine), theirs_(theirs), lane_(lane) {}

  [[nodiscard]] std::byte* source() const { return mine_ + window_.source(lane_); }
  [[nodiscard]] const std::byte* arrived(bool together) const {
    return mine_ + window_.data(lane_, together);
  }

  void pass(std::uint64_t bytes, bool together, std::uint64_t flag) {
    std::memcpy(theirs_ + window_.data(lane_, together), source(), bytes);
    // the data before it
    word(theirs_, window_.flag(lane_, together)).store(flag, std::memory_order_release);
  }
  void await(std::uint64_t, bool together, std::uint64_t flag, Patience patience) {
    const auto here = word(mine_, window_.flag(lane_, together));
    while (here.load(std::memory_order_acquire) != flag) patience.look();  // the data after it
  }

  void issue(Op op, std::uint64_t bytes, std::uint64_t i) {
    const std::uint64_t at = window_.spread(i, bytes);
    std::byte* there = theirs_ + window_.target(lane_) + at;
    std::byte* here = source() + at;
    if (op == Op::atomic) {
      word(theirs_, window_.word(lane_)).fetch_add(1, std::memory_order_seq_cst);
    } else if (bytes == 8) {
      std::memcpy(op == Op::read ? here : there, op == Op::read ? there : here, 8);
    } else {
      std::memcpy(op == Op::read ? here : there, op == Op::read ? there : here, bytes);
    }
    asm volatile("" ::: "memory");  // each one happens
  }
  [[nodiscard]] unsigned outstanding() const { return 0; }
  void drain(unsigned, Patience) {}

 private:
  static std::atomic_ref<std::uint64_t> word(std::byte* base, std::uint64_t at) {
    return std::atomic_ref<std::uint64_t>(*reinterpret_cast<std::uint64_t*>(base + at));
  }
  Window window_;
  std::byte *mine_, *theirs_;
  unsigned lane_;
};

class RawSystem {
 public:
  RawSystem(unsigned rank, Control& control, const Window& window) : rank_(rank) {
    std::byte* mine = map(::memfd_create("kasane-bench", MFD_CLOEXEC), window.bytes(), true);
    std::byte* theirs =
        map(::open(control.exchange(path_).c_str(), O_RDWR | O_CLOEXEC), window.bytes(), false);
    for (unsigned t = 0; t < window.lanes(); ++t) lanes_.emplace_back(window, mine, theirs, t);
  }
  [[nodiscard]] unsigned rank() const { return rank_; }
  [[nodiscard]] static unsigned helpers() { return 0; }
  [[nodiscard]] static std::string refuse(const Order& order) {
    return order.task == Task::operate && (order.op == Op::request || order.op == Op::send) ? "no messages"
                                                                                            : "";
  }
  RawLane& lane(unsigned t) { return lanes_[t]; }
  void serve() {}

 private:
  std::byte* map(int fd, std::uint64_t bytes, bool fresh) {
    void* p = MAP_FAILED;
    if (fd >= 0 && (!fresh || ::ftruncate(fd, static_cast<off_t>(bytes)) == 0)) {
      p = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    }
    if (p == MAP_FAILED)
      throw std::system_error(errno, std::generic_category(), "shared memory for the raw player");
    path_ = "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(fd);
    return static_cast<std::byte*>(p);
  }
  unsigned rank_;
  std::string path_;
  std::vector<RawLane> lanes_;
};

}  // namespace
}  // namespace kasane::bench

int main() { return kasane::bench::player_main<kasane::bench::RawSystem>("raw"); }
