// SPDX-License-Identifier: Apache-2.0
// A thread on the last rank uses a pointer to private memory of rank 0, a "tiny", "small" or "large" part
// of its heap, or what a library's function allocated ("copy"); or it calls a function of a library that main
// has loaded ("code", with the library's path).
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <kasane/kasane.hpp>
#include <string_view>

namespace {

constexpr std::size_t kLarge = std::size_t{256} << 20;  // libc maps it by itself
constexpr std::size_t kSmall = 64 << 10;

[[gnu::noinline]] int use(const volatile int* p) { return *p; }

int* private_memory(std::string_view kind) {
  void* p = nullptr;
  if (kind == "large") {
    p = std::malloc(kLarge);
  } else if (kind == "tiny") {
    // The runtime's threads may have freed some of this size, at addresses that ranks have in common.
    for (int i = 0; i < 1000; ++i) p = std::malloc(sizeof(int));
  } else if (kind == "copy") {
    for (int i = 0; i < 1000; ++i) p = ::strdup("text");
  } else {
    for (int i = 0; i < 1000; ++i) p = std::malloc(kSmall);
  }
  std::memset(p, 1, sizeof(int));
  return static_cast<int*>(p);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3) {
    void* const library = ::dlopen(argv[2], RTLD_NOW);
    if (library == nullptr) return 1;
    const auto twice = reinterpret_cast<int (*)(int)>(::dlsym(library, "kasane_foreign_twice"));
    kasane::run([twice] {
      const auto home = kasane::make_array<char>(1, kasane::placement::on(kasane::ranks() - 1));
      kasane::thread(kasane::near{home.get()}, [twice] { std::printf("%d\n", twice(2)); }).join();
    });
    return 0;
  }
  int* const p = private_memory(argc > 1 ? argv[1] : "small");
  kasane::run([p] {
    const auto home = kasane::make_array<char>(1, kasane::placement::on(kasane::ranks() - 1));
    kasane::thread(kasane::near{home.get()}, [p] { std::printf("%d\n", use(p)); }).join();
  });
  return 0;
}
