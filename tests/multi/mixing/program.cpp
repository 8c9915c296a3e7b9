// SPDX-License-Identifier: Apache-2.0
// Uses one datum through both views: rightly, with fences, or in one of the wrong ways. mixing.sh looks at
// what --check mixing says.
#include <cstdio>
#include <cstring>
#include <kasane/kasane.hpp>

namespace {

/// Words of a page that the other rank owns.
long* far_words() {
  auto* const memory = static_cast<std::byte*>(kasane::allocate(2 * 65536, 65536, kasane::placement::cyclic));
  // A page of one's own is never cached: the one whose first store makes no twin.
  for (int page = 0; page < 2; ++page) {
    auto* const words = reinterpret_cast<long*>(memory + page * 65536);
    const std::uint64_t fetched = kasane::counter("blocks_fetched", 0);
    *static_cast<volatile long*>(words) = 0;
    if (kasane::counter("blocks_fetched", 0) != fetched) {
      kasane::release_all();
      return words;
    }
  }
  return nullptr;
}

/// Memory of this rank that stays here: loads and stores are the direct view.
int use_fixed() {
  auto* const x = static_cast<long*>(kasane::allocate(65536, 64, kasane::placement::local.fixed()));
  auto* const seen = static_cast<volatile long*>(x);
  const kasane::global_ptr<long> g(x);
  for (long i = 1; i <= 3; ++i) {
    seen[10] = i;
    if (kasane::get(g + 10) != i) return 5;
    kasane::put(g + 20, i);
    kasane::fetch_add(g + 20, 1);
    if (seen[20] != i + 1) return 6;
  }
  std::puts("done");
  return 0;
}

}  // namespace

int main(int, char** argv) {
  if (std::strcmp(argv[1], "fixed") == 0) return use_fixed();
  long* const x = far_words();
  if (x == nullptr) return 2;
  auto* const seen = static_cast<volatile long*>(x);
  const kasane::global_ptr<long> g(x);
  const bool wrong = std::strncmp(argv[1], "wrong", 5) == 0;
  long got = 0;
  for (long i = 1; i <= 3; ++i) {
    if (std::strcmp(argv[1], "wrong-release") == 0 || !wrong) {
      seen[10] = i;
      seen[11] = i;  // beside it
      if (!wrong) kasane::release_all();
      kasane::get(&got, g + 10);
      kasane::get(&got, g + 40);  // in the same block, but no store touched it
      if (!wrong && got != 0) return 3;
    }
    if (std::strcmp(argv[1], "wrong-acquire") == 0 || !wrong) {
      got = seen[20];
      kasane::put(g + 20, i);
      kasane::fetch_add(g + 21, 1);
      if (!wrong) kasane::acquire_all();
      if (!wrong && seen[20] != i) return 4;
      got = seen[20];
    }
    kasane::release_all();
    kasane::acquire_all();
  }
  std::puts("done");
  return 0;
}
