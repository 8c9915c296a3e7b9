// SPDX-License-Identifier: Apache-2.0
// Destructors of static objects, and functions of atexit, in the reverse order of their beginnings, on
// whatever ranks these were: the object that is destroyed last looks at what the others have noted.
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "cases.h"

namespace {

std::string ends;

struct Last {
  ~Last() {
    if (ends == "thread's,static of last,static of main,object,") return;
    std::printf("in another order: %s\n", ends.c_str());
    std::fflush(stdout);
    ::_exit(1);
  }
} last;

struct Noted {
  explicit Noted(const char* name_) : name(name_), memory(1000, 1) {}
  ~Noted() { (ends += name) += memory.size() == 1000 ? "," : "?"; }
  const char* name;
  std::vector<int> memory;
};
Noted object("object");

const Noted& of_function() {
  static const Noted noted("static of last");
  return noted;
}

}  // namespace

int main() {
  static const Noted noted("static of main");
  kasane::run([] {
    kasane::thread(kasane::near{cases::place(cases::last())}, [] {
      (void)of_function();
      (void)std::atexit([] { ends += "thread's,"; });
    }).join();
    (void)of_function();
  });
  return noted.memory.size() == 1000 ? 0 : 1;
}
