// SPDX-License-Identifier: Apache-2.0
// One run of `kasane bench gas` in one job of three ranks, all of which run main: rank 0 measures; rank 1
// owns what it asks for; rank 2 shares. Prints a line "case microseconds operations" for each case of each
// repetition.
//   kasane run -n 3 --main all -- kasane-gas-player REPETITIONS CALLS
//
// The others do what rank 0 tells them by messages, which their service threads take: their mains sleep, or
// compute without calling Kasane.
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <kasane/kasane.hpp>
#include <vector>

#include "base/assert.h"
#include "base/clock.h"
#include "comm/blocking.h"
#include "gas/direct_access.h"
#include "runtime/api/direct.h"
#include "runtime/rank/runtime.h"

namespace {

using namespace kasane;

// Of those that the runtime leaves free.
constexpr comm::HandlerId kTell{40}, kAsk{41}, kEcho{42};
constexpr std::uint32_t kRanks = 3;

enum class Command : std::uint64_t { none, own, put, compute, rest, quit };
struct Order {
  Command command;
  std::uint64_t address;
};

std::atomic<std::uint64_t> g_command{0}, g_address{0};
std::atomic<bool> g_computing{false}, g_ready{false};
comm::Transport* g_transport = nullptr;

void on_tell(void*, const comm::Message& m) noexcept {
  Order order;
  std::memcpy(&order, m.payload.data(), sizeof order);
  g_address.store(order.address);
  g_command.store(static_cast<std::uint64_t>(order.command));
  g_computing.store(false);
  g_transport->reply(m.token, 0);
}
void on_ask(void*, const comm::Message& m) noexcept {
  g_transport->reply(m.token, g_ready.load() && g_command.load() == 0 ? 1 : 0);
}
void on_echo(void*, const comm::Message& m) noexcept { g_transport->reply(m.token, 7); }

/// Ranks 1 and 2.
int serve() {
  g_ready.store(true);
  volatile std::uint64_t work = 0;
  for (;;) {
    const auto command = static_cast<Command>(g_command.load());
    auto* const at = reinterpret_cast<std::uint64_t*>(g_address.load());
    switch (command) {
      case Command::none: ::usleep(100); continue;
      case Command::own: KASANE_CHECK(runtime::Runtime::current()->own(at, 8).has_value()); break;
      case Command::put: kasane::put(global_ptr<std::uint64_t>(at + 1), std::uint64_t{1}); break;
      case Command::compute:
        g_computing.store(true);
        g_command.store(0);
        while (g_computing.load(std::memory_order_relaxed)) work = work + 1;  // relaxed: ends soon enough
        continue;
      case Command::rest: break;
      case Command::quit: return 0;
    }
    g_command.store(0);
  }
}

class Bench {
 public:
  Bench(int repetitions, unsigned calls)
      : direct_(runtime::Runtime::current()->direct()),
        access_(direct_.access()),
        transport_(access_.transport()),
        waiter_(transport_),
        io_(transport_, waiter_, &counters_),
        repetitions_(repetitions),
        calls_(calls) {
    for (std::uint32_t r = 1; r < kRanks; ++r) wait_for(Rank{r});
    find_pages();
  }

