// SPDX-License-Identifier: Apache-2.0
// What it costs two std::threads of one rank to hand a turn to each other by a condition variable. The same
// program without Kasane is the peer.
//   player-turns TURNS
// Prints one JSON object: the mean time of a turn in each of ten rounds, in µs.
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace {

struct Game {
  std::mutex mutex;
  std::condition_variable changed;
  int turn = 0, taken = 0;

  void play(int self, int turns) {
    for (int i = 0; i < turns; ++i) {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return turn == self; });
      turn = 1 - self;
      ++taken;
      changed.notify_one();
    }
  }
};

}  // namespace

int main(int argc, char** argv) {
  const int turns = argc > 1 ? std::atoi(argv[1]) : 1000;
  std::vector<double> us;
  bool verified = true;
  for (int round = 0; round <= 10; ++round) {
    const auto game = std::make_unique<Game>();
    const auto begin = std::chrono::steady_clock::now();
    std::thread other([&] { game->play(1, turns); });
    game->play(0, turns);
    other.join();
    const double passed =
        std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
    verified = verified && game->taken == 2 * turns;
    if (round > 0) us.push_back(passed / (2 * turns));  // the first one warms up
  }
  std::printf("{\"verified\": %s, \"us\": [", verified ? "true" : "false");
  for (std::size_t i = 0; i < us.size(); ++i) std::printf("%s%.3f", i == 0 ? "" : ", ", us[i]);
  std::puts("]}");
  return verified ? 0 : 1;
}
