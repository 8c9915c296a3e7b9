// SPDX-License-Identifier: Apache-2.0
// rand, random, drand48 and their seeds. What libraries below the runtime draw is libc's own. After initstate
// or setstate, random() is libc's and the rank's.
// Thread safety: as libc's.
#include <sched.h>
#include <stdlib.h>

#include <array>
#include <atomic>
#include <bit>
#include <cstring>

#include "base/call_selector.h"
#include "comm/requests.h"
#include "gas/regions.h"
#include "runtime/process/random_numbers.h"
#include "runtime/process/shared_process.h"
#include "runtime/process/state_holder.h"
#include "runtime/process/static_results.h"
#include "runtime/rank/hidden.h"
#include "runtime/rank/process_state.h"
#include "runtime/rank/warn.h"

namespace kasane::runtime {
namespace {

/// libc's states, as words that another rank can read; in their initial values, where random's seed is 1.
struct Numbers {
  std::int32_t state[32] = {};  ///< the first is libc's description
  std::uint16_t front = 0, rear = 0;
  bool begun = false;
  drand48_data of_48_bits = {};
};
constexpr std::size_t kWords = sizeof(Numbers) / sizeof(std::uint64_t);
static_assert(sizeof(Numbers) % sizeof(std::uint64_t) == 0);

constinit std::atomic_flag g_drawing;
constinit Numbers g_random_numbers;              ///< under g_drawing, as the next
constinit Holder g_holder{Holder::Stage::held};  ///< so in a process that is no rank

/// Short: the handler of a message waits for it. A signal handler, which may draw, comes afterwards. acquire
/// and release: the numbers.
template <class F>
auto while_drawing(const F& f) noexcept {
  const PassedCalls passed;
  for (int turn = 0; g_drawing.test_and_set(std::memory_order_acquire); ++turn)
    if (turn >= 64) ::sched_yield();
  const auto result = f(g_random_numbers);
  g_drawing.clear(std::memory_order_release);
  return result;
}

/// libc's random_data of these numbers, while the object lives.
class RandomData {
 public:
  explicit RandomData(Numbers& n) noexcept : numbers_(n) {
    auto* const text = reinterpret_cast<char*>(n.state);
    if (!n.begun) {
      ::initstate_r(1, text, sizeof n.state, &data_);
      n.begun = true;
      return;
    }
    data_.state = n.state + 1;
    data_.fptr = data_.state + n.front;
    data_.rptr = data_.state + n.rear;
    data_.rand_type = 3;  // TYPE_3: x**31 + x**3 + 1
    data_.rand_deg = 31;
    data_.rand_sep = 3;
    data_.end_ptr = data_.state + data_.rand_deg;
  }
  RandomData(const RandomData&) = delete;
  RandomData& operator=(const RandomData&) = delete;
  ~RandomData() {
    numbers_.front = static_cast<std::uint16_t>(data_.fptr - data_.state);
    numbers_.rear = static_cast<std::uint16_t>(data_.rptr - data_.state);
  }
  random_data* operator&() noexcept { return &data_; }

