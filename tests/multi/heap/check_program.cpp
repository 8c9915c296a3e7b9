// SPDX-License-Identifier: Apache-2.0
// Does what its argument says to global memory, for the tests of what is reported of it with and without
// --check heap, and of --stats.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <kasane/kasane.hpp>
#include <new>
#include <string>

namespace {

[[gnu::noinline]] void* leak(std::size_t bytes, std::uint32_t rank) {
  return kasane_allocate_at(bytes, 64, rank);
}

void act(const std::string& what) {
  auto* p = static_cast<volatile char*>(kasane::allocate(100));
  p[99] = 1;
  if (what == "overflow") p[100] = 1;
  if (what == "underflow") p[-1] = 1;
  if (what == "twice") kasane::deallocate(const_cast<char*>(p));
  if (what == "leak") {
    for (std::uint32_t r = 0; r < kasane::ranks(); ++r) {
      for (int i = 0; i < 3; ++i) std::memset(leak(1000, r), 1, 1000);
    }
    std::memset(leak(100'000, kasane::ranks() - 1), 1, 100'000);
  }
  if (what == "exhaust") {
    for (std::size_t bytes = std::size_t{1} << 20; bytes >= 64; bytes /= 2)
      while (::operator new(bytes, std::nothrow) != nullptr) continue;
    throw std::bad_alloc();
  }
  void* q = const_cast<char*>(p);
  if (what == "exit") {
    kasane::deallocate(q);
    std::exit(0);
  }
  if (what == "interior") q = const_cast<char*>(p + 32);
  alignas(64) static char foreign[256];
  if (what == "foreign") q = foreign + 128;
  kasane::thread([q] { kasane::deallocate(q); }).join();  // perhaps by another rank
}

}  // namespace

int main(int argc, char** argv) {
  kasane::run([what = std::string(argc > 1 ? argv[1] : "")] { act(what); });
  std::puts("ended well");
  return 0;
}
