#include <cstdio>
#include <kasane/kasane.hpp>
#include <memory>
#include <string>

int main() {
  std::string greeting;  // on main's stack: global memory
  kasane::run([&] {
    auto words = std::make_unique<std::string[]>(2);  // new on a thread: global memory
    kasane::thread hello([&] { words[0] = "hello from a thread that may be anywhere"; });
    kasane::thread world([&] { words[1] = "and from another"; });
    hello.join();
    world.join();  // now what they wrote is visible here
    greeting = words[0] + ", " + words[1];
  });
  std::printf("%s (%u ranks)\n", greeting.c_str(), kasane::ranks());
}
