// SPDX-License-Identifier: Apache-2.0
// Built without kasane::kasane's flags: the linker copies variables of libc and libstdc++ into the program.
// Libraries use these copies from any thread, the runtime's among them, so the pages with them stay private;
// the program's other variables are shared.
#include <getopt.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <kasane/kasane.hpp>
#include <string>

// .bss begins with the copies: the first elements of this lie in their page.
long beside_the_copies[1024 + 65536];

namespace {

long* const table = beside_the_copies + 1024;

int variables_of_environment() {
  int n = 0;
  while (environ[n] != nullptr) ++n;
  return n;
}

/// On a thread at the rank.
template <class F>
void at(std::uint32_t rank, const F& body) {
  void* const place = kasane::allocate(1, 16, kasane::placement::on(rank));
  kasane::thread([&] {
    kasane::this_thread::move_near(place);
    body();
  }).join();
  kasane::deallocate(place);
}

}  // namespace

int main() {
  char words[][9] = {"program", "-a", "given", "argument"};
  char* arguments[] = {words[0], words[1], words[2], words[3], nullptr};
  std::string given;
  for (int option; (option = getopt(4, arguments, "a:")) != -1;) given += option == 'a' ? optarg : "?";
  const int variables = variables_of_environment();
  kasane::run([&] {
    kasane::parallel_for(0, 65536, [](int i) { table[i] = 2; });
    long wrong = 0;
    for (std::uint32_t k = 0; k < 8; ++k) {
      at(k % kasane::ranks(), [&] {
        wrong += variables_of_environment() != variables;
        std::fprintf(stdout, "thread %u\n", k);
        std::cout << "again " << k << std::endl;
      });
    }
    long sum = 0;
    for (int i = 0; i < 65536; ++i) sum += table[i];
    std::fprintf(stdout, "sum %ld, %ld wrong\n", sum, wrong);
  });
  std::fprintf(stdout, "ended after %s %s\n", arguments[optind], given.c_str());
  return 3;
}
