// SPDX-License-Identifier: Apache-2.0
#include "ledgers.h"

#include <atomic>
#include <cstdio>
#include <memory>
#include <numeric>

#include "names.h"

namespace ledgers {
namespace {

void say(const std::string& text) { std::printf("ledgers: %s\n", text.c_str()); }

struct Registered {
  Registered() {
    names::add_alone(-1, "of the ledgers");
    names::announce = say;
    std::puts("ledgers: constructed");
  }
  ~Registered() { std::printf("ledgers: destroyed, %s, %ld\n", names::of(-1).c_str(), balance()); }
  Registered(const Registered&) = delete;
  Registered& operator=(const Registered&) = delete;
};

std::atomic<long> booked{0};
std::shared_ptr<long> last = std::make_shared<long>(0);
Registered registered;

}  // namespace

std::vector<long> amounts(65536, 2);
thread_local long of_worker = 0;

void book(long index, long amount) {
  amounts[static_cast<std::size_t>(index)] += amount;
  booked += amount;
  const std::shared_ptr<long> copy = last;  // its count is an atomic of the library's
  of_worker += *copy + 1;
}
long balance() { return std::accumulate(amounts.begin(), amounts.end(), booked.load()); }

}  // namespace ledgers
