// SPDX-License-Identifier: Apache-2.0
// What it costs two std::threads to hand a turn to each other by a condition variable, and to make a thread
// and to join it: of one rank, or, with --threads spread, of two. The same program without Kasane is the
// peer.
//   player-turns TURNS
// Prints one JSON object: the mean time of a turn, and of a thread, in each of ten rounds, in µs.
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

using Clock = std::chrono::steady_clock;
double us_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

void print(const char* name, const std::vector<double>& us) {
  std::printf(", \"%s\": [", name);
  for (std::size_t i = 0; i < us.size(); ++i) std::printf("%s%.3f", i == 0 ? "" : ", ", us[i]);
  std::printf("]");
}

}  // namespace

int main(int argc, char** argv) {
  const int turns = argc > 1 ? std::atoi(argv[1]) : 1000;
  std::vector<double> us, create_us;
  bool verified = true;
  for (int round = 0; round <= 10; ++round) {
    const auto game = std::make_unique<Game>();
    const auto begin = Clock::now();
    std::thread other([&] { game->play(1, turns); });
    game->play(0, turns);
    other.join();
    const double passed = us_since(begin);
    verified = verified && game->taken == 2 * turns;
    const auto begin_threads = Clock::now();
    const int threads = turns / 10;
    for (int i = 0; i < threads; ++i) std::thread([] {}).join();
    if (round == 0) continue;  // the first one warms up
    us.push_back(passed / (2 * turns));
    create_us.push_back(us_since(begin_threads) / threads);
  }
  std::printf("{\"verified\": %s", verified ? "true" : "false");
  print("us", us);
  print("create_us", create_us);
  std::puts("}");
  return verified ? 0 : 1;
}
