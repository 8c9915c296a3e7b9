// SPDX-License-Identifier: Apache-2.0
// For --check polling. "plain": a thread on the last rank reads a plain word until a thread of rank 0 changes
// it, which it would not see; "variable": a variable of the program. "computes": it computes instead, beside
// words that rank 0 changes. "waits": it reads the word by kasane::atomic_ref.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <kasane/kasane.hpp>
#include <string_view>
#include <thread>

namespace {

using namespace std::chrono_literals;

struct Shared {
  std::uint64_t word, beside;
};

}  // namespace

Shared polled_variable;  // a name that needs no demangling

namespace {

[[gnu::noinline]] void wait_for_plain_word(const volatile std::uint64_t* word) {
  while (*word == 0) {
  }
}

/// For some seconds, and reads words of the block that rank 0 does not change.
[[gnu::noinline]] std::uint64_t compute(const volatile std::uint64_t* beside) {
  std::uint64_t sum = 0;
  const auto end = std::chrono::steady_clock::now() + 4s;
  while (std::chrono::steady_clock::now() < end) sum += *beside;
  return sum;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view how = argc > 1 ? argv[1] : "plain";
  kasane::run([how] {
    const auto first = kasane::make_array<Shared>(1, kasane::placement::on(0));
    const auto last = kasane::make_array<char>(1, kasane::placement::on(kasane::ranks() - 1));
    Shared* const shared = how == "variable" ? &polled_variable : first.get();
    kasane::this_thread::move_near(shared);
    shared->word = shared->beside = 0;
    kasane::thread reads(kasane::near{last.get()}, [=] {
      if (how == "plain" || how == "variable") wait_for_plain_word(&shared->word);
      if (how == "computes" && compute(&shared->beside) != 0) std::puts("wrong");
      if (how == "waits") kasane::atomic_ref<std::uint64_t>(shared->word).wait(0);
    });
    kasane::this_thread::move_near(shared);
    std::this_thread::sleep_for(1s);
    kasane::atomic_ref<std::uint64_t>(shared->word).store(1);
    kasane::atomic_ref<std::uint64_t>(shared->word).notify_all();
    reads.join();
  });
  std::puts("right");
  return 0;
}
