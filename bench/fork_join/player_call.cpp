// SPDX-License-Identifier: Apache-2.0
// Plain calls in place of forks: the limit.
#include "fork_join/player.h"

namespace {

void without_system(unsigned, const std::function<void()>& measure) { measure(); }

}  // namespace

int main(int argc, char** argv) {
  return kasane::bench::play(argc, argv, {kasane::bench::call_fib, kasane::bench::call_tree}, without_system);
}