 private:
  Numbers& numbers_;
  random_data data_ = {};
};

std::uint64_t next_of_48_bits(RandomCall::Kind kind, drand48_data& data) noexcept {
  double fraction = 0;
  long number = 0;
  switch (kind) {
    case RandomCall::Kind::drand48:
      ::drand48_r(&data, &fraction);
      return std::bit_cast<std::uint64_t>(fraction);
    case RandomCall::Kind::lrand48: ::lrand48_r(&data, &number); break;
    default: ::mrand48_r(&data, &number);
  }
  return static_cast<std::uint64_t>(number);
}

std::uint64_t draw_from(Numbers& numbers, const RandomCall& call) noexcept {
  drand48_data& of_48_bits = numbers.of_48_bits;
  std::uint16_t parameter[7];
  std::memcpy(parameter, call.parameter, sizeof parameter);
  switch (call.kind) {
    case RandomCall::Kind::random: {
      std::int32_t number = 0;
      RandomData data(numbers);
      ::random_r(&data, &number);
      return static_cast<std::uint64_t>(number);
    }
    case RandomCall::Kind::srandom: {
      RandomData data(numbers);
      ::srandom_r(static_cast<unsigned>(call.seed), &data);
      return 0;
    }
    case RandomCall::Kind::srand48: ::srand48_r(static_cast<long>(call.seed), &of_48_bits); return 0;
    case RandomCall::Kind::seed48: {
      ::seed48_r(parameter, &of_48_bits);
      std::uint64_t before = 0;
      std::memcpy(&before, of_48_bits.__old_x, sizeof of_48_bits.__old_x);
      return before;
    }
    case RandomCall::Kind::lcong48: ::lcong48_r(parameter, &of_48_bits); return 0;
    default: return next_of_48_bits(call.kind, of_48_bits);
  }
}

HolderAction after(HolderEvent event) noexcept {
  return while_drawing([event](const Numbers&) {
    const HolderStep step = next(g_holder, event);
    g_holder = step.holder;
    return step.action;
  });
}

struct Question {
  enum class Kind : std::uint32_t { last, state, word };
  Kind kind;
  std::uint32_t word = 0;
};

/// use: that was done. refuse: the rank does not hold the state, and another thread fetches it, or fetch is
/// false.
HolderAction try_to_draw(const RandomCall& call, std::uint64_t& number, bool fetch) noexcept {
  return while_drawing([&](Numbers& numbers) {
    const bool held = g_holder.stage == Holder::Stage::held;
    if (!held && (!fetch || g_holder.stage != Holder::Stage::away)) return HolderAction::refuse;
    const HolderStep step = next(g_holder, HolderEvent::want);
    g_holder = step.holder;
    if (step.action == HolderAction::use) number = draw_from(numbers, call);
    return step.action;
  });
}

}  // namespace

/// Draws also where the rank does not hold the state: in a fork's child.
std::uint64_t draw(const RandomCall& call) noexcept {
  return while_drawing([&call](Numbers& numbers) { return draw_from(numbers, call); });
}

void forget_drawing() noexcept { g_drawing.clear(std::memory_order_relaxed); }

RandomNumbers::RandomNumbers(comm::Transport& transport) : transport_(transport) {
  if (raw(transport.rank()) != 0) g_holder.stage = Holder::Stage::away;
  transport.set_handler(gas::kRandomHandler, &RandomNumbers::on_message, this);
}

void RandomNumbers::on_message(void* self, const comm::Message& received) noexcept {
  auto& numbers = *static_cast<RandomNumbers*>(self);
  const auto question = gas::value_of<Question>(received);
  std::uint64_t answer = 0;
  switch (question.kind) {
    case Question::Kind::last:
      // relaxed: the messages order the rest
      answer = numbers.last_.exchange(raw(received.token.requester), std::memory_order_relaxed);
      break;
    case Question::Kind::state: answer = after(HolderEvent::asked) == HolderAction::give ? 1 : 0; break;
    case Question::Kind::word: {
      const auto at = reinterpret_cast<const std::byte*>(&g_random_numbers);
      std::memcpy(&answer, at + question.word * sizeof answer, sizeof answer);
    }
  }
  numbers.transport_.reply(received.token, answer);
}

void RandomNumbers::fetch_state(comm::Blocking& io) {
  const Question ask_last{Question::Kind::last}, ask_state{Question::Kind::state};
  const Rank predecessor{
      static_cast<std::uint32_t>(io.request(Rank{0}, gas::kRandomHandler, comm::as_payload(ask_last)))};
  after(HolderEvent::told);
  while (io.request(predecessor, gas::kRandomHandler, comm::as_payload(ask_state)) == 0) {
    after(HolderEvent::refused);
    io.waiter().pause();
  }
  std::array<std::uint64_t, kWords> words;
  comm::Requests requests(io);
  for (std::uint32_t i = 0; i < kWords; ++i) {
    const Question ask_word{Question::Kind::word, i};
    requests.post(predecessor, gas::kRandomHandler, comm::as_payload(ask_word), {&words[i]});
  }
  requests.await();
  g_random_numbers = std::bit_cast<Numbers>(words);  // no other thread uses them
}

std::uint64_t RandomNumbers::draw(comm::Blocking& io, const RandomCall& call) {
  for (;; io.waiter().pause()) {
    std::uint64_t number = 0;
    const HolderAction action = try_to_draw(call, number, true);
    if (action == HolderAction::use) return number;
    if (action != HolderAction::ask_last) continue;
    fetch_state(io);
    return while_drawing([&call](Numbers& numbers) {
      g_holder = next(g_holder, HolderEvent::given).holder;
      return draw_from(numbers, call);
    });
  }
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
  std::uint64_t number = 0;
  if (try_to_draw(call, number, false) == HolderAction::use) return number;
  SharedProcess* const shared = SharedProcess::current();
  return shared != nullptr ? shared->draw(call) : draw(call);
}
std::uint64_t of_program(RandomCall::Kind kind, std::uint64_t seed = 0) noexcept {
  RandomCall call;
  call.kind = kind;
  call.seed = seed;
  return of_program(call);
}

void has_own_state() noexcept {
  if (!g_own_state.exchange(true) && SharedProcess::current() != nullptr) {
    CrashText text;
    text.add("kasane: initstate, setstate: random() on rank ").decimal(raw(process().rank));
    text.add(" has a state of its own; other ranks draw other numbers (random_r has a state anywhere)\n");
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
KASANE_SHOWN void srand48(long seed) noexcept { of_program(Kind::srand48, static_cast<std::uint64_t>(seed)); }
KASANE_SHOWN std::uint16_t* seed48(std::uint16_t seed[3]) noexcept {
  static constinit std::uint16_t of_process[3] = {};
  StaticResults* const results = static_results();
  std::uint16_t* const before = results != nullptr ? results->random_before : of_process;
  RandomCall call;
  call.kind = Kind::seed48;
  std::memcpy(call.parameter, seed, sizeof of_process);
  const std::uint64_t number = of_program(call);
  std::memcpy(before, &number, sizeof of_process);
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
