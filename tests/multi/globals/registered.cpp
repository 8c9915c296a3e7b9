// SPDX-License-Identifier: Apache-2.0
// What threads register for the program's end, on whatever rank, runs on rank 0, the last first.
#include <cstdio>
#include <cstdlib>
#include <kasane/kasane.hpp>
#include <vector>

namespace {

struct Table {
  Table() : words(1000, 3) {}
  ~Table() {
    long sum = 0;
    for (const int word : words) sum += word;
    std::printf("destroyed on rank %u, %ld\n", kasane::rank(), sum);
  }
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;
  std::vector<int> words;
};

std::vector<int>& words() {
  static Table table;
  return table.words;
}

}  // namespace

int main() {
  kasane::run([] {
    void* const there = kasane::allocate(1, 16, kasane::placement::on(kasane::ranks() - 1));
    kasane::thread([&] {
      kasane::this_thread::move_near(there);
      words()[3] = 4;
      kasane::this_thread::move_near(there);
      std::atexit([] { std::printf("at exit on rank %u, %d\n", kasane::rank(), words()[3]); });
    }).join();
    kasane::deallocate(there);
  });
  std::puts("main ends");
  return 3;
}
