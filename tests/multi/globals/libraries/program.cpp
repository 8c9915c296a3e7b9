// SPDX-License-Identifier: Apache-2.0
// A program whose variables are in three libraries of its own: it prints the same on any number of ranks when
// these are named by --globals-of.
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <kasane/kasane.hpp>
#include <memory>
#include <string>
#include <vector>

#include "counts.h"
#include "ledgers.h"
#include "names.h"

namespace {

struct OfProgram {
  OfProgram() { std::printf("program: constructed after %zu name\n", names::count()); }
  ~OfProgram() { std::printf("program: destroyed before %zu names\n", names::count()); }
  OfProgram(const OfProgram&) = delete;
  OfProgram& operator=(const OfProgram&) = delete;
};
const OfProgram of_program;

/// Runs body(index) on threads of all ranks.
void everywhere(const std::function<void(int)>& body) {
  std::vector<std::unique_ptr<char, void (*)(char*)>> places;
  for (std::uint32_t r = 0; r < kasane::ranks(); ++r)
    places.emplace_back(static_cast<char*>(kasane::allocate(1, 16, kasane::placement::on(r))),
                        [](char* p) { kasane::deallocate(p); });
  std::vector<kasane::thread> threads;
  for (int t = 0; t < 64; ++t) {
    threads.emplace_back([&, t] {
      kasane::this_thread::move_near(places[static_cast<std::size_t>(t) % places.size()].get());
      body(t);
    });
  }
  for (auto& thread : threads) thread.join();
}

void work() {
  kasane::parallel_for(0, 65536, [](int i) { counts_table[i] = 1; });
  everywhere([](int t) {
    if (names::motto("made once").empty()) std::abort();
    counts_add(t, t);
    names::add(t, "the name of number " + std::to_string(t));
    ledgers::book(t, t);
  });
  std::printf("table %ld, %d, %ld\n", counts_sum(), counts_constructed(), *counts_first());
  std::printf("names %zu, %s, %s\n", names::count(), names::of(63).c_str(), names::motto("again").c_str());
  std::printf("ledgers %ld\n", ledgers::balance());
  kasane::thread([] {
    counts_total += 1;
    *counts_first() = 17;
    names::of_inline_function(5);
  }).join();
}

}  // namespace

int main() {
  kasane::run([] { work(); });
  std::printf("main %ld, %ld, %ld\n", counts_total, counts_table[1], names::of_inline_function(0));
  names::announce("called through a pointer of the other library's");
  return 3;
}