  void run() {
    for (int i = 0; i < repetitions_; ++i) {
      report("comm-read", calls_, [&] { return comm_read(offset_); });
      report("am-round-trip", calls_, [&] { KASANE_CHECK_OP(io_.request(Rank{1}, kEcho, {}), ==, 7u); });
      std::uint64_t word = 0;
      kasane::get(&word, cell_);
      report("get-hit", calls_, [&] { kasane::get(&word, cell_); });
      KASANE_CHECK_OP(word, ==, kValue);
      kasane::put(cell_ + 2, &word);
      report("put-hit", calls_, [&] { kasane::put(cell_ + 2, &word); });
      report("put-hit-fixed", calls_, [&] { kasane::put(fixed_, &word); });
      report("add-hit", calls_, [&] { kasane::fetch_add(cell_ + 3, 1u); });
      report("add-hit-fixed", calls_, [&] { kasane::fetch_add(fixed_ + 1, 1u); });
      report("get-uncached", calls_, [&] {
        const auto& directory = access_.addresses().directory();
        KASANE_CHECK_OP(raw(directory.lookup(io_, directory.pages().page_of(offset_)).owner), ==, 1u);
        comm_read(offset_);
      });
      report("get-miss", misses(), [&] { kasane::get(&word, fresh_[0][used_[0]++]); });
      report("get-miss-third", misses(), [&] { kasane::get(&word, fresh_[1][used_[1]++]); });
      if (i % 4 != 0) continue;  // a move takes long, and needs the others
      for (unsigned k = 0; k < 4; ++k) own("own", small_);
      for (unsigned k = 0; k < 4; ++k) own("own-64k", moving_);
      for (unsigned k = 0; k < 4; ++k)
        own("own-target-computes", small_, [&] {
          report("am-target-computes", 4, [&] { KASANE_CHECK_OP(io_.request(Rank{1}, kEcho, {}), ==, 7u); });
        });
    }
    for (std::uint32_t r = 1; r < kRanks; ++r) tell(Rank{r}, Command::quit, 0, false);
  }

 private:
  static constexpr std::uint64_t kZero = 0;
  static constexpr std::uint64_t kValue = 0x1234567890abcdef;

  std::uint64_t operations() const {
    return counters_.remote_operations.load() +
           counter("remote_operations", 0);  // Bench's own, and this thread's inside of Kasane
  }

  template <class F>
  void report(const char* name, unsigned calls, const F& call) {
    const std::uint64_t before = operations(), start = now_ns();
    for (unsigned i = 0; i < calls; ++i) call();
    const std::uint64_t ns = now_ns() - start;
    std::printf("%s %.5f %.2f\n", name, static_cast<double>(ns) / 1e3 / calls,
                static_cast<double>(operations() - before) / calls);
  }

  /// The same read by comm alone.
  void comm_read(std::uint64_t offset) {
    std::uint64_t word = 0;
    gas::Outstanding o(1);
    io_.count_round_trip({Rank{1}, gas::kFrames, offset});
    const comm::Callback done{
        .fn = [](void* p, comm::Status s) noexcept { static_cast<gas::Outstanding*>(p)->end(s); },
        .context = &o};
    while (!access_.engine().try_read_async({.from = {Rank{1}, gas::kFrames, offset},
                                             .to = comm::private_memory(&word),
                                             .bytes = 8,
                                             .on_complete = done})) {
      transport_.progress();
    }
    waiter_.until([&] { return o.done(); });
    KASANE_CHECK_OP(word, ==, kValue);
  }

  /// Rank 1 has the page, rank 2 knows where it is; this rank brings it. measure: null, or what else is
  /// measured while rank 1 computes.
  void own(const char* name, std::uint64_t* page, const std::function<void()>& measure = {}) {
    tell(Rank{1}, Command::own, reinterpret_cast<std::uint64_t>(page));
    tell(Rank{2}, Command::put, reinterpret_cast<std::uint64_t>(page));
    if (measure) {
      tell(Rank{1}, Command::compute, 0);
      measure();
    }
    const std::uint64_t before = operations(), start = now_ns();
    KASANE_CHECK(runtime::Runtime::current()->own(page, 8).has_value());
    const std::uint64_t ns = now_ns() - start;
    if (measure) tell(Rank{1}, Command::rest, 0);
    std::printf("%s %.5f %.2f\n", name, static_cast<double>(ns) / 1e3,
                static_cast<double>(operations() - before));
  }

  void tell(Rank rank, Command command, std::uint64_t address, bool wait = true) {
    const Order order{command, address};
    io_.request(rank, kTell, comm::as_payload(order));
    if (wait) wait_for(rank);
  }
  void wait_for(Rank rank) {
    while (io_.request(rank, kAsk, {}) == 0) ::usleep(100);
  }

