// SPDX-License-Identifier: Apache-2.0
// What is particular to the mpi transport: progress while a target computes, memory that is not populated,
// signals that stay ours, the stack that calls need, data out of band, and what happens when a rank dies.
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/clock.h"
#include "multi/comm/every_transport.h"
#include "multi/mpi/mpi_ranks.h"

namespace kasane::comm::mpi::test {
namespace {

using kasane::comm::test::Env;
using kasane::comm::test::Kind;
using kasane::comm::test::kRegion;
using kasane::comm::test::make_memfd;

void on_every_rank(const comm::test::Body& body, Options how = options()) {
  Bells bells{};
  auto transport = create(library(), bells, how);
  ASSERT_TRUE(transport) << transport.error().message;
  comm::test::run_over(**transport, Kind::mpi, /*service_wanted=*/true, body);
}

TEST(Mpi, EverybodysBytesReachEverybody) {
  OutOfBand& out = library()->out_of_band();
  for (const std::size_t unit : {std::size_t{0}, std::size_t{1}, std::size_t{100'000}}) {
    const std::string mine(unit * raw(out.rank()),
                           static_cast<char>('a' + raw(out.rank())));  // rank 0 has nothing to say
    const auto all = out.allgather(mine);
    ASSERT_TRUE(all) << all.error().message;
    ASSERT_EQ(all->size(), out.ranks());
    for (std::uint32_t r = 0; r < out.ranks(); ++r)
      EXPECT_EQ((*all)[r], std::string(unit * r, static_cast<char>('a' + r)));
  }
}

TEST(Mpi, TheFactsNameTheLibrary) {
  EXPECT_TRUE(Library::launched());
  on_every_rank([](Env& env) {
    const Facts facts = env.transport.facts();
    EXPECT_EQ(facts.name, "mpi");
    EXPECT_EQ(facts.detail.substr(0, library()->name().size()), library()->name());
    EXPECT_GT(facts.poll_every_ns, 0);
    if (env.me() == 0) std::printf("%.*s\n", static_cast<int>(facts.detail.size()), facts.detail.data());
  });
}

// Nobody may take the faults from us, neither when the MPI is loaded nor when it is used.
TEST(Mpi, TheSignalsOfFaultsStayAsTheyWere) {
  for (const int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) {
    struct sigaction now{};
    ASSERT_EQ(::sigaction(number, nullptr, &now), 0);
    EXPECT_EQ(now.sa_handler, SIG_DFL) << "signal " << number;
  }
}

TEST(Mpi, AttachingATebibyteNeitherPopulatesNorPinsIt) {
  constexpr std::size_t kBytes = std::size_t{1} << 40;
  constexpr RegionId kHuge{2};
  on_every_rank([](Env& env) {
    const int fd = make_memfd(kBytes);
    void* map = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    ASSERT_NE(map, MAP_FAILED);
    ASSERT_TRUE(env.transport.attach(kHuge, fd, static_cast<std::byte*>(map), kBytes));
    struct stat file{};
    ASSERT_EQ(::fstat(fd, &file), 0);
    EXPECT_LT(static_cast<std::size_t>(file.st_blocks) * 512, std::size_t{16} << 20);
    env.all.barrier();
    // Both ends of it can be reached.
    auto ops = env.blocking();
    for (const std::uint64_t offset : {std::uint64_t{0}, kBytes / 2 + 4096, kBytes - 8}) {
      const std::uint64_t mine = env.me() + offset + 1;
      ops.write({env.next(), kHuge, offset}, &mine, sizeof(mine));
      std::uint64_t back = 0;
      ops.read({env.next(), kHuge, offset}, &back, sizeof(back));
      EXPECT_EQ(back, mine);
    }
    env.all.barrier();
    // A rank that sleeps now does so until all have unmapped: the window is closed with the transport, before
    // the mapping would be missed.
    ::close(fd);
  });
}

TEST(Mpi, DifferentSizesAreAnErrorOnEveryRank) {
  if (library()->ranks() == 1) GTEST_SKIP() << "nobody to disagree with";
  Bells bells{};
  auto transport = create(library(), bells, options());
  ASSERT_TRUE(transport) << transport.error().message;
  const std::size_t bytes = library()->rank() == Rank{1} ? 8192 : 4096;
  const int fd = make_memfd(bytes);
  auto* map = static_cast<std::byte*>(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
  EXPECT_FALSE((*transport)->attach(RegionId{0}, fd, map, bytes));
  ::close(fd);
}

// Large data, by every way there is, through the same slots again and again.
TEST(Mpi, LargeTransfersOfAllRanksAtOnceArriveWhole) {
  on_every_rank([](Env& env) {
    constexpr std::size_t kEach = 300'000;
    static_assert(4 * kEach < comm::test::kRegionBytes);
    auto filled = [](std::uint32_t rank, int round) {
      return std::vector<std::byte>(kEach, static_cast<std::byte>(rank * 16 + static_cast<unsigned>(round)));
    };
    auto ops = env.blocking();
    for (int round = 0; round < 10; ++round) {
      const auto mine = filled(env.me(), round);
      for (std::uint32_t r = 0; r < env.ranks(); ++r)
        ops.write({Rank{r}, kRegion, env.me() * kEach}, mine.data(), kEach);
      env.all.barrier();
      for (std::uint32_t r = 0; r < env.ranks(); ++r) {
        EXPECT_EQ(std::memcmp(env.memory + r * kEach, filled(r, round).data(), kEach), 0)
            << "from rank " << r;
        std::vector<std::byte> back(kEach);
        ops.read({Rank{(r + 1) % env.ranks()}, kRegion, r * kEach}, back.data(), kEach);
        EXPECT_EQ(back, filled(r, round));
      }
      env.all.barrier();
    }
  });
}

// The flag never comes before the bytes, whether they are small, or travel by themselves.
TEST(Mpi, AFlagThatIsSeenSaysThatTheBytesAreThere) {
  on_every_rank([](Env& env) {
    constexpr std::uint64_t kFlag = 0, kData = 64;
    const std::uint32_t before = (env.me() + env.ranks() - 1) % env.ranks();
    std::uint64_t round = 0;
    for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{56}, std::size_t{4096},
                                    std::size_t{8192}, std::size_t{8193}, std::size_t{500'000}}) {
      for (int i = 0; i < 20; ++i) {
        ++round;
        const std::vector<std::byte> mine(bytes, static_cast<std::byte>(round * 5 + env.me()));
        struct Done : Completion {
          std::atomic<bool> here{false};
        } done;
        done.fn = [](Completion* c) noexcept { static_cast<Done*>(c)->here.store(true); };
        Post posted = Post::again;
        env.waiter.until([&] {
          if (posted == Post::again)
            posted = env.transport.write_notify({env.next(), kRegion, kData}, mine.data(), bytes, kFlag,
                                                round, &done);
          return posted == Post::done || done.here.load();
        });
        env.waiter.until([&] { return env.word(0).load(std::memory_order_acquire) == round; });
        const auto expected = static_cast<std::byte>(round * 5 + before);
        EXPECT_TRUE(std::all_of(env.memory + kData, env.memory + kData + bytes, [&](std::byte b) {
          return b == expected;
        })) << bytes;
        env.all.barrier();
      }
    }
  });
}

// The target's program computes and never enters the MPI; its service thread does. Everything the others ask
// of it must end meanwhile.
TEST(Mpi, ATargetThatComputesIsServedByItsServiceThread) {
  if (library()->ranks() == 1) GTEST_SKIP() << "nobody to serve";
  on_every_rank([](Env& env) {
    constexpr std::uint64_t kSum = 0, kStop = 8, kPlace = 4096;
    constexpr std::uint64_t kRounds = 50;
    env.all.barrier();
    if (env.me() == 0) {
      // Ends when all have told it, by operations on its memory alone.
      volatile std::uint64_t work = 0;
      while (env.word(kStop / 8).load() != env.ranks() - 1) {
        for (int i = 0; i < 1000; ++i) work = work + 1;
      }
      EXPECT_EQ(env.word(kSum / 8).load(), kRounds * (env.ranks() - 1));
    } else {
      auto ops = env.blocking();
      std::vector<std::byte> back(20'000);
      for (std::uint64_t i = 0; i < kRounds; ++i) {
        for (const std::size_t bytes : {std::size_t{8}, std::size_t{4096}, std::size_t{20'000}}) {
          const std::vector<std::byte> out(bytes, static_cast<std::byte>(i + env.me()));
          const RemoteAddr at{Rank{0}, kRegion, kPlace * (1 + 8 * env.me())};
          ops.write(at, out.data(), bytes);
          ops.read(at, back.data(), bytes);
          EXPECT_TRUE(std::equal(out.begin(), out.end(), back.begin()));
        }
        ops.fetch_add({Rank{0}, kRegion, kSum}, 1);
      }
      ops.fetch_add({Rank{0}, kRegion, kStop}, 1);
    }
    env.all.barrier();
  });
}

// ---- everything at once -----------------------------------------------------------------------------------

/// One thread's share of every peer's region, what it must hold, and one operation at a time on it, drawn
/// from a seed.
class Mixed {
 public:
  Mixed(Env& env, Waiter& waiter, int thread, std::uint64_t seed)
      : env_(env),
        ops_(env.transport, waiter),
        waiter_(waiter),
        random_(seed * 1000 + env.me() * 10 + static_cast<unsigned>(thread) + 1),
        base_(kFirst + (env.me() * 2 + static_cast<std::uint64_t>(thread)) * kShare),
        held_(env.ranks()) {
    for (auto& h : held_) h.assign(kShare, std::byte{0});
  }
  void step() {
    const auto peer = static_cast<std::uint32_t>(draw(env_.ranks()));
    switch (draw(6)) {
      case 0: return write(peer);
      case 1: return check(peer);
      case 2: return notify(peer);
      case 3: return count(peer);
      case 4: EXPECT_EQ(ops_.request(Rank{peer}, HandlerId{7}, as_payload(base_)), base_ * 3 + peer); return;
      default: ops_.send(Rank{peer}, HandlerId{8}, as_payload(base_)); ++sent;
    }
  }
  void check_all() {
    for (std::uint32_t r = 0; r < env_.ranks(); ++r) compare(r, 0, kShare);
  }
  std::uint64_t sent = 0;

 private:
  static constexpr std::size_t kShare = 128 * 1024, kFlag = kShare - 8, kCounter = kShare - 16,
                               kData = kShare - 64;
  static constexpr std::size_t kFirst = 4096;
  static_assert(kFirst + 8 * kShare < comm::test::kRegionBytes);

  std::uint64_t draw(std::uint64_t below) {
    random_ = random_ * 6364136223846793005u + 1442695040888963407u;
    return (random_ >> 33) % below;
  }
  /// Small ones mostly, some in bulk.
  std::pair<std::size_t, std::size_t> range() {
    const std::size_t most = draw(8) == 0 ? kData : draw(4) == 0 ? 9000 : 200;
    const std::size_t bytes = draw(most + 1);
    return {draw(kData - bytes + 1), bytes};
  }
  [[nodiscard]] RemoteAddr at(std::uint32_t peer, std::size_t offset) const {
    return {Rank{peer}, kRegion, base_ + offset};
  }
  std::vector<std::byte> fresh(std::size_t bytes) {
    std::vector<std::byte> out(bytes);
    for (auto& b : out) b = static_cast<std::byte>(draw(256));
    return out;
  }
  void keep(std::uint32_t peer, std::size_t offset, const void* bytes, std::size_t count) {
    std::memcpy(held_[peer].data() + offset, bytes, count);
  }
  void compare(std::uint32_t peer, std::size_t offset, std::size_t bytes) {
    std::vector<std::byte> back(bytes);
    ops_.read(at(peer, offset), back.data(), bytes);
    EXPECT_TRUE(
        std::equal(back.begin(), back.end(), held_[peer].begin() + static_cast<std::ptrdiff_t>(offset)))
        << bytes << " bytes at " << offset;
  }

  void write(std::uint32_t peer) {
    const auto [offset, bytes] = range();
    const auto data = fresh(bytes);
    ops_.write(at(peer, offset), data.data(), bytes);
    keep(peer, offset, data.data(), bytes);
  }
  void check(std::uint32_t peer) {
    const auto [offset, bytes] = range();
    compare(peer, offset, bytes);
  }
  void notify(std::uint32_t peer) {
    const auto [offset, bytes] = range();
    const auto data = fresh(bytes);
    const std::uint64_t value = draw(1u << 30);
    struct Done : Completion {
      std::atomic<bool> here{false};
    } done;
    done.fn = [](Completion* c) noexcept { static_cast<Done*>(c)->here.store(true); };
    Post posted = Post::again;
    waiter_.until([&] {
      if (posted == Post::again)
        posted =
            env_.transport.write_notify(at(peer, offset), data.data(), bytes, base_ + kFlag, value, &done);
      return posted == Post::done || done.here.load();
    });
    keep(peer, offset, data.data(), bytes);
    keep(peer, kFlag, &value, 8);
  }
  void count(std::uint32_t peer) {
    std::uint64_t expected = 0;
    std::memcpy(&expected, held_[peer].data() + kCounter, 8);
    const std::uint64_t by = draw(1000);
    EXPECT_EQ(ops_.fetch_add(at(peer, kCounter), by), expected);
    expected += by;
    keep(peer, kCounter, &expected, 8);
  }

  Env& env_;
  Blocking ops_;
  Waiter& waiter_;
  std::uint64_t random_;
  std::uint64_t base_;
  std::vector<std::vector<std::byte>> held_;  ///< by rank: what this thread's share must hold there
};

TEST(Mpi, MixedOperationsOfAllThreadsAgreeWithAnOracle) {
  on_every_rank([](Env& env) {
    std::atomic<std::uint64_t> received{0};
    env.transport.set_handler(
        HandlerId{7},
        [](void* context, const Message& m) noexcept {
          std::uint64_t value = 0;
          std::memcpy(&value, m.payload.data(), 8);
          auto& t = *static_cast<Transport*>(context);
          t.reply(m.token, value * 3 + raw(t.rank()));
        },
        &env.transport);
    env.transport.set_handler(
        HandlerId{8},
        [](void* context, const Message&) noexcept {
          static_cast<std::atomic<std::uint64_t>*>(context)->fetch_add(1);
        },
        &received);
    env.all.barrier();
    std::atomic<std::uint64_t> sent{0};
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      SCOPED_TRACE(::testing::Message() << "seed " << seed);
      std::memset(env.memory, 0, comm::test::kRegionBytes);
      env.all.barrier();
      env.in_parallel(2, [&](int thread, Waiter& waiter) {
        Mixed mixed(env, waiter, thread, seed);
        for (int i = 0; i < 300; ++i) mixed.step();
        mixed.check_all();
        sent.fetch_add(mixed.sent);
      });
      env.all.barrier();
    }
    // What all have sent, all have received.
    std::uint64_t totals[2] = {sent.load(), 0};
    env.all.allreduce(Collectives::Reduce::sum, std::span(totals, 1));
    for (;;) {
      totals[1] = received.load();
      env.all.allreduce(Collectives::Reduce::sum, std::span(totals + 1, 1));
      if (totals[1] >= totals[0]) break;
    }
    EXPECT_EQ(totals[1], totals[0]);
  });
}

// ---- the stack of a fault handler -------------------------------------------------------------------------

/// What the handler does: every kind of call, on the alternate stack.
struct InHandler {
  Env* env = nullptr;
  std::byte* trap = nullptr;  // the store that faults goes here
  std::uint64_t result = 0;
};
InHandler* in_handler = nullptr;

void handle_fault(int, siginfo_t*, void*) {
  Env& env = *in_handler->env;
  PollWaiter waiter(env.transport);
  Blocking ops(env.transport, waiter);
  std::uint64_t word = 40 + env.me();
  static std::byte large[100'000];
  ops.write({env.next(), kRegion, 64}, &word, 8);
  ops.write({env.next(), kRegion, 4096}, large, sizeof(large));
  ops.read({env.next(), kRegion, 4096}, large, sizeof(large));
  ops.fetch_add({env.next(), kRegion, 8}, 2);
  ops.read({env.next(), kRegion, 64}, &in_handler->result, 8);
  ::mprotect(in_handler->trap, 4096, PROT_READ | PROT_WRITE);
}

TEST(Mpi, EveryCallMayBeMadeFromAFaultHandlerAndLeavesHalfOfItsStack) {
  on_every_rank([](Env& env) {
    constexpr std::size_t kStack =
        64 * 1024;  // what the runtime gives its fault handlers (traps/alt_stack.h)
    constexpr std::byte kUntouched{0xA5};
    std::vector<std::byte> stack(kStack, kUntouched);
    stack_t alternate{}, before{};
    alternate.ss_sp = stack.data();
    alternate.ss_size = stack.size();
    ASSERT_EQ(::sigaltstack(&alternate, &before), 0);
    struct sigaction action{}, old{};
    action.sa_sigaction = &handle_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    ASSERT_EQ(::sigaction(SIGSEGV, &action, &old), 0);
    InHandler context{.env = &env};
    context.trap =
        static_cast<std::byte*>(::mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    in_handler = &context;
    for (int i = 0; i < 100; ++i) {
      ::mprotect(context.trap, 4096, PROT_NONE);
      *static_cast<volatile std::byte*>(context.trap) = std::byte{1};
      EXPECT_EQ(context.result, 40 + env.me());
    }
    ::sigaction(SIGSEGV, &old, nullptr);
    ::sigaltstack(&before, nullptr);
    ::munmap(context.trap, 4096);
    const auto used = static_cast<std::size_t>(
        stack.end() - std::find_if(stack.begin(), stack.end(), [&](std::byte b) { return b != kUntouched; }));
    if (env.me() == 0) std::printf("calls from a fault handler used %zu bytes of its stack\n", used);
    EXPECT_LT(used, kStack / 2);
  });
}

/// Run by name only: what becomes of a job that loses a rank. CTest looks for what mpirun says of it.
TEST(MpiDeath, DISABLED_ARankThatDiesEndsTheJob) {
  on_every_rank([](Env& env) {
    env.all.barrier();
    if (env.me() == env.ranks() - 1) ::kill(::getpid(), SIGKILL);
    for (;;) env.blocking().fetch_add({env.next(), kRegion, 0}, 1);
  });
}

}  // namespace
}  // namespace kasane::comm::mpi::test

int main(int argc, char** argv) {
  using namespace kasane::comm;
  if (!mpi::test::start(&argc, &argv)) return 1;
  ::testing::InitGoogleTest(&argc, argv);
  return mpi::test::run_all_tests();
}
