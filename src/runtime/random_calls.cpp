// SPDX-License-Identifier: Apache-2.0
// rand, random, drand48 and their seeds. What libraries below the runtime draw is libc's own. After initstate
// or setstate, random() is libc's and the rank's.
// Thread safety: as libc's.
#include <dlfcn.h>
#include <stdlib.h>

#include <atomic>
#include <bit>
#include <cstring>
#include <span>

#include "base/call_selector.h"
#include "gas/regions.h"
#include "runtime/hidden.h"
#include "runtime/process_state.h"
#include "runtime/random_numbers.h"
#include "runtime/runtime.h"
#include "runtime/warn.h"

namespace kasane::runtime {
namespace {

/// libc's states of the process, in its initial values: random's seed is 1.
struct Numbers {
  std::atomic_flag locked;
  bool begun = false;
  char state[128] = {};
  random_data random = {};
  drand48_data of_48_bits = {};

  void begin() noexcept {
    if (begun) return;
    ::initstate_r(1, state, sizeof state, &random);
    begun = true;
  }
};
constinit Numbers g_random_numbers;

std::uint64_t next_of_48_bits(RandomCall::Kind kind) noexcept {
  double fraction = 0;
  long number = 0;
  switch (kind) {
    case RandomCall::Kind::drand48:
      ::drand48_r(&g_random_numbers.of_48_bits, &fraction);
      return std::bit_cast<std::uint64_t>(fraction);
    case RandomCall::Kind::lrand48: ::lrand48_r(&g_random_numbers.of_48_bits, &number); break;
    default: ::mrand48_r(&g_random_numbers.of_48_bits, &number);
  }
  return static_cast<std::uint64_t>(number);
}

std::uint64_t draw_alone(const RandomCall& call) noexcept {
  std::uint16_t parameter[7];
  std::memcpy(parameter, call.parameter, sizeof parameter);
  switch (call.kind) {
    case RandomCall::Kind::random: {
      std::int32_t number = 0;
      ::random_r(&g_random_numbers.random, &number);
      return static_cast<std::uint64_t>(number);
    }
    case RandomCall::Kind::srandom:
      ::srandom_r(static_cast<unsigned>(call.seed), &g_random_numbers.random);
      return 0;
    case RandomCall::Kind::srand48:
      ::srand48_r(static_cast<long>(call.seed), &g_random_numbers.of_48_bits);
      return 0;
    case RandomCall::Kind::seed48: {
      ::seed48_r(parameter, &g_random_numbers.of_48_bits);
      std::uint64_t before = 0;
      std::memcpy(&before, g_random_numbers.of_48_bits.__old_x, sizeof g_random_numbers.of_48_bits.__old_x);
      return before;
    }
    case RandomCall::Kind::lcong48: ::lcong48_r(parameter, &g_random_numbers.of_48_bits); return 0;
    default: return next_of_48_bits(call.kind);
  }
}

}  // namespace

std::uint64_t draw(const RandomCall& call) noexcept {
  const PassedCalls passed;  // a handler of the program's, which may draw, waits
  while (g_random_numbers.locked.test_and_set(std::memory_order_acquire)) {
  }
  g_random_numbers.begin();
  const std::uint64_t number = draw_alone(call);
  g_random_numbers.locked.clear(std::memory_order_release);
  return number;
}

RandomNumbers::RandomNumbers(comm::Transport& transport) {
  transport.set_handler(
      gas::kRandomHandler,
      [](void* at, const comm::Message& message) noexcept {
        static_cast<comm::Transport*>(at)->reply(message.token,
                                                 runtime::draw(gas::value_of<RandomCall>(message)));
      },
      &transport);
}

std::uint64_t RandomNumbers::draw(comm::Blocking& io, const RandomCall& call) {
  return io.request(Rank{0}, gas::kRandomHandler, std::as_bytes(std::span(&call, 1)));
}

}  // namespace kasane::runtime

// A sanitizer calls some of them before it is ready, and only one rank runs there.
#if !defined(KASANE_SANITIZER_ADDRESS) && !defined(KASANE_SANITIZER_THREAD)