  [[nodiscard]] static std::uint64_t offset_of(const std::byte* at) {
    return static_cast<std::uint64_t>(at - runtime::Runtime::current()->space_base());
  }
  /// Is the page at rank 1, and its entry at `manager`?
  [[nodiscard]] bool lies(const std::byte* at, Rank manager) {
    const auto& directory = access_.addresses().directory();
    const PageId page = directory.pages().page_of(offset_of(at));
    return raw(directory.lookup(io_, page).owner) == 1 && directory.manager(page) == manager;
  }
  [[nodiscard]] unsigned misses() const noexcept { return calls_ < 200 ? calls_ : 200; }

  /// Pages at rank 1, whose entries it keeps, too: then all requests go to one rank, as in what it is
  /// compared with. Of get-miss-third rank 2 keeps them, and sleeps.
  void find_pages() {
    const std::size_t fresh = static_cast<std::size_t>(repetitions_) * misses(), pages = kRanks * (fresh + 4);
    auto* const memory =
        static_cast<std::byte*>(kasane::allocate(pages * mem::kPageBytes, mem::kPageBytes, placement::on(1)));
    for (std::size_t p = 0; p < pages; ++p) {
      std::byte* const at = memory + p * mem::kPageBytes;
      auto* const word = reinterpret_cast<std::uint64_t*>(at);
      const bool near = lies(at, Rank{1});
      if (!near && !lies(at, Rank{2})) continue;
      if (near && cell_ == nullptr) {
        cell_ = global_ptr<std::uint64_t>(word);
        offset_ = offset_of(at);
        kasane::put(cell_, kValue);
      } else if (near && moving_ == nullptr) {
        moving_ = word;
      } else {
        fresh_[near ? 0 : 1].push_back(global_ptr<std::uint64_t>(word));
        // The memory is there, and mapped: a miss of the address is what is measured, not one of the
        // kernel's.
        io_.write({Rank{1}, gas::kFrames, offset_of(at)}, &kZero, 8);
      }
    }
    auto* const small = static_cast<std::byte*>(
        kasane::allocate(kRanks * page_small, page_small, placement::on(1).in_pages(page_small)));
    for (std::size_t p = 0; p < kRanks && small_ == nullptr; ++p) {
      if (lies(small + p * page_small, Rank{1}))
        small_ = reinterpret_cast<std::uint64_t*>(small + p * page_small);
    }
    KASANE_CHECK(small_ != nullptr && fresh_[0].size() >= fresh && fresh_[1].size() >= fresh);
  }

  runtime::Direct& direct_;
  gas::DirectAccess& access_;
  comm::Transport& transport_;
  Counters counters_;
  comm::PollWaiter waiter_;
  comm::Blocking io_;
  int repetitions_;
  unsigned calls_;
  global_ptr<std::uint64_t> cell_;
  const global_ptr<std::uint64_t> fixed_{
      static_cast<std::uint64_t*>(kasane::allocate_zeroed(mem::kPageBytes, 64, placement::on(1).fixed()))};
  std::uint64_t offset_ = 0;
  std::uint64_t *moving_ = nullptr, *small_ = nullptr;  ///< of pages of 64 and 4 KiB
  std::vector<global_ptr<std::uint64_t>> fresh_[2];     ///< by the rank that keeps the entry: rank 1, rank 2
  std::size_t used_[2] = {0, 0};
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3 || kasane::ranks() != kRanks) {
    std::fprintf(stderr, "kasane-gas-player REPETITIONS CALLS: on %u ranks, of which all run main\n", kRanks);
    return 2;
  }
  g_transport = &kasane::runtime::Runtime::current()->direct().access().transport();
  g_transport->set_handler(kTell, on_tell, nullptr);
  g_transport->set_handler(kAsk, on_ask, nullptr);
  g_transport->set_handler(kEcho, on_echo, nullptr);
  if (kasane::rank() != 0) return serve();
  ::usleep(300'000);  // the others have set their handlers: nothing else says so
  Bench(std::atoi(argv[1]), static_cast<unsigned>(std::atoi(argv[2]))).run();
  return 0;
}
