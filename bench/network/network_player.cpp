// SPDX-License-Identifier: Apache-2.0
// One run of `kasane bench network` in a job of two ranks, both of which run main: rank 0 measures what
// operations on rank 1 take, rank 1 polls or sleeps. Prints a line "NAME VALUE" for each figure of each
// repetition, ns; "mapped" and "target_works" are 0 or 1.
//   kasane run -n 2 --workers 1 --main all --debug relocate=off -- kasane-network-player REPETITIONS CALLS
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <kasane/kasane.hpp>
#include <vector>

#include "base/clock.h"
#include "comm/batch.h"
#include "gas/direct_access.h"
#include "runtime/api/direct.h"
#include "runtime/rank/runtime.h"

namespace {

using namespace kasane;

// Of those that the runtime leaves free.
constexpr comm::HandlerId kTell{40}, kAsk{41};
constexpr Rank kThere{1};
constexpr std::size_t kWindow = 64, kLarge = 65536, kBlock = 4096;

enum class Command : std::uint64_t { rest, poll, quit };
std::atomic<std::uint64_t> g_command{0};
std::atomic<bool> g_ready{false};
comm::Transport* g_transport = nullptr;

void on_tell(void*, const comm::Message& m) noexcept {
  std::uint64_t command;
  std::memcpy(&command, m.payload.data(), sizeof command);
  g_command.store(command);
  g_transport->reply(m.token, 0);
}
void on_ask(void*, const comm::Message& m) noexcept { g_transport->reply(m.token, g_ready.load() ? 1 : 0); }

/// Rank 1.
int serve() {
  g_ready.store(true);
  for (;;) {
    switch (static_cast<Command>(g_command.load())) {
      case Command::rest: ::usleep(200); break;
      case Command::poll: g_transport->progress(); break;
      case Command::quit: return 0;
    }
  }
}

class Measurement {
 public:
  explicit Measurement(unsigned calls)
      : transport_(*g_transport), waiter_(transport_), io_(transport_, waiter_, &counters_), calls_(calls) {
    while (io_.request(kThere, kAsk, {}) == 0) ::usleep(100);
    memory_ =
        static_cast<std::byte*>(allocate_zeroed(kWindow * kLarge, mem::kPageBytes, placement::on(1).fixed()));
    offset_ = static_cast<std::uint64_t>(memory_ - runtime::Runtime::current()->space_base());
    // The memory is there: nothing of the kernel's is measured.
    std::vector<std::byte> ones(kLarge, std::byte{1});
    for (std::size_t i = 0; i < kWindow; ++i) io_.write(there(i * kLarge), ones.data(), kLarge);
    std::printf("mapped %d\n", transport_.mapped(kThere, gas::kFrames) != nullptr ? 1 : 0);
    std::printf("target_works %d\n", transport_.facts().target_cpu_needed ? 1 : 0);
  }
  ~Measurement() { tell(Command::quit); }
  Measurement(const Measurement&) = delete;
  Measurement& operator=(const Measurement&) = delete;

  void repeat() {
    tell(Command::poll);
    std::uint64_t word = 0;
    say("read", calls_, [&] { io_.read(there(0), &word, 8); });
    say("request", calls_, [&] { static_cast<void>(io_.request(kThere, kAsk, {})); });
    issue();
    say("each", calls_, [&] { many(8); }, kWindow);
    say("large", calls_ / 16 + 1, [&] { many(kLarge); }, kWindow * kLarge);
    tell(Command::rest);
    // The service thread is asleep again after each.
    std::uint64_t ns = 0;
    const unsigned calls = calls_ / 8 + 1;
    for (unsigned i = 0; i < calls; ++i) {
      const std::uint64_t until = now_ns() + 300'000;
      while (now_ns() < until) {  // this rank stays awake
      }
      const std::uint64_t begin = now_ns();
      static_cast<void>(io_.request(kThere, kAsk, {}));
      ns += now_ns() - begin;
    }
    std::printf("asleep %.1f\n", static_cast<double>(ns) / calls);
    misses();
  }

 private:
  [[nodiscard]] comm::RemoteAddr there(std::uint64_t at) const {
    return {kThere, gas::kFrames, offset_ + at};
  }
  void tell(Command command) {
    const auto value = static_cast<std::uint64_t>(command);
    static_cast<void>(io_.request(kThere, kTell, comm::as_payload(value)));
  }
  template <class F>
  void say(const char* name, unsigned calls, const F& call, std::size_t each = 1) {
    call();
    const std::uint64_t begin = now_ns();
    for (unsigned i = 0; i < calls; ++i) call();
    std::printf("%s %.5f\n", name, static_cast<double>(now_ns() - begin) / calls / static_cast<double>(each));
  }
  /// Reads that are under way together.
  void many(std::size_t bytes) {
    comm::Batch batch(io_);
    for (std::size_t i = 0; i < kWindow; ++i) batch.read(there(i * kLarge), into_.data() + i * bytes, bytes);
  }
  /// What the calls take that post a read.
  void issue() {
    std::uint64_t ns = 0;
    for (unsigned i = 0; i < calls_; ++i) {
      comm::Batch batch(io_);
      const std::uint64_t empty = now_ns(), begin = now_ns();
      for (std::size_t k = 0; k < kIssued; ++k) batch.read(there(k * kLarge), into_.data() + 8 * k, 8);
      const std::uint64_t end = now_ns();
      ns += end - begin - std::min(end - begin, begin - empty);
    }
    std::printf("issue %.5f\n", static_cast<double>(ns) / calls_ / kIssued);
  }
  /// A load of a block of a page that is known, without what its operations take: the other end sleeps, as
  /// where programs compute, or the network serves it.
  void misses() {
    const volatile std::byte* const data = memory_;
    std::byte sum = data[0];
    acquire_all();
    std::uint64_t ns = 0, operations = 0;
    const std::size_t blocks = std::min<std::size_t>(calls_, 64);
    tell(Command::poll);
    for (std::size_t i = 0; i < blocks; ++i) {
      const std::uint64_t before = counter("remote_operations", 0), begin = now_ns();
      sum |= data[i * 7 % kWindow * kLarge + (i + 1) % 16 * kBlock];  // no run of neighbours
      ns += now_ns() - begin;
      operations += counter("remote_operations", 0) - before;
    }
    tell(Command::rest);
    if (sum == std::byte{0}) std::abort();
    std::printf("miss %.1f\n", static_cast<double>(ns) / static_cast<double>(blocks));
    std::printf("operations %.2f\n", static_cast<double>(operations) / static_cast<double>(blocks));
  }

  static constexpr std::size_t kIssued = 16;  ///< few enough that no queue is full
  comm::Transport& transport_;
  Counters counters_;
  comm::PollWaiter waiter_;
  comm::Blocking io_;
  unsigned calls_;
  std::byte* memory_ = nullptr;
  std::uint64_t offset_ = 0;
  std::vector<std::byte> into_ = std::vector<std::byte>(kWindow * kLarge);
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3 || ranks() != 2) {
    std::fprintf(stderr, "kasane-network-player REPETITIONS CALLS: on 2 ranks, of which both run main\n");
    return 2;
  }
  g_transport = &runtime::Runtime::current()->direct().access().transport();
  g_transport->set_handler(kTell, on_tell, nullptr);
  g_transport->set_handler(kAsk, on_ask, nullptr);
  if (rank() != 0) return serve();
  ::usleep(300'000);  // the other has set its handlers: nothing else says so
  Measurement measurement(static_cast<unsigned>(std::atoi(argv[2])));
  for (int i = std::atoi(argv[1]); i != 0; --i) measurement.repeat();
  return 0;
}
