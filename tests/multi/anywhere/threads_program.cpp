// SPDX-License-Identifier: Apache-2.0
// Calls a library that has threads of its own (threads_library.cpp) from tasks on all ranks.
#include <cstdio>
#include <kasane/kasane.hpp>

extern "C" int twice_by_another_thread(int question);

int main() {
  int wrong = 0;
  kasane::run([&] {
    auto answers = kasane::make_array<int>(256);
    kasane::parallel_for(0, 256, [&](int i) { answers[i] = twice_by_another_thread(i); }, 1);
    for (int i = 0; i < 256; ++i) wrong += answers[i] != 2 * i;
  });
  std::printf("%d wrong on %u ranks\n", wrong, kasane::ranks());
  return wrong != 0;
}
