// SPDX-License-Identifier: Apache-2.0
// An ordinary threaded program with variables of every kind: it prints the same on any number of ranks.
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <kasane/kasane.hpp>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "other.h"

namespace {

constexpr long kWords = 65536;

struct Announced {
  Announced() : values(1000, 7) { std::puts("constructed"); }
  ~Announced() {
    long sum = 0;
    for (const int value : values) sum += value;
    std::printf("destroyed, %ld\n", sum);
  }
  Announced(const Announced&) = delete;
  Announced& operator=(const Announced&) = delete;
  std::vector<int> values;
};

double table[kWords];                    // zeros
std::array<long, 1024> filled{1, 2, 3};  // from the file
char large[std::size_t{1} << 30];        // never touched but for a few bytes
Announced announced;
std::map<int, std::string> names;
std::vector<long> before_main(kWords, 2);
std::unique_ptr<std::string> owned = std::make_unique<std::string>("made before main");
const std::string constant = std::string("dynamically initialised, ") + std::to_string(kWords);
kasane::mutex lock;
long counted = 0;
long* pointer_to_another = &filled[5];

struct Holder {
  static inline long member = 5;
  template <class T>
  static long of(T by) {
    static long kept = 0;
    return kept += by;
  }
};

[[gnu::constructor]] void set_up() { filled[0] = 100; }
[[gnu::destructor]] void take_down() { std::printf("taken down, %ld\n", filled[0]); }

long sum_of_table() {
  double sum = 0;
  for (const double word : table) sum += word;
  return static_cast<long>(sum);
}

void work(std::vector<long>& of_main, char** argv) {
  kasane::parallel_for(0L, kWords, [](long i) { table[i] = 2.0; });
  std::printf("table %ld\n", sum_of_table());
  const long sum = kasane::parallel_reduce(
      0L, kWords, 0L,
      [&](long i) { return of_main[static_cast<std::size_t>(i)] + before_main[static_cast<std::size_t>(i)]; },
      std::plus<>());
  std::printf("vectors %ld\n", sum);
  kasane::parallel_for(0L, 64L, [](long i) {
    const std::lock_guard held(lock);
    ++counted;
    names[static_cast<int>(i)] = "the name of number " + std::to_string(i);
    Holder::member += i;
    Holder::of(i);
    other::add(i);
    large[i << 20] = static_cast<char>(i);
    if (i % 8 == 0) announced.values[static_cast<std::size_t>(i)] = 0;
  });
  long bytes = 0;
  for (long i = 0; i < 64; ++i) bytes += large[i << 20];
  std::printf("counted %ld, %zu names, %s\n", counted, names.size(), names[63].c_str());
  std::printf("member %ld, function static %ld, another file's %ld, %ld\n", Holder::member, Holder::of(0L),
              other::total, bytes);
  kasane::thread([argv] { argv[1][0] = 'X'; }).join();
  *owned += ", changed by a thread";
  *pointer_to_another = 17;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  std::vector<long> of_main(kWords, 1);
  std::vector<std::string> of_a_thread;
  std::thread([&] {
    for (int i = 0; i < 100; ++i)
      of_a_thread.push_back("from an OS thread of the program " + std::to_string(i));
  }).join();
  std::atexit([] { std::printf("at exit %ld\n", sum_of_table()); });
  kasane::run([&] { work(of_main, argv); });
  const long letters = kasane::run([&] {
    return kasane::parallel_reduce(
        0, 100, 0L, [&](int i) { return static_cast<long>(of_a_thread[static_cast<std::size_t>(i)].size()); },
        std::plus<>());
  });
  std::cout << argv[1] << ' ' << letters << ' ' << constant << ' ' << *owned << ' ' << filled[0] << ' '
            << filled[5] << std::endl;
  return std::atoi(argv[2]);
}
