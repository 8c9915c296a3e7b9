// SPDX-License-Identifier: Apache-2.0
#include "core_fork_join_peers.h"

#include <vector>

#ifdef KASANE_BENCH_LIBFORK
#include <libfork/core.hpp>
#include <libfork/schedule.hpp>
#endif
#ifdef KASANE_BENCH_MASSIVETHREADS
#include <myth/myth.h>
#endif

namespace kasane::bench {
namespace {

#ifdef KASANE_BENCH_LIBFORK
constexpr auto lf_fib = [](auto self, unsigned n) -> lf::task<std::uint64_t> {
  if (n < 2) co_return n;
  std::uint64_t a = 0, b = 0;
  co_await lf::fork(&a, self)(n - 1);
  co_await lf::call(&b, self)(n - 2);
  co_await lf::join;
  co_return a + b;
};

lf::lazy_pool* pool = nullptr;   // the one that runs: fib takes nothing but n

std::uint64_t libfork_fib(unsigned n) { return lf::sync_wait(*pool, lf_fib, n); }

void with_libfork(unsigned workers, const std::function<void()>& measure) {
  lf::lazy_pool made(workers);
  pool = &made;
  measure();
  pool = nullptr;
}
#endif

#ifdef KASANE_BENCH_MASSIVETHREADS
struct MythFib {
  unsigned n;
  std::uint64_t result;
};

void* myth_fib(void* p) {
  auto& call = *static_cast<MythFib*>(p);
  if (call.n < 2) {
    call.result = call.n;
    return nullptr;
  }
  MythFib a{call.n - 1, 0}, b{call.n - 2, 0};
  const myth_thread_t thread = myth_create(myth_fib, &a);
  myth_fib(&b);
  myth_join(thread, nullptr);
  call.result = a.result + b.result;
  return nullptr;
}

std::uint64_t massivethreads_fib(unsigned n) {
  MythFib call{n, 0};
  myth_fib(&call);
  return call.result;
}

void with_massivethreads(unsigned workers, const std::function<void()>& measure) {
  myth_globalattr_t attributes;
  myth_globalattr_init(&attributes);
  myth_globalattr_set_n_workers(&attributes, workers);
  myth_init_ex(&attributes);
  measure();
  myth_fini();
}
#endif

}  // namespace

std::span<const ForkJoin> fork_join_peers() {
  static const std::vector<ForkJoin> peers{
#ifdef KASANE_BENCH_LIBFORK
      {"libfork", libfork_fib, with_libfork, false},
#endif
#ifdef KASANE_BENCH_MASSIVETHREADS
      {"massivethreads", massivethreads_fib, with_massivethreads, false},
#endif
  };
  return peers;
}

}  // namespace kasane::bench
