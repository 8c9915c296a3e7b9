// SPDX-License-Identifier: Apache-2.0
// MassiveThreads: myth_create and myth_join.
#include <myth/myth.h>

#include "fork_join/player.h"

namespace {

struct Call {
  unsigned size;
  std::uint64_t result;
};

void* fib_thread(void* p) {
  auto& call = *static_cast<Call*>(p);
  if (call.size < 2) {
    call.result = call.size;
    return nullptr;
  }
  Call a{call.size - 1, 0}, b{call.size - 2, 0};
  const myth_thread_t thread = myth_create(fib_thread, &a);
  fib_thread(&b);
  myth_join(thread, nullptr);
  call.result = a.result + b.result;
  return nullptr;
}

void* tree_thread(void* p) {
  auto& call = *static_cast<Call*>(p);
  if (call.size == 0) {
    call.result = 1;
    return nullptr;
  }
  Call a{call.size - 1, 0}, b{call.size - 1, 0};
  const myth_thread_t thread = myth_create(tree_thread, &a);
  tree_thread(&b);
  myth_join(thread, nullptr);
  call.result = a.result + b.result;
  return nullptr;
}

std::uint64_t fib(unsigned n) {
  Call call{n, 0};
  fib_thread(&call);
  return call.result;
}

std::uint64_t tree(unsigned depth) {
  Call call{depth, 0};
  tree_thread(&call);
  return call.result;
}

void in_myth(unsigned workers, const std::function<void()>& measure) {
  myth_globalattr_t attributes;
  myth_globalattr_init(&attributes);
  myth_globalattr_set_n_workers(&attributes, workers);
  myth_init_ex(&attributes);
  measure();
  myth_fini();
}

}  // namespace

int main(int argc, char** argv) { return kasane::bench::play(argc, argv, {fib, tree}, in_myth); }
