// SPDX-License-Identifier: Apache-2.0
// A player that misbehaves as it is told to, so that the harness can be seen to notice: it loses data, hangs,
// or dies. It has no memory in common with its other rank: messages through the harness's exchange would be
// too slow, so each rank believes what it wants.
#include <chrono>
#include <cstdlib>
#include <stdexcept>

#include "comm/player_main.h"

namespace kasane::bench {
namespace {

std::string manner;

class BadLane {
 public:
  explicit BadLane(const Window& window) : memory_(window.area()) {}
  [[nodiscard]] std::byte* source() { return memory_.data(); }
  [[nodiscard]] const std::byte* arrived(bool) const {
    return memory_.data();
  }  // what we sent, not what the peer did
  void pass(std::uint64_t, bool, std::uint64_t) {}
  void await(std::uint64_t, bool, std::uint64_t, Patience) {
    if (manner == "dies") ::_exit(3);
    while (manner == "hangs") std::this_thread::sleep_for(std::chrono::seconds(1));
  }
  void issue(Op, std::uint64_t, std::uint64_t) {}
  [[nodiscard]] unsigned outstanding() const { return 0; }
  void drain(unsigned, Patience) {}

 private:
  std::vector<std::byte> memory_;
};

class BadSystem {
 public:
  BadSystem(unsigned rank, Control&, const Window& window) : rank_(rank), lane_(window) {
    if (manner == "refuses to start") throw std::runtime_error("not today");
  }
  [[nodiscard]] unsigned rank() const { return rank_; }
  [[nodiscard]] static unsigned helpers() { return 0; }
  [[nodiscard]] static std::string refuse(const Order& order) {
    return order.task == Task::operate ? "nothing of that kind" : "";
  }
  BadLane& lane(unsigned) { return lane_; }
  void serve() {}

 private:
  unsigned rank_;
  BadLane lane_;
};

}  // namespace
}  // namespace kasane::bench

int main(int argc, char** argv) {
  if (argc > 1) kasane::bench::manner = argv[1];
  return kasane::bench::player_main<kasane::bench::BadSystem>("bad");
}
