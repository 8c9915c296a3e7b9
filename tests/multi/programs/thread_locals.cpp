// SPDX-License-Identifier: Apache-2.0
// Has thread_locals, of which threads change two. --check globals names these, and no other.
#include <kasane/kasane.hpp>
#include <string>

namespace {

thread_local int counted = 0;
thread_local std::string cached = "at first";
thread_local int only_read = 7;
thread_local int of_main = 0;

/// Not inlined: a compiler would keep the address of the thread_locals over a fork.
[[gnu::noinline]] int change() {
  ++counted;
  cached = "changed";
  return only_read;
}

}  // namespace

int main() {
  of_main = 5;
  const int all = kasane::run([] {
    return kasane::parallel_reduce(
        0, 64, 0, [](int) { return change(); }, [](int a, int b) { return a + b; }, 1);
  });
  return all == 7 * 64 && of_main == 5 ? 0 : 1;
}