namespace kasane::runtime {
namespace {

constinit Hidden<char* (*)(unsigned, char*, std::size_t)> g_initstate("initstate");
constinit Hidden<char* (*)(char*)> g_setstate("setstate");
constinit Hidden<long (*)()> g_random("random"), g_lrand48("lrand48"), g_mrand48("mrand48");
constinit Hidden<double (*)()> g_drand48("drand48");
constinit Hidden<void (*)(unsigned)> g_srandom("srandom");
constinit std::atomic<bool> g_own_state{false};  ///< the program has given random() one on this rank

bool is_of_runtime() noexcept { return calls() == Calls::passed; }

std::uint64_t of_program(const RandomCall& call) noexcept {
  Runtime* const runtime = Runtime::current();
  const bool elsewhere =
      runtime != nullptr && raw(process().rank) != 0 && runtime->shares_process_state();
  return elsewhere ? runtime->draw(call) : draw(call);
}
std::uint64_t of_program(RandomCall::Kind kind, std::uint64_t seed = 0) noexcept {
  RandomCall call;
  call.kind = kind;
  call.seed = seed;
  return of_program(call);
}

void has_own_state() noexcept {
  Runtime* const runtime = Runtime::current();
  if (!g_own_state.exchange(true) && runtime != nullptr && runtime->shares_process_state()) {
    CrashText text;
    text.add("kasane: initstate, setstate: random() on rank ").decimal(raw(process().rank));
    text.add(" has a state of its own; other ranks' numbers are others\n");
    warn(text);
  }
}

}  // namespace
}  // namespace kasane::runtime

using namespace kasane::runtime;  // NOLINT(google-build-using-namespace): for the functions below
using Kind = RandomCall::Kind;

#define KASANE_SHOWN extern "C" [[gnu::visibility("default")]]

KASANE_SHOWN long random() noexcept {
  if (is_of_runtime() || g_own_state.load(std::memory_order_relaxed)) return g_random.get()();
  return static_cast<long>(of_program(Kind::random));
}
KASANE_SHOWN void srandom(unsigned seed) noexcept {
  if (is_of_runtime() || g_own_state.load(std::memory_order_relaxed)) return g_srandom.get()(seed);
  of_program(Kind::srandom, seed);
}
KASANE_SHOWN int rand() noexcept { return static_cast<int>(::random()); }
KASANE_SHOWN void srand(unsigned seed) noexcept { ::srandom(seed); }
KASANE_SHOWN char* initstate(unsigned seed, char* state, std::size_t bytes) noexcept {
  if (!is_of_runtime()) has_own_state();
  return g_initstate.get()(seed, state, bytes);
}
KASANE_SHOWN char* setstate(char* state) noexcept {
  if (!is_of_runtime()) has_own_state();
  return g_setstate.get()(state);
}

KASANE_SHOWN double drand48() noexcept {
  if (is_of_runtime()) return g_drand48.get()();
  return std::bit_cast<double>(of_program(Kind::drand48));
}
KASANE_SHOWN long lrand48() noexcept {
  if (is_of_runtime()) return g_lrand48.get()();
  return static_cast<long>(of_program(Kind::lrand48));
}
KASANE_SHOWN long mrand48() noexcept {
  if (is_of_runtime()) return g_mrand48.get()();
  return static_cast<long>(of_program(Kind::mrand48));
}
KASANE_SHOWN void srand48(long seed) noexcept {
  of_program(Kind::srand48, static_cast<std::uint64_t>(seed));
}
KASANE_SHOWN std::uint16_t* seed48(std::uint16_t seed[3]) noexcept {
  static constinit std::uint16_t before[3] = {};
  RandomCall call;
  call.kind = Kind::seed48;
  std::memcpy(call.parameter, seed, sizeof before);
  const std::uint64_t number = of_program(call);
  std::memcpy(before, &number, sizeof before);
  return before;
}
KASANE_SHOWN void lcong48(std::uint16_t parameter[7]) noexcept {
  RandomCall call;
  call.kind = Kind::lcong48;
  std::memcpy(call.parameter, parameter, sizeof call.parameter);
  of_program(call);
}

#undef KASANE_SHOWN
#endif
