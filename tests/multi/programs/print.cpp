// SPDX-License-Identifier: Apache-2.0
// Prints from threads that move between ranks, in every way that libc and libstdc++ offer. print.py knows
// what has to come out.
#include <unistd.h>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <kasane/kasane.hpp>
#include <string>
#include <vector>

namespace {

constexpr int kLines = 60;

/// Moves the calling thread to a rank: i, modulo ranks.
class Places {
 public:
  Places() {
    for (unsigned r = 0; r < kasane_ranks(); ++r) words_.push_back(kasane_allocate_at(8, 8, r));
  }
  void go(int i) const { kasane::this_thread::move_near(words_[static_cast<unsigned>(i) % words_.size()]); }

 private:
  std::vector<void*> words_;
};

void print_a_line(int i) {
  switch (i % 8) {
    case 0: std::printf("line %d\n", i); break;
    case 1: std::cout << "line " << i << "\n"; break;
    case 2: std::puts(("line " + std::to_string(i)).c_str()); break;
    case 3: std::cout << "line " << i << std::endl; break;
    case 4: {
      const std::string text = "line " + std::to_string(i) + "\n";
      if (::write(1, text.data(), text.size()) < 0) std::abort();
      break;
    }
    case 5: std::fprintf(stdout, "line %d\n", i); break;
    case 6: std::fputs(("line " + std::to_string(i) + "\n").c_str(), stdout); break;
    case 7:
      for (const char c : "line " + std::to_string(i) + "\n") std::putchar(c);
      break;
  }
}

/// One thread, which moves between the lines.
void order() {
  const Places places;
  for (int i = 0; i < kLines; ++i) {
    places.go(i);
    print_a_line(i);
  }
}

/// One thread, which moves within the lines.
void pieces() {
  const Places places;
  for (int i = 0; i < kLines; ++i) {
    places.go(i);
    std::printf("line");
    places.go(i + 1);
    std::cout << ' ';
    places.go(i + 2);
    std::printf("%d\n", i);
  }
}

/// A part of a line is printed before work is forked, of which other ranks steal the caller.
void stolen() {
  kasane::atomic<int> at_work(0);
  for (int i = 0; i < kLines; ++i) {
    std::printf("line ");
    at_work.store(0);
    // The child ends when the continuation has run: stolen by another worker, where there is one.
    const bool others = kasane_ranks() * kasane_workers() > 1;
    kasane::thread child([&] {
      while (others && at_work.load() == 0) {
      }
    });
    at_work.store(1);
    std::printf("%d\n", i);
    child.join();
  }
}

/// Parts of a line by threads of different ranks, one after the other.
void handed() {
  const Places places;
  kasane::mutex mutex;
  for (int i = 0; i < kLines; ++i) {
    kasane::thread([&] {
      places.go(i);
      std::printf("li");
    }).join();
    places.go(i + 1);
    mutex.lock();
    std::printf("ne ");
    mutex.unlock();
    kasane::thread([&] {
      places.go(i + 2);
      mutex.lock();
      std::printf("%d\n", i);
      mutex.unlock();
    }).join();
  }
}

/// A thread of each rank prints long lines.
void whole(std::size_t bytes) {
  const Places places;
  std::vector<kasane::thread> threads;
  for (unsigned r = 0; r < kasane_ranks(); ++r) {
    threads.emplace_back([&places, r, bytes] {
      places.go(static_cast<int>(r));
      const std::string text(bytes - 1, static_cast<char>('A' + r));
      for (int i = 0; i < kLines; ++i) i % 2 ? std::printf("%s\n", text.c_str()) : std::puts(text.c_str());
    });
  }
  for (auto& t : threads) t.join();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string how = argc > 1 ? argv[1] : "order";
  static char buffer[512];
  if (argc > 2 && std::strcmp(argv[2], "buffered") == 0) {
    std::setvbuf(stdout, buffer, _IOFBF, sizeof buffer);
    std::ios::sync_with_stdio(false);
  }
  kasane::run([&] {
    if (how == "order") order();
    if (how == "pieces") pieces();
    if (how == "stolen") stolen();
    if (how == "handed") handed();
    if (how == "whole") whole(101);
    if (how == "long") whole(3000);
  });
}
