// SPDX-License-Identifier: Apache-2.0
// Recursion that is deep instead of wide: a thread at each link of a list.
#include <cstdio>
#include <cstdlib>
#include <kasane/kasane.hpp>

namespace {

struct Node {
  long value;
  Node* next;
};

long add_up(Node* n) {
  if (n == nullptr) return 0;
  long rest = 0, mine = 0;
  kasane::parallel_invoke([&] { rest = add_up(n->next); }, [&] { mine = n->value; });
  return rest + mine;
}

}  // namespace

int main(int argc, char** argv) {
  const long depth = argc > 1 ? std::atol(argv[1]) : 10'000;
  long sum = 0;
  kasane::run([&] {
    auto* const nodes = new Node[static_cast<std::size_t>(depth)];
    for (long i = 0; i < depth; ++i) nodes[i] = {i, i + 1 < depth ? &nodes[i + 1] : nullptr};
    sum = add_up(nodes);
    delete[] nodes;
  });
  std::printf("%ld links: %ld\n", depth, sum);
  return sum == depth * (depth - 1) / 2 ? 0 : 1;
}
