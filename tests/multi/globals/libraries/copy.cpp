// SPDX-License-Identifier: Apache-2.0
// Built without kasane::kasane's flags: the linker copies a variable of the library into the program. The
// copy is the variable then, for the library, too.
#include <cstdio>
#include <kasane/kasane.hpp>

#include "counts.h"

int main() {
  const long before = counts_total;
  kasane::run([] {
    void* const there = kasane::allocate(1, 16, kasane::placement::on(kasane::ranks() - 1));
    kasane::thread([&] {
      kasane::this_thread::move_near(there);
      counts_total = 5;
      counts_add(1, counts_total);
    }).join();
    kasane::deallocate(there);
  });
  std::printf("%ld, %ld, %ld\n", before, counts_total, counts_sum());
  return 0;
}
