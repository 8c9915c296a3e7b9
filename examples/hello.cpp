// SPDX-License-Identifier: Apache-2.0
// Threads, pointers and new: the children write through pointers into their parent's stack, wherever they
// run.
#include <cstdio>
#include <kasane/kasane.hpp>
#include <memory>
#include <string>

int main() {
  std::string greeting;
  kasane::run([&] {
    auto words = std::make_unique<std::string[]>(2);  // new on a thread: global memory
    kasane::thread hello([&] { words[0] = "hello from a thread that may be anywhere"; });
    kasane::thread world([&] { words[1] = "and from another"; });
    hello.join();
    world.join();  // now what they wrote is visible here
    greeting = words[0] + ", " + words[1];
    std::printf("%s (%u ranks, %u workers each)\n", greeting.c_str(), kasane::ranks(), kasane::workers());
  });
  return greeting == "hello from a thread that may be anywhere, and from another" ? 0 : 1;
}
