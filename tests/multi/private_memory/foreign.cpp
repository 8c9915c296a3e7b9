// SPDX-License-Identifier: Apache-2.0
// A thread on the last rank uses a pointer to private memory of rank 0, a "tiny", "small" or "large" part
// of its heap, or what a library's function allocated ("copy"), or a thread_local of main's ("local"); or it
// calls a function of a library that main has loaded ("code", with the library's path). "back": main uses a
// thread_local of the last rank's. "apart" succeeds where no OS thread that runs threads has its
// thread_locals at an address that another rank has mapped.
#include <dlfcn.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <kasane/kasane.hpp>
#include <mutex>
#include <string_view>
#include <vector>

namespace {

constexpr std::size_t kLarge = std::size_t{256} << 20;  // libc maps it by itself
constexpr std::size_t kSmall = 64 << 10;

[[gnu::noinline]] int use(const volatile int* p) { return *p; }

thread_local int of_thread = 5;
[[gnu::noinline]] int* address_of_local() {
  int* p = &of_thread;
  asm volatile("" : "+r"(p));
  return p;
}

/// f() on a thread that begins on the last rank.
template <class F>
void on_last(const F& f) {
  const auto home = kasane::make_array<char>(1, kasane::placement::on(kasane::ranks() - 1));
  kasane::thread(kasane::near{home.get()}, f).join();
}

/// Whether this process can read there.
bool is_mapped(const int* p) {
  int value = 0;
  const iovec local{&value, sizeof value}, remote{const_cast<int*>(p), sizeof *p};
  return ::process_vm_readv(::getpid(), &local, 1, &remote, 1, 0) == sizeof *p;
}

/// Each rank's workers tell where their thread_locals are, and every rank looks at all others'.
int apart() {
  struct Local {
    const int* at;
    std::uint32_t rank;
  };
  std::vector<Local> found;
  std::mutex lock;
  std::atomic<int> wrong{0};
  const auto everywhere = [](const auto& f) {
    std::vector<kasane::thread> threads;
    for (std::uint32_t r = 0; r < 8 * kasane::ranks(); ++r) {
      const auto home = kasane::make_array<char>(1, kasane::placement::on(r % kasane::ranks()));
      threads.emplace_back(kasane::near{home.get()}, f);
    }
    for (auto& t : threads) t.join();
  };
  kasane::run([&] {
    everywhere([&] {
      const std::lock_guard guard(lock);
      found.push_back({address_of_local(), kasane::rank()});
    });
    everywhere([&] {
      for (const Local& local : found) wrong += local.rank != kasane::rank() && is_mapped(local.at);
    });
  });
  return wrong.load() == 0 ? 0 : 1;
}

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
  const std::string_view kind = argc > 1 ? argv[1] : "small";
  if (kind == "apart") return apart();
  if (argc == 3) {
    void* const library = ::dlopen(argv[2], RTLD_NOW);
    if (library == nullptr) return 1;
    const auto twice = reinterpret_cast<int (*)(int)>(::dlsym(library, "kasane_foreign_twice"));
    kasane::run([twice] { on_last([twice] { std::printf("%d\n", twice(2)); }); });
    return 0;
  }
  if (kind == "back") {
    int* p = nullptr;
    kasane::run([&p] { on_last([&p] { p = address_of_local(); }); });
    return use(p) == 5 ? 0 : 1;
  }
  int* const p = kind == "local" ? address_of_local() : private_memory(kind);
  kasane::run([p] { on_last([p] { std::printf("%d\n", use(p)); }); });
  return 0;
}
