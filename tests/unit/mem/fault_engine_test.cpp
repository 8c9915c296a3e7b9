// SPDX-License-Identifier: Apache-2.0
// What every fault engine promises, for each that this kernel allows; then what is specific to one engine.
#include "mem/fault_engine.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <span>
#include <thread>
#include <vector>

#include "fixtures.h"
#include "mem/block_table.h"
#include "mem/mappings.h"
#include "mem/page_tables.h"
#include "mem/userfaultfd.h"
#include "older_kernel.h"
#include "traps/alt_stack.h"
#include "traps/signal_dispatch.h"

namespace kasane::mem {
namespace {

/// A space under the engine, with the smallest handler that is right for many threads: a busy bit a block,
/// and rights that only grow under it.
class World {
 public:
  World(std::string_view name, std::size_t bytes, std::uint64_t limit = 0)
      : space(make_space(bytes)), engine(make_engine(name, space, limit)), table(make_table(space.blocks())) {
    if (!engine->start(on_fault, this)) std::abort();
  }
  ~World() {
    if (engine != nullptr) engine->stop();  // a thread that serves faults may still leave on_fault()
  }

  /// Changes the rights of one block under its busy bit.
  bool set(BlockId b, Access access, bool only_more) {
    std::atomic<std::uint32_t>& word = table[b];
    while (word.fetch_or(kBusy, std::memory_order_acquire) & kBusy) ::sched_yield();
    const auto now = static_cast<Access>(word.load(std::memory_order_relaxed) >> 1);
    const bool change = !only_more || now < access;
    const bool done = !change || engine->protect({b, 1}, access);
    word.store(static_cast<std::uint32_t>(change && done ? access : now) << 1, std::memory_order_release);
    return done;
  }

  volatile std::uint64_t& word(std::uint64_t offset) {
    return *reinterpret_cast<volatile std::uint64_t*>(space.v(offset));
  }

  Space space;
  std::unique_ptr<FaultEngine> engine;
  BlockTable table;
  std::atomic<std::uint64_t> reads{0}, writes{0};
  std::atomic<std::uint64_t> last{~std::uint64_t{0}};

 private:
  static constexpr std::uint32_t kBusy = 1;
  static BlockTable make_table(std::uint64_t blocks) {
    auto made = BlockTable::create(blocks);
    if (!made) std::abort();
    return std::move(*made);
  }
  static bool on_fault(void* context, std::uint64_t offset, Access wanted, Served) {
    auto* self = static_cast<World*>(context);
    ++(wanted == Access::write ? self->writes : self->reads);
    self->last = offset;
    return self->set(block_of(offset), wanted, /*only_more=*/true);
  }
};

traps::AltStack alt_stack() {
  auto stack = traps::AltStack::create();
  if (!stack) std::abort();
  return std::move(*stack);
}

class EngineTest : public ::testing::TestWithParam<std::string> {
 protected:
  static bool system_calls_wait() { return GetParam() == kUffdThread; }
  traps::AltStack stack_ = alt_stack();
};
INSTANTIATE_TEST_SUITE_P(Engines, EngineTest, ::testing::ValuesIn(engines_here()), engine_test_name);

TEST_P(EngineTest, ReportsOffsetAndKindOfEachAccessNotAllowed) {
  World w(GetParam(), 16 * kPageBytes);
  EXPECT_EQ(w.engine->name(), GetParam());
  *reinterpret_cast<std::uint64_t*>(w.space.a(5 * kBlockBytes + 16)) = 77;
  EXPECT_EQ(w.word(5 * kBlockBytes + 16), 77u);
  EXPECT_EQ(w.last, 5 * kBlockBytes + 16);
  EXPECT_EQ(w.reads, 1u);
  EXPECT_EQ(w.writes, 0u);
  EXPECT_EQ(w.word(5 * kBlockBytes + 24), 0u);
  EXPECT_EQ(w.reads, 1u) << "allowed by now";
  w.word(5 * kBlockBytes + 32) = 78;
  EXPECT_EQ(w.last, 5 * kBlockBytes + 32);
  EXPECT_EQ(w.writes, 1u);
  EXPECT_EQ(*reinterpret_cast<std::uint64_t*>(w.space.a(5 * kBlockBytes + 32)), 78u);
  w.word(w.space.bytes() - 8) = 79;
  EXPECT_EQ(w.last, w.space.bytes() - 8);
  EXPECT_EQ(w.writes, 2u);
  EXPECT_EQ(w.reads, 1u) << "write includes read";
}

TEST_P(EngineTest, TakesRightsOfWholeRunsBack) {
  World w(GetParam(), 4 * kPageBytes);
  ASSERT_TRUE(w.engine->protect({BlockId{0}, w.space.blocks()}, Access::write));
  w.word(0) = 1;
  w.word(w.space.bytes() - 8) = 1;
  EXPECT_EQ(w.writes, 0u);
  ASSERT_TRUE(w.engine->protect({BlockId{0}, w.space.blocks()}, Access::read));
  w.word(8) = w.word(0) + 1;
  EXPECT_EQ(w.writes, 1u);
  EXPECT_EQ(w.reads, 0u);
  EXPECT_TRUE(w.engine->protect({BlockId{w.space.blocks()}, 0}, Access::none)) << "an empty run at the end";
}

// A walk over a large space with little memory: each range is read, or written, or left alone, and its frames
// are punched.
TEST_P(EngineTest, PageTablesOfWhatIsNotSeenAnyMoreGoBack) {
  if (kSanitized) GTEST_SKIP() << "the sanitizers' own memory changes the number of tables";
  if (!page_tables_go_back()) GTEST_SKIP() << "this kernel keeps page tables";
  constexpr std::uint64_t kRanges = 128, kBlocks = PageTables::kTableBytes / kBlockBytes;
  World w(GetParam(), kRanges * PageTables::kTableBytes);
  w.engine->expect_punches(0, w.space.bytes(), kBlockBytes);
  const std::uint64_t before = page_table_bytes();
  std::uint64_t with = 0;
  for (int round = 1; round <= 3; ++round) {
    for (std::uint64_t r = 0; r < kRanges; ++r) {
      const std::uint64_t offset = r * PageTables::kTableBytes + (r % kBlocks) * kBlockBytes;
      if (r % 2 != 0 || round == 2) w.word(offset) = r;
      EXPECT_LE(w.word(offset), r);  // a load
    }
    with = page_table_bytes();
    EXPECT_GE(with, before + kRanges * kBlockBytes) << "a table each";
    for (std::uint64_t r = 0; r < kRanges; ++r) {
      const BlockRange range{BlockId{r * kBlocks}, kBlocks};
      ASSERT_TRUE(w.set(BlockId{raw(range.first) + r % kBlocks}, Access::none, false));
      w.engine->give_tables_back(range);
      drop_translations(w.space.a(offset_of(range.first)), PageTables::kTableBytes);
    }
    EXPECT_LE(page_table_bytes(), before + kRanges / 4 * kBlockBytes) << "round " << round;
  }
  // The access rights did not change.
  const std::uint64_t writes = w.writes;
  for (std::uint64_t r = 0; r < kRanges; ++r) {
    const std::uint64_t offset = r * PageTables::kTableBytes + (r % kBlocks) * kBlockBytes;
    EXPECT_EQ(w.word(offset), r) << "the frames stay";
    w.word(offset) = r + 1;
  }
  EXPECT_EQ(w.writes, writes + kRanges) << "a first store is seen, after a load";
}

/// Does this process have a translation for the page of p?
bool translated(const void* p) {
  std::uint64_t entry = 0;
  std::ifstream map("/proc/self/pagemap", std::ios::binary);
  map.seekg(static_cast<std::streamoff>(reinterpret_cast<std::uintptr_t>(p) / kBlockBytes * sizeof entry));
  map.read(reinterpret_cast<char*>(&entry), sizeof entry);
  return map && (entry >> 63) != 0;
}

// So that the kernel counts one translation of a frame, that of A, and moves it to another NUMA node.
TEST_P(EngineTest, TranslationsOfWhatIsForbiddenGoAndRightsStay) {
  World w(GetParam(), 4 * kPageBytes);
  const BlockId forbidden{1}, read{2}, open{3};
  for (const BlockId b : {forbidden, read, open}) w.word(offset_of(b)) = raw(b);
  ASSERT_TRUE(w.set(forbidden, Access::none, false));
  ASSERT_TRUE(w.set(read, Access::read, false));
  w.engine->drop_kept_translations({BlockId{0}, w.space.blocks()});
  EXPECT_FALSE(translated(w.space.v(offset_of(forbidden))));
  const std::uint64_t reads = w.reads, writes = w.writes;
  for (const BlockId b : {forbidden, read, open}) EXPECT_EQ(w.word(offset_of(b)), raw(b));
  EXPECT_EQ(w.reads, reads + 1) << "of what was forbidden";
  w.word(offset_of(open)) = 7;
  EXPECT_EQ(w.writes, writes);
  w.word(offset_of(read)) = 8;
  EXPECT_EQ(w.writes, writes + 1);
}

// Rule 10: the kernel does not wait for a handler on behalf of a system call, unless a thread serves faults.
TEST_P(EngineTest, ASystemCallIntoAProtectedBlockFailsWithoutAFault) {
  if (system_calls_wait()) GTEST_SKIP() << "see UffdThreadTest";
  World w(GetParam(), 4 * kPageBytes);
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ASSERT_EQ(::write(ends[1], "12345678", 8), 8);
  EXPECT_EQ(::read(ends[0], w.space.v(64), 8), -1);
  EXPECT_EQ(errno, EFAULT);
  EXPECT_EQ(w.reads + w.writes, 0u);
  EXPECT_EQ(::read(ends[0], w.space.a(64), 8), 8) << "through the alias it works";
  EXPECT_EQ(std::memcmp(w.space.a(64), "12345678", 8), 0);
  ::close(ends[0]);
  ::close(ends[1]);
}

// Own memory that was never touched: what a program passes to the kernel right after it was allocated.
TEST_P(EngineTest, ASystemCallFillsFreshWritableMemory) {
  World w(GetParam(), 64 * kPageBytes);
  ASSERT_TRUE(w.engine->protect({BlockId{16}, 16}, Access::write));   // as one page
  ASSERT_TRUE(w.engine->protect({BlockId{64}, 500}, Access::write));  // as a large allocation
  ASSERT_TRUE(w.engine->protect({BlockId{600}, 1}, Access::write));
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  for (std::uint64_t block : {16, 31, 64, 300, 563, 600}) {
    ASSERT_EQ(::write(ends[1], "12345678", 8), 8);
    EXPECT_EQ(::read(ends[0], w.space.v(block * kBlockBytes + 8), 8), 8) << block;
    EXPECT_EQ(std::memcmp(w.space.a(block * kBlockBytes + 8), "12345678", 8), 0);
  }
  EXPECT_EQ(w.reads + w.writes, 0u);
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST_P(EngineTest, ASystemCallFillsWhatMayBeWrittenAgain) {
  if (system_calls_wait()) GTEST_SKIP() << "see UffdThreadTest";
  World w(GetParam(), 64 * kPageBytes);
  ASSERT_TRUE(w.engine->protect({BlockId{64}, 500}, Access::write));
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  // After another rank has owned it.
  ASSERT_TRUE(w.engine->protect({BlockId{64}, 500}, Access::none));
  ASSERT_EQ(::write(ends[1], "12345678", 8), 8);
  EXPECT_EQ(::read(ends[0], w.space.v(300 * kBlockBytes), 8), -1);
  EXPECT_EQ(errno, EFAULT);
  ASSERT_TRUE(w.engine->protect({BlockId{300}, 1}, Access::write));
  EXPECT_EQ(::read(ends[0], w.space.v(300 * kBlockBytes), 8), 8);
  ASSERT_TRUE(w.engine->protect({BlockId{300}, 1}, Access::read));
  EXPECT_EQ(::write(ends[1], w.space.v(300 * kBlockBytes), 8), 8) << "what can be read, system calls read";
  EXPECT_EQ(::read(ends[0], w.space.v(300 * kBlockBytes), 8), -1);
  EXPECT_EQ(errno, EFAULT);
  ::close(ends[0]);
  ::close(ends[1]);
}

// Every change of rights, of blocks with and without a frame, alone and in runs: what a byte shows and what
// is reported follow from the rights alone.
TEST_P(EngineTest, RightsFollowAModelUnderRandomRuns) {
  constexpr std::uint64_t kBlocks = 96;
  for (std::uint64_t limit : {0, 1}) {  // 1: crowded from the start
    World w(GetParam(), kBlocks * kBlockBytes, limit);
    Random random(7 + limit);
    std::vector<Access> rights(kBlocks, Access::none);
    std::vector<std::uint64_t> bytes(kBlocks, 0);
    for (int step = 0; step < (kSanitized ? 2'000 : 20'000); ++step) {
      const std::uint64_t first = random.below(kBlocks),
                          count = 1 + random.below(std::min<std::uint64_t>(kBlocks - first,
                                                                           random.below(4) == 0 ? 64 : 20));
      switch (random.below(4)) {
        case 0:
        case 1: {
          const auto access = static_cast<Access>(random.below(3));
          ASSERT_TRUE(w.engine->protect({BlockId{first}, count}, access));
          for (std::uint64_t b = first; b < first + count; ++b) {
            rights[b] = access;
            w.table[BlockId{b}].store(static_cast<std::uint32_t>(access) << 1, std::memory_order_relaxed);
          }
          break;
        }
        case 2:  // another rank's bytes arrive
          reinterpret_cast<volatile std::uint64_t&>(*w.space.a(first * kBlockBytes)) = bytes[first] =
              random.below(1000);
          break;
        default: {
          const bool store = random.below(2) != 0;
          const std::uint64_t reported = w.reads + w.writes;
          if (store) w.word(first * kBlockBytes) = bytes[first] = random.below(1000);
          ASSERT_EQ(w.word(first * kBlockBytes), bytes[first]);
          const Access wanted = store ? Access::write : Access::read;
          ASSERT_EQ(w.reads + w.writes - reported, rights[first] < wanted)
              << "step " << step << ", block " << first;
          rights[first] = std::max(rights[first], wanted);
        }
      }
    }
  }
}

TEST_P(EngineTest, LeavesARunOpenWhoseverFramesItShows) {
  Space mine = make_space(8 * kPageBytes);
  const Space theirs = make_space(8 * kPageBytes);
  ASSERT_TRUE(mine.show(3 * kPageBytes, kPageBytes, theirs.a(3 * kPageBytes)));
  const auto engine = make_engine(GetParam(), mine);
  // A page of its own frames and the shown page
  ASSERT_TRUE(engine->leave_open({block_of(2 * kPageBytes), 2 * kPageBytes / kBlockBytes}));
  struct Seen {
    FaultEngine& engine;
    std::atomic<unsigned> faults{0};
  } seen{*engine};
  const auto on_fault = [](void* context, std::uint64_t offset, Access wanted, Served) {
    auto& s = *static_cast<Seen*>(context);
    ++s.faults;
    return s.engine.protect({block_of(offset), 1}, wanted);
  };
  ASSERT_TRUE(engine->start(on_fault, &seen));
  const auto word = [&](std::uint64_t offset) -> volatile std::uint64_t& {
    return *reinterpret_cast<volatile std::uint64_t*>(mine.v(offset));
  };
  for (std::uint64_t at = 2 * kPageBytes; at < 4 * kPageBytes; at += kBlockBytes) word(at) = at;
  EXPECT_EQ(*reinterpret_cast<std::uint64_t*>(mine.a(2 * kPageBytes)), 2 * kPageBytes);
  EXPECT_EQ(*reinterpret_cast<std::uint64_t*>(theirs.a(3 * kPageBytes + kBlockBytes)),
            3 * kPageBytes + kBlockBytes);
  EXPECT_EQ(seen.faults, 0u);
  word(4 * kPageBytes) = 1;
  word(2 * kPageBytes - 8) = 1;
  EXPECT_EQ(seen.faults, 2u) << "beside it nothing is";
}

TEST_P(EngineTest, StartsAgainAfterAStop) {
  World w(GetParam(), kPageBytes);
  w.engine->stop();
  w.engine->stop();
  ASSERT_TRUE(w.engine->start(
      [](void* context, std::uint64_t offset, Access wanted, Served) {
        return static_cast<World*>(context)->set(block_of(offset), wanted, true);
      },
      &w));
  w.word(0) = 5;
  EXPECT_EQ(w.writes, 0u) << "the old handler";
  EXPECT_EQ(w.word(0), 5u);
}

// Threads fault on the same blocks and on different ones while another thread takes rights away all the time:
// every store takes effect.
TEST_P(EngineTest, NoStoreIsLostUnderManyFaultsAtOnce) {
  constexpr std::uint64_t kThreads = 4, kBlocks = 48;
  const std::uint64_t rounds = kSanitized ? 300 : 3000;
  World w(GetParam(), kBlocks * kBlockBytes);
  std::atomic<bool> stop{false};
  std::thread taker([&] {
    Random random(99);
    while (!stop)
      EXPECT_TRUE(
          w.set(BlockId{random.below(kBlocks)}, random.below(2) ? Access::none : Access::read, false));
  });
  std::vector<std::vector<std::uint64_t>> sums(kThreads, std::vector<std::uint64_t>(kBlocks));
  std::atomic<std::uint64_t> wrong{0};
  std::vector<std::thread> threads;
  for (std::uint64_t self = 0; self < kThreads; ++self)
    threads.emplace_back([&, self] {
      traps::AltStack own = alt_stack();
      Random random(self);
      for (std::uint64_t i = 0; i < rounds; ++i) {
        const std::uint64_t b = random.below(kBlocks), at = b * kBlockBytes + self * 8;
        if (w.word(at) != sums[self][b]) ++wrong;
        sums[self][b] += i;
        w.word(at) = sums[self][b];
      }
    });
  for (auto& thread : threads) thread.join();
  stop = true;
  taker.join();
  EXPECT_EQ(wrong, 0u);
  EXPECT_GT(w.reads + w.writes, 0u);
  for (std::uint64_t self = 0; self < kThreads; ++self)
    for (std::uint64_t b = 0; b < kBlocks; ++b)
      EXPECT_EQ(*reinterpret_cast<std::uint64_t*>(w.space.a(b * kBlockBytes + self * 8)), sums[self][b]);
}

void open_while_others_store(World& w, std::uint64_t blocks) {
  std::atomic<std::uint64_t> at{0};
  std::vector<std::thread> storers;
  for (std::uint64_t self = 0; self < 2; ++self)
    storers.emplace_back([&, self] {
      traps::AltStack own = alt_stack();
      for (std::uint64_t done = 0; done < blocks;) {
        const std::uint64_t opened = at.load();
        for (; done < opened; ++done) w.word(done * kBlockBytes + self * 8) = done + 1;
      }
    });
  for (std::uint64_t b = 0; b < blocks; ++b) {
    at = b + 1;
    EXPECT_TRUE(w.set(BlockId{b}, Access::write, true));
  }
  for (auto& storer : storers) storer.join();
  for (std::uint64_t b = 0; b < blocks; ++b) {
    for (std::uint64_t self = 0; self < 2; ++self)
      ASSERT_EQ(*reinterpret_cast<std::uint64_t*>(w.space.a(b * kBlockBytes + self * 8)), b + 1);
  }
}

// Stores to memory without a frame while the thread that opens it leaves it to the kernel: the block becomes
// plain while a server handles its fault.
TEST_P(EngineTest, FreshMemoryIsOpenedWhileOthersStoreToIt) {
  const std::uint64_t blocks = kSanitized ? 1'600 : 10'000;  // whole pages
  World w(GetParam(), blocks * kBlockBytes);
  open_while_others_store(w, blocks);
}

// … and while that thread makes the frames.
TEST_P(EngineTest, FramesAreMadeWhileOthersStoreToThem) {
  const std::uint64_t blocks = kSanitized ? 1'600 : 10'000;  // whole pages
  World w(GetParam(), blocks * kBlockBytes);
  w.engine->expect_punches(0, blocks * kBlockBytes, kBlockBytes);
  open_while_others_store(w, blocks);
}

/// A run of blocks gets its bytes of `all`, and rights: what the engine does not fill is written to the
/// memory file, as a read from disk is.
bool bring_run(FaultEngine& engine, const Space& space, BlockRange run, std::span<const std::byte> all,
               Access right) {
  const std::byte* const from = all.data() + offset_of(run.first);
  const std::uint64_t filled = engine.fill(run, from, right);
  const std::size_t done = filled * kBlockBytes, rest = (run.count - filled) * kBlockBytes;
  if (::pwrite(space.frames_fd(), from + done, rest, static_cast<off_t>(offset_of(run.first) + done)) !=
      static_cast<ssize_t>(rest))
    return false;
  return engine.protect(run, right);
}

// Blocks are filled and shown, taken away and punched again and again: a load meanwhile faults, or finds the
// bytes, never a frame without them.
TEST_P(EngineTest, BlocksAreFilledWhileOthersLoadThem) {
  constexpr std::uint64_t kBlocks = 64, kRun = 16;
  const Space space = make_space(kBlocks * kBlockBytes);
  const auto engine = make_engine(GetParam(), space);
  engine->expect_punches(0, kBlocks * kBlockBytes, kBlockBytes);
  std::atomic<std::uint64_t> faults{0};
  ASSERT_TRUE(engine->start(
      [](void* context, std::uint64_t, Access, Served) {
        ++*static_cast<std::atomic<std::uint64_t>*>(context);
        return true;  // again, until it is there
      },
      &faults));
  std::vector<std::uint64_t> bytes(kBlocks * kBlockBytes / 8);
  for (std::uint64_t i = 0; i < bytes.size(); ++i) bytes[i] = i + 1;
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> wrong{0}, loads{0};
  std::vector<std::thread> loaders;
  for (std::uint64_t self = 0; self < 2; ++self)
    loaders.emplace_back([&, self] {
      traps::AltStack own = alt_stack();
      Random random(self);
      for (; !stop; ++loads) {
        const std::uint64_t i = random.below(bytes.size());
        if (*reinterpret_cast<volatile std::uint64_t*>(space.v(i * 8)) != i + 1) ++wrong;
      }
    });
  const auto bring = [&](std::uint64_t first) {
    return bring_run(*engine, space, {BlockId{first}, kRun}, std::as_bytes(std::span(bytes)), Access::read);
  };
  for (std::uint64_t round = 0; round < fewer_if_sanitized(1000u); ++round) {
    for (std::uint64_t first = 0; first < kBlocks; first += kRun) EXPECT_TRUE(bring(first));
    EXPECT_TRUE(engine->protect({BlockId{0}, kBlocks}, Access::none));
    EXPECT_EQ(::fallocate(space.frames_fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
                          static_cast<off_t>(kBlocks * kBlockBytes)),
              0);
  }
  stop = true;
  // For threads that wait
  for (std::uint64_t first = 0; first < kBlocks; first += kRun) EXPECT_TRUE(bring(first));
  for (std::thread& loader : loaders) loader.join();
  engine->stop();
  EXPECT_EQ(wrong, 0u);
  EXPECT_GT(loads, 0u);
  EXPECT_GT(faults, 0u);
}

// … and for writing: a store that passes as soon as the bytes are there is in the frame when the rights are
// gone. Each storing thread counts its stores.
TEST_P(EngineTest, BlocksAreFilledWhileOthersStoreToThem) {
  constexpr std::uint64_t kBlocks = 64, kRun = 16, kThreads = 2;
  const Space space = make_space(kBlocks * kBlockBytes);
  const auto engine = make_engine(GetParam(), space);
  engine->expect_punches(0, kBlocks * kBlockBytes, kBlockBytes);
  // Again, until it is there
  ASSERT_TRUE(engine->start([](void*, std::uint64_t, Access, Served) { return true; }, nullptr));
  std::vector<std::byte> away(kBlocks * kBlockBytes);  // the bytes while they have no frame
  std::atomic<bool> stop{false};
  std::vector<std::vector<std::uint64_t>> stores(kThreads, std::vector<std::uint64_t>(kBlocks));
  std::vector<std::thread> storers;
  for (std::uint64_t self = 0; self < kThreads; ++self)
    storers.emplace_back([&, self] {
      traps::AltStack own = alt_stack();
      Random random(self);
      while (!stop) {
        const std::uint64_t b = random.below(kBlocks);
        // One instruction, which happens or not
        std::atomic_ref(*reinterpret_cast<std::uint64_t*>(space.v(b * kBlockBytes + self * 8)))
            .fetch_add(1, std::memory_order_relaxed);
        ++stores[self][b];
      }
    });
  const auto bring = [&](std::uint64_t first) {
    return bring_run(*engine, space, {BlockId{first}, kRun}, away, Access::write);
  };
  for (std::uint64_t round = 0; round < fewer_if_sanitized(1000u); ++round) {
    for (std::uint64_t first = 0; first < kBlocks; first += kRun) EXPECT_TRUE(bring(first));
    EXPECT_TRUE(engine->protect({BlockId{0}, kBlocks}, Access::none));
    std::memcpy(away.data(), space.a(0), away.size());
    EXPECT_EQ(::fallocate(space.frames_fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
                          static_cast<off_t>(kBlocks * kBlockBytes)),
              0);
  }
  stop = true;
  // For threads that wait
  for (std::uint64_t first = 0; first < kBlocks; first += kRun) EXPECT_TRUE(bring(first));
  for (std::thread& storer : storers) storer.join();
  engine->stop();
  std::uint64_t all = 0;
  for (std::uint64_t self = 0; self < kThreads; ++self)
    for (std::uint64_t b = 0; b < kBlocks; ++b) {
      EXPECT_EQ(*reinterpret_cast<std::uint64_t*>(space.a(b * kBlockBytes + self * 8)), stores[self][b])
          << "block " << b << ", thread " << self;
      all += stores[self][b];
    }
  EXPECT_GT(all, 0u);
}

// Fresh memory costs nothing until it is touched.
TEST_P(EngineTest, FreshMemoryComesPageByPage) {
  World w(GetParam(), 4096 * kPageBytes);
  ASSERT_TRUE(w.engine->protect({BlockId{0}, w.space.blocks()}, Access::write));
  w.word(17 * kBlockBytes) = 1;
  struct stat file{};
  ASSERT_EQ(::fstat(w.space.frames_fd(), &file), 0);
  EXPECT_LE(file.st_blocks * 512, 2 << 20);
}

class MprotectEngineTest : public ::testing::Test {
 protected:
  traps::AltStack stack_ = alt_stack();
};

// Every other block armed: two mappings each, far more than the kernel allows. A caller that obeys crowded()
// never reaches its limit.
TEST_F(MprotectEngineTest, MappingsStayBoundedForWhoHeedsCrowded) {
  constexpr std::uint64_t kArmed = 40'000, kLimit = 8'000;
  World w("mprotect", ((2 * kArmed * kBlockBytes) / kPageBytes + 1) * kPageBytes, kLimit);
  EXPECT_FALSE(w.engine->crowded());
  std::uint64_t drops = 0, most = 0;
  for (std::uint64_t i = 0; i < kArmed; ++i) {
    ASSERT_TRUE(w.engine->protect({BlockId{2 * i}, 1}, Access::write)) << i;
    if (!w.engine->crowded()) continue;
    ++drops;
    most = std::max(most, count_mappings());
    EXPECT_GE(count_mappings(), kLimit) << "crowded() is true only where it is exact";
    ASSERT_TRUE(w.engine->protect({BlockId{0}, 2 * i + 1}, Access::none));
    // crowded() notices within an eighth of the limit.
    for (std::uint64_t n = 0; n < kLimit / 8 && w.engine->crowded(); ++n)
      ASSERT_TRUE(w.engine->protect({BlockId{0}, 1}, Access::none));
    EXPECT_FALSE(w.engine->crowded());
  }
  EXPECT_GE(drops, 9u) << "2 × 40 000 mappings under a limit of 8 000";
  EXPECT_LE(most, kLimit + kLimit / 8 + 16);
}

// Neighbours merge: the cheap bound passes the limit repeatedly, the exact count never does.
TEST_F(MprotectEngineTest, ManySmallRunsThatMergeAreNotCrowded) {
  World w("mprotect", 512 * kPageBytes, 2'000);
  for (std::uint64_t b = 0; b < w.space.blocks(); ++b) {
    ASSERT_TRUE(w.engine->protect({BlockId{b}, 1}, Access::write));
    ASSERT_FALSE(w.engine->crowded()) << b;
  }
}

TEST_F(MprotectEngineTest, AtTheKernelsLimitProtectSaysSoAndRecovers) {
  std::uint64_t limit = 0;
  std::ifstream("/proc/sys/vm/max_map_count") >> limit;
  if (limit == 0 || limit > 100'000 || kSanitized) GTEST_SKIP() << "vm.max_map_count is " << limit;
  World w("mprotect", (limit * kBlockBytes / kPageBytes + 2) * kPageBytes);
  std::uint64_t armed = 0;
  while (armed < limit && w.engine->protect({BlockId{2 * armed % w.space.blocks()}, 1}, Access::write))
    ++armed;
  EXPECT_LT(armed, limit);
  EXPECT_TRUE(w.engine->crowded());
  ASSERT_TRUE(w.engine->protect({BlockId{0}, 2 * armed}, Access::none)) << "merging needs no new mapping";
  EXPECT_TRUE(w.engine->protect({BlockId{2 * armed}, 1}, Access::write));
}

class UffdEngineTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string missing = probe_userfaultfd(Delivery::in_place); !missing.empty())
      GTEST_SKIP() << missing;
  }
  traps::AltStack stack_ = alt_stack();
};

TEST_F(UffdEngineTest, CachedBlocksMakeNoMappings) {
  World w("uffd", 512 * kPageBytes);
  for (std::uint64_t b = 0; b < w.space.blocks(); b += 2) *w.space.a(b * kBlockBytes) = std::byte{1};
  const std::uint64_t before = count_mappings();
  for (std::uint64_t b = 0; b < w.space.blocks(); b += 2)
    ASSERT_TRUE(w.engine->protect({BlockId{b}, 1}, b % 4 == 0 ? Access::write : Access::read));
  for (std::uint64_t b = 0; b < w.space.blocks(); b += 8)
    ASSERT_TRUE(w.engine->protect({BlockId{b}, 1}, b % 16 == 0 ? Access::none : Access::read));
  EXPECT_LE(count_mappings(), before + 2);
  EXPECT_FALSE(w.engine->crowded());
  ASSERT_TRUE(w.engine->protect({BlockId{0}, w.space.blocks()}, Access::none));
  for (std::uint64_t b = 0; b < w.space.blocks(); ++b) *w.space.a(b * kBlockBytes) = std::byte{1};
  for (std::uint64_t b = 0; b < w.space.blocks(); b += 128)
    ASSERT_TRUE(w.engine->protect({BlockId{b}, 64}, Access::write)) << "long runs that were fetched";
  EXPECT_LE(count_mappings(), before + 2);
}

// Own pages between other ranks' pages, none of them touched: plain while mappings are few, then served one
// by one.
TEST_F(UffdEngineTest, MappingsOfOurOwnMemoryAreBounded) {
  constexpr std::uint64_t kLimit = 2'000, kPages = 8'192;
  World w("uffd", kPages * kPageBytes, kLimit);
  for (std::uint64_t p = 0; p < kPages; p += 2)
    ASSERT_TRUE(w.engine->protect({block_of(p * kPageBytes), 16}, Access::write));
  EXPECT_LE(count_mappings(), kLimit + kLimit / 8 + 16);
  for (std::uint64_t p = 0; p < kPages; p += 2) w.word(p * kPageBytes + 8) = p;
  for (std::uint64_t p = 0; p < kPages; p += 2) EXPECT_EQ(w.word(p * kPageBytes + 8), p);
  EXPECT_EQ(w.reads + w.writes, 0u);
  ASSERT_TRUE(w.engine->protect({BlockId{0}, w.space.blocks()}, Access::none));
  EXPECT_EQ(w.word(8), 0u);
  EXPECT_EQ(w.reads, 1u);
}

// Where frames come and go, a run gets all missing frames at once: no mapping changes, and no store faults.
TEST_F(UffdEngineTest, FramesThatComeAndGoAreMadeAtOnce) {
  constexpr std::uint64_t kPages = 64;
  World w("uffd", kPages * kPageBytes);
  w.engine->expect_punches(0, kPages * kPageBytes, kBlockBytes);
  const std::uint64_t before = count_mappings();
  for (int round = 0; round < 2; ++round) {
    for (std::uint64_t p = 0; p < kPages; p += 2) {
      *w.space.a(p * kPageBytes + 3 * kBlockBytes) = std::byte{7};
      ASSERT_TRUE(w.engine->protect({block_of(p * kPageBytes), 16}, Access::write));
    }
    struct stat file{};
    ASSERT_EQ(::fstat(w.space.frames_fd(), &file), 0);
    EXPECT_EQ(static_cast<std::uint64_t>(file.st_blocks) * 512, kPages / 2 * kPageBytes);
    EXPECT_LE(count_mappings(), before + 2);
    for (std::uint64_t b = 0; b < kPages * 16; ++b) {
      if (b % 32 >= 16) continue;
      EXPECT_EQ(w.word(b * kBlockBytes), b % 32 == 3 ? 7u : 0u);
      w.word(b * kBlockBytes + 8) = b;
    }
    for (std::uint64_t b = 0; b < kPages * 16; ++b)
      EXPECT_EQ(*reinterpret_cast<std::uint64_t*>(w.space.a(b * kBlockBytes + 8)), b % 32 < 16 ? b : 0);
    ASSERT_TRUE(w.engine->protect({BlockId{0}, w.space.blocks()}, Access::none));
    ASSERT_EQ(::fallocate(w.space.frames_fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
                          static_cast<off_t>(kPages * kPageBytes)),
              0);
  }
  EXPECT_EQ(w.reads + w.writes, 0u);
}

// Blocks without frames and rights are filled, up to the first that has a frame, and may then be read;
// elsewhere none are.
TEST_F(UffdEngineTest, FillsWhatHasNeitherFramesNorRights) {
  World w("uffd", 4 * kPageBytes);
  std::vector<std::byte> bytes(8 * kBlockBytes);
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = std::byte{static_cast<unsigned char>(1 + i / kBlockBytes)};
  const auto fill = [&](std::uint64_t first, std::uint64_t count, Access right = Access::read) {
    return w.engine->fill({BlockId{first}, count}, bytes.data(), right);
  };
  EXPECT_EQ(fill(0, 8), 0u) << "frames do not come and go there";
  w.engine->expect_punches(0, 4 * kPageBytes, kBlockBytes);
  EXPECT_EQ(fill(0, 8), 8u);
  *w.space.a((16 + 3) * kBlockBytes) = std::byte{99};
  EXPECT_EQ(fill(16, 8), 3u);
  EXPECT_EQ(fill(19, 1), 0u);
  ASSERT_TRUE(w.engine->protect({BlockId{32}, 4}, Access::read));
  EXPECT_EQ(fill(32, 8), 0u);
  EXPECT_EQ(fill(36, 4), 4u);
  for (std::uint64_t b = 0; b < 8; ++b) EXPECT_EQ(w.word(b * kBlockBytes) & 0xff, b + 1);
  for (std::uint64_t b = 0; b < 3; ++b) EXPECT_EQ(w.word((16 + b) * kBlockBytes) & 0xff, b + 1);
  EXPECT_EQ(w.reads + w.writes, 0u);
  EXPECT_EQ(*w.space.a((16 + 3) * kBlockBytes), std::byte{99});
  w.word(0) = 5;
  EXPECT_EQ(w.writes, 1u) << "only to be read";
  EXPECT_EQ(w.word(19 * kBlockBytes), 99u);
  EXPECT_EQ(w.reads, 1u) << "without rights";
  EXPECT_EQ(fill(40, 4, Access::write), 4u);
  w.word(41 * kBlockBytes) = 6;
  EXPECT_EQ(w.writes, 1u) << "to be written, too";
  EXPECT_EQ(*reinterpret_cast<std::uint64_t*>(w.space.a(41 * kBlockBytes)), 6u);
  w.engine->expect_punches(0, 4 * kPageBytes, kPageBytes);
  EXPECT_EQ(fill(48, 4), 4u) << "those that the kernel makes are large; these are not";
  struct stat file{};
  ASSERT_EQ(::fstat(w.space.frames_fd(), &file), 0);
  EXPECT_EQ(static_cast<std::uint64_t>(file.st_blocks) * 512, (8 + 3 + 1 + 4 + 4 + 4) * kBlockBytes);
}

// The kernel may drop a translation at any time: the engine serves that fault, not the handler.
TEST_F(UffdEngineTest, WhatTheKernelReclaimsComesBackUnderItsRights) {
  World w("uffd", 4 * kPageBytes);
  for (std::uint64_t b = 0; b < 16; ++b)
    *w.space.a(b * kBlockBytes) = std::byte{static_cast<unsigned char>(b)};
  ASSERT_TRUE(w.engine->protect({BlockId{0}, 8}, Access::read));
  ASSERT_TRUE(w.engine->protect({BlockId{8}, 8}, Access::write));
  ASSERT_EQ(::madvise(w.space.v(0), 16 * kBlockBytes, MADV_DONTNEED), 0);
  for (std::uint64_t b = 0; b < 16; ++b) EXPECT_EQ(w.word(b * kBlockBytes), b);
  ASSERT_EQ(::madvise(w.space.v(0), 16 * kBlockBytes, MADV_DONTNEED), 0);
  w.word(8 * kBlockBytes) = 1;
  EXPECT_EQ(w.reads + w.writes, 0u);
  w.word(0) = 1;
  EXPECT_EQ(w.writes, 1u) << "still only to be read";
}

// Where the kernel has no guard markers, a guard is a mapping of its own in the middle of a run, across which
// userfaultfd does not map.
TEST_F(UffdEngineTest, RunsGoOverAGuardThatSplitsTheMap) {
  World w("uffd", 4 * kPageBytes);
  constexpr BlockRange kSlot{BlockId{16}, 16};
  for (std::uint64_t b = 16; b < 32; ++b) *w.space.a(b * kBlockBytes) = std::byte{1};
  ASSERT_EQ(::mprotect(w.space.v(20 * kBlockBytes), kBlockBytes, PROT_NONE), 0);
  for (Access access : {Access::write, Access::read, Access::none, Access::read, Access::write, Access::none,
                        Access::write}) {
    ASSERT_TRUE(w.engine->protect(kSlot, access));
    const std::uint64_t reported = w.reads + w.writes;
    for (std::uint64_t b : {16, 19, 21, 31}) {
      if (access == Access::none) continue;
      EXPECT_NE(w.word(b * kBlockBytes), 0u);
      if (access == Access::write) w.word(b * kBlockBytes) = b;
    }
    EXPECT_EQ(w.reads + w.writes, reported) << static_cast<int>(access);
  }
}

/// Faults served by a thread. Where the kernel does not allow this user that, one message says what is
/// missing.
class UffdThreadTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string missing = probe_userfaultfd(Delivery::thread); !missing.empty())
      GTEST_SKIP() << missing;
  }
  traps::AltStack stack_ = alt_stack();
};

/// An unnamed file with `bytes` of a pattern.
class PatternFile {
 public:
  explicit PatternFile(std::size_t bytes) : fd_(::memfd_create("pattern", MFD_CLOEXEC)), bytes_(bytes) {
    for (std::size_t i = 0; i < bytes; ++i) bytes_[i] = byte_at(i);
    if (::pwrite(fd_, bytes_.data(), bytes, 0) != static_cast<ssize_t>(bytes)) std::abort();
  }
  ~PatternFile() { ::close(fd_); }
  PatternFile(const PatternFile&) = delete;
  PatternFile& operator=(const PatternFile&) = delete;

  [[nodiscard]] int fd() const { return fd_; }
  [[nodiscard]] const std::byte* bytes() const { return bytes_.data(); }

 private:
  static std::byte byte_at(std::size_t i) {
    return static_cast<std::byte>((i * 7 + i / kBlockBytes * 13 + 1) & 0xff);
  }
  int fd_;
  std::vector<std::byte> bytes_;
};

TEST_F(UffdThreadTest, SystemCallsWaitForAbsentMemory) {
  constexpr std::size_t kBytes = 37 * kBlockBytes + 100, kAt = 3 * kBlockBytes + 50;
  World w(kUffdThread, 64 * kPageBytes);
  const PatternFile file(kBytes);
  ASSERT_EQ(::pread(file.fd(), w.space.v(kAt), kBytes, 0), static_cast<ssize_t>(kBytes));
  EXPECT_EQ(std::memcmp(w.space.a(kAt), file.bytes(), kBytes), 0);
  EXPECT_EQ(w.writes, 38u) << "a fault a block";
  EXPECT_EQ(w.reads, 0u);
  // Out again, where it has become absent; then where it may only be read.
  for (const Access access : {Access::none, Access::read}) {
    for (std::uint64_t b = 0; b < w.space.blocks(); ++b) ASSERT_TRUE(w.set(BlockId{b}, access, false));
    const int copy = ::memfd_create("copy", MFD_CLOEXEC);
    ASSERT_EQ(::write(copy, w.space.v(kAt), kBytes), static_cast<ssize_t>(kBytes));
    std::vector<std::byte> written(kBytes);
    ASSERT_EQ(::pread(copy, written.data(), kBytes, 0), static_cast<ssize_t>(kBytes));
    EXPECT_EQ(std::memcmp(written.data(), file.bytes(), kBytes), 0);
    EXPECT_EQ(w.writes, 38u) << "it was only read";
    EXPECT_EQ(w.reads, 38u);
    ::close(copy);
  }
  // Into memory that may only be read.
  ASSERT_EQ(::pread(file.fd(), w.space.v(kAt), 100, 200), 100);
  EXPECT_EQ(w.writes, 39u);
  EXPECT_EQ(std::memcmp(w.space.a(kAt), file.bytes() + 200, 100), 0);
}

TEST_F(UffdThreadTest, OtherSystemCallsWait) {
  World w(kUffdThread, 64 * kPageBytes);
  // Over the end of a block
  struct stat& info = *reinterpret_cast<struct stat*>(w.space.v(kBlockBytes - 8));
  ASSERT_EQ(::stat("/proc/self/exe", &info), 0);
  EXPECT_TRUE(S_ISREG(info.st_mode));
  EXPECT_GT(::readlink("/proc/self/exe", reinterpret_cast<char*>(w.space.v(5 * kBlockBytes)), 100), 0);
  const int folder = ::open("/proc/self", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  EXPECT_GT(::syscall(SYS_getdents64, folder, w.space.v(9 * kBlockBytes), 2 * kBlockBytes), 0);
  ::close(folder);
  EXPECT_EQ(w.writes, 4u);  // readlink's path came from private memory; getdents wrote one of its two blocks
}

TEST_F(UffdThreadTest, ADirectReadWaits) {
  const int file = ::open("/var/tmp", O_TMPFILE | O_RDWR | O_DIRECT | O_CLOEXEC, 0600);
  if (file < 0) GTEST_SKIP() << "no direct files in /var/tmp";
  World w(kUffdThread, 64 * kPageBytes);
  for (std::uint64_t b = 0; b < 4; ++b)
    std::memset(w.space.a(b * kBlockBytes), static_cast<int>(b + 1), kBlockBytes);
  ASSERT_EQ(::pwrite(file, w.space.v(0), 4 * kBlockBytes, 0), static_cast<ssize_t>(4 * kBlockBytes));
  EXPECT_GT(w.reads, 0u);
  ASSERT_EQ(::pread(file, w.space.v(8 * kBlockBytes), 4 * kBlockBytes, 0),
            static_cast<ssize_t>(4 * kBlockBytes));
  EXPECT_GT(w.writes, 0u);
  EXPECT_EQ(std::memcmp(w.space.a(8 * kBlockBytes), w.space.a(0), 4 * kBlockBytes), 0);
  ::close(file);
}

/// Calls all but one block wild, and must be called in place after it was called for another thread.
struct Refusing {
  explicit Refusing(std::uint64_t good)
      : space(make_space(4 * kPageBytes)), engine(make_engine(kUffdThread, space)), allowed(good) {
    if (!engine->start(on_fault, this)) std::abort();
  }
  ~Refusing() { engine->stop(); }
  static bool on_fault(void* self, std::uint64_t offset, Access wanted, Served served) {
    auto& r = *static_cast<Refusing*>(self);
    if (raw(block_of(offset)) == r.allowed) return r.engine->protect({block_of(offset), 1}, wanted);
    ++(served == Served::in_place ? r.in_place : r.for_another);
    return false;
  }
  Space space;
  std::unique_ptr<FaultEngine> engine;
  std::atomic<std::uint64_t> allowed;
  std::atomic<unsigned> in_place{0}, for_another{0};
};

TEST_F(UffdThreadTest, AWildBufferIsEFAULTAndNobodyWaits) {
  Refusing r(2);
  const PatternFile file(2 * kBlockBytes);
  for (unsigned time = 1; time <= 3; ++time) {
    EXPECT_EQ(::pread(file.fd(), r.space.v(5 * kBlockBytes), 100, 0), -1);
    EXPECT_EQ(errno, EFAULT);
    EXPECT_EQ(::write(file.fd(), r.space.v(6 * kBlockBytes), 100), -1);
    EXPECT_EQ(errno, EFAULT);
  }
  EXPECT_EQ(r.in_place, 0u);
  EXPECT_EQ(r.for_another, 2u) << "closed since the first time";
  EXPECT_EQ(::pread(file.fd(), r.space.v(2 * kBlockBytes + 96), 2 * kBlockBytes, 0),
            static_cast<ssize_t>(kBlockBytes - 96))
      << "what there is";
  EXPECT_EQ(std::memcmp(r.space.a(2 * kBlockBytes + 96), file.bytes(), kBlockBytes - 96), 0);
  // Its owner, or the faulting thread, allocates memory there.
  ASSERT_TRUE(r.engine->protect({BlockId{5}, 1}, Access::write));
  EXPECT_EQ(::pread(file.fd(), r.space.v(5 * kBlockBytes), 100, 0), 100);
  r.allowed = 6;
  *reinterpret_cast<volatile char*>(r.space.v(6 * kBlockBytes)) = 1;
  EXPECT_EQ(::pread(file.fd(), r.space.v(6 * kBlockBytes), 100, 0), 100);
  EXPECT_EQ(r.in_place + r.for_another, 3u);  // that of block 3
}

// More than are kept closed at once: the handler is called again for the oldest.
TEST_F(UffdThreadTest, AnyNumberOfWildBuffersIsEFAULT) {
  World ok(kUffdThread, kPageBytes);
  Space space = make_space(512 * kBlockBytes);
  const auto engine = make_engine(kUffdThread, space);
  ASSERT_TRUE(engine->start([](void*, std::uint64_t, Access, Served) { return false; }, nullptr));
  const std::uint64_t before = count_mappings();
  const PatternFile file(kBlockBytes);
  for (int time = 0; time < 2; ++time) {
    for (std::uint64_t b = 0; b < space.blocks(); b += 2) {
      ASSERT_EQ(::pread(file.fd(), space.v(b * kBlockBytes), 100, 0), -1);
      ASSERT_EQ(errno, EFAULT);
    }
  }
  EXPECT_LE(count_mappings(), before + 2 * 64 + 16);
}

std::uintptr_t wild_address;

TEST_F(UffdThreadTest, AWildAccessIsReportedInPlaceWithItsAddress) {
  for (const bool write : {false, true}) {
    EXPECT_EXIT(
        {
          traps::AltStack own = alt_stack();
          static Refusing* r = new Refusing(2);
          wild_address = reinterpret_cast<std::uintptr_t>(r->space.v(7 * kBlockBytes + 24));
          traps::set_fallback([](int signal, siginfo_t* info, void*) {
            ::_exit(reinterpret_cast<std::uintptr_t>(info->si_addr) == wild_address && signal == SIGSEGV &&
                            r->in_place == 1 && r->for_another == 1
                        ? 42
                        : 1);
          });
          auto* p = reinterpret_cast<volatile std::uint64_t*>(wild_address);
          if (write)
            *p = 1;
          else
            static_cast<void>(*p);
          ::_exit(2);
        },
        ::testing::ExitedWithCode(42), "");
  }
}

// A block for which the answer was "later", without rights, is reported again.
TEST_F(UffdThreadTest, WhatIsPutOffComesAgain) {
  Space space = make_space(kPageBytes);
  struct Later {
    FaultEngine* engine;
    std::atomic<unsigned> asked{0};
  } later;
  const auto engine = make_engine(kUffdThread, space);
  later.engine = engine.get();
  ASSERT_TRUE(engine->start(
      [](void* context, std::uint64_t offset, Access wanted, Served) {
        auto& l = *static_cast<Later*>(context);
        return ++l.asked < 100 || l.engine->protect({block_of(offset), 1}, wanted);
      },
      &later));
  const PatternFile file(100);
  EXPECT_EQ(::pread(file.fd(), space.v(0), 100, 0), 100);
  EXPECT_EQ(later.asked, 100u);
}

/// A handler that waits until it may go on.
struct SlowHandler {
  FaultEngine* engine = nullptr;
  std::atomic<bool> asked{false}, go{false};

  Result<void> start(FaultEngine& e) {
    engine = &e;
    return e.start(
        [](void* context, std::uint64_t offset, Access wanted, Served) {
          auto& slow = *static_cast<SlowHandler*>(context);
          slow.asked = true;
          while (!slow.go) ::sched_yield();
          return slow.engine->protect({block_of(offset), 1}, wanted);
        },
        this);
  }
};

// A waiting handler does not delay threads whose access V allows: the handler may wait for one of them.
TEST_F(UffdThreadTest, AllowedAccessesAreServedWhileAHandlerWaits) {
  SlowHandler slow;
  Space space = make_space(4 * kPageBytes);
  const auto engine = make_engine(kUffdThread, space);
  ASSERT_TRUE(slow.start(*engine));
  *space.a(20 * kBlockBytes) = std::byte{9};
  ASSERT_TRUE(engine->protect({BlockId{20}, 4}, Access::read));
  for (int round = 0; round < 5; ++round) {
    slow.asked = slow.go = false;
    std::thread faulter([&] {
      traps::AltStack own = alt_stack();
      *reinterpret_cast<volatile char*>(space.v(static_cast<std::uint64_t>(round) * kBlockBytes)) = 1;
    });
    while (!slow.asked) ::sched_yield();
    for (int i = 0; i < 3; ++i) {
      // As the kernel may do
      ASSERT_EQ(::madvise(space.v(20 * kBlockBytes), kBlockBytes, MADV_DONTNEED), 0);
      EXPECT_EQ(*reinterpret_cast<volatile char*>(space.v(20 * kBlockBytes)), 9);
    }
    slow.go = true;
    faulter.join();
  }
}

// Signals for the program come while it waits: its handler runs, or waits for the end of the system call, and
// nothing is lost.
TEST_F(UffdThreadTest, SignalsDoNotEndAWait) {
  static std::atomic<unsigned> signals;
  signals = 0;
  struct sigaction action{}, before{};
  action.sa_handler = [](int) { ++signals; };
  action.sa_flags = SA_ONSTACK | SA_RESTART;
  ASSERT_EQ(traps::raw_sigaction(SIGUSR1, &action, &before), 0);
  struct Slow {
    FaultEngine* engine;
  } slow;
  Space space = make_space(64 * kPageBytes);
  const auto engine = make_engine(kUffdThread, space);
  slow.engine = engine.get();
  ASSERT_TRUE(engine->start(
      [](void* context, std::uint64_t offset, Access wanted, Served) {
        ::usleep(500);
        return static_cast<Slow*>(context)->engine->protect({block_of(offset), 1}, wanted);
      },
      &slow));
  constexpr std::size_t kBytes = 40 * kBlockBytes;
  const PatternFile file(kBytes);
  std::atomic<bool> done{false};
  ssize_t got = 0;
  std::thread worker([&] {
    traps::AltStack own = alt_stack();
    got = ::pread(file.fd(), space.v(0), kBytes, 0);
    for (std::uint64_t b = 64; b < 104; ++b) *reinterpret_cast<volatile char*>(space.v(b * kBlockBytes)) = 1;
    done = true;
    while (signals == 0) ::sched_yield();
  });
  const pthread_t id = worker.native_handle();
  while (!done) {
    ::pthread_kill(id, SIGUSR1);
    ::usleep(300);
  }
  worker.join();
  EXPECT_EQ(got, static_cast<ssize_t>(kBytes));
  EXPECT_EQ(std::memcmp(space.a(0), file.bytes(), kBytes), 0);
  EXPECT_GT(signals, 0u);
  traps::raw_sigaction(SIGUSR1, &before, nullptr);
}

// Whole files go in and out of blocks whose rights another thread takes away all the time, beside loads and
// stores.
TEST_F(UffdThreadTest, NothingIsLostUnderSystemCallsAndFaultsAtOnce) {
  constexpr std::uint64_t kThreads = 4, kPart = 12;  // blocks of a thread
  World w(kUffdThread, kThreads * kPart * kBlockBytes);
  const std::size_t part_bytes = kPart * kBlockBytes;
  std::atomic<bool> stop{false};
  std::thread taker([&] {
    Random random(5);
    while (!stop)
      EXPECT_TRUE(w.set(BlockId{random.below(kThreads * kPart)},
                        random.below(2) ? Access::none : Access::read, false));
  });
  std::atomic<std::uint64_t> wrong{0};
  std::vector<std::thread> threads;
  for (std::uint64_t self = 0; self < kThreads; ++self)
    threads.emplace_back([&, self] {
      traps::AltStack own = alt_stack();
      Random random(100 + self);
      std::vector<std::byte> model(part_bytes), copy(part_bytes);
      const int file = ::memfd_create("part", MFD_CLOEXEC);
      for (int i = 0; i < (kSanitized ? 60 : 600); ++i) {
        const std::size_t at = random.below(part_bytes), n = 1 + random.below(part_bytes - at);
        std::byte* const v = w.space.v(self * part_bytes + at);
        switch (random.below(3)) {
          case 0: {  // in
            for (std::size_t k = 0; k < n; ++k) model[at + k] = static_cast<std::byte>(random.below(256));
            if (::pwrite(file, &model[at], n, 0) != static_cast<ssize_t>(n) ||
                ::pread(file, v, n, 0) != static_cast<ssize_t>(n))
              ++wrong;
            break;
          }
          case 1:  // out
            if (::pwrite(file, v, n, 0) != static_cast<ssize_t>(n) ||
                ::pread(file, copy.data(), n, 0) != static_cast<ssize_t>(n))
              ++wrong;
            if (std::memcmp(copy.data(), &model[at], n) != 0) ++wrong;
            break;
          default:
            if (*v != model[at]) ++wrong;
            *v = model[at] = static_cast<std::byte>(i);
        }
      }
      ::close(file);
    });
  for (auto& thread : threads) thread.join();
  stop = true;
  taker.join();
  EXPECT_EQ(wrong, 0u);
}

TEST_F(UffdThreadTest, WhoFaultsAfterTheStopDoesNotWait) {
  EXPECT_EXIT(
      {
        traps::AltStack own = alt_stack();
        World w(kUffdThread, kPageBytes);
        w.word(0) = 1;
        w.engine->stop();
        const PatternFile file(8);
        if (::pread(file.fd(), w.space.v(kBlockBytes), 8, 0) != -1 || errno != EFAULT) ::_exit(1);
        traps::set_fallback([](int, siginfo_t*, void*) { ::_exit(42); });
        w.word(0) = 1;
        ::_exit(2);
      },
      ::testing::ExitedWithCode(42), "");
}

// The engine stops while a handler waits for a thread whose own access V allows: that access is served, or
// neither would end.
TEST_F(UffdThreadTest, AllowedAccessesAreServedUntilTheLastAnswer) {
  for (int round = 0; round < 20; ++round) {
    SlowHandler slow;
    Space space = make_space(2 * kPageBytes);
    const auto engine = make_engine(kUffdThread, space);
    ASSERT_TRUE(slow.start(*engine));
    ASSERT_TRUE(engine->protect({BlockId{4}, 1}, Access::read));
    ASSERT_EQ(::madvise(space.v(4 * kBlockBytes), kBlockBytes, MADV_DONTNEED), 0);  // as the kernel may do
    // In system calls: a thread that is too late for V finds it closed, which is an error there.
    const PatternFile file(8);
    std::thread faulter([&] { (void)!::pread(file.fd(), space.v(0), 8, 0); });
    while (!slow.asked) ::sched_yield();
    std::thread stops([&] { engine->stop(); });
    // Both threads know, or only one
    if (round % 2 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(3));
    int pipe[2];
    ASSERT_EQ(::pipe(pipe), 0);
    EXPECT_EQ(::write(pipe[1], space.v(4 * kBlockBytes), 8), 8);
    slow.go = true;
    faulter.join();
    stops.join();
    ::close(pipe[0]);
    ::close(pipe[1]);
  }
}

// A thread waits in the kernel, and the engine ends; the process must end.
TEST_F(UffdThreadTest, WhoWaitsWhenItEndsIsReported) {
  EXPECT_EXIT(
      {
        static std::atomic<bool> asked{false};
        Space space = make_space(kPageBytes);
        auto engine = make_engine(kUffdThread, space);
        if (!engine->start(
                [](void*, std::uint64_t, Access, Served) {
                  asked = true;
                  return true;  // later, forever
                },
                nullptr))
          ::_exit(1);
        traps::set_fallback([](int, siginfo_t*, void*) { ::_exit(42); });
        std::thread waits([&] {
          traps::AltStack own = alt_stack();
          *reinterpret_cast<volatile char*>(space.v(0)) = 1;
          ::_exit(2);
        });
        while (!asked) ::sched_yield();
        engine.reset();
        waits.join();
      },
      ::testing::ExitedWithCode(42), "");
}

TEST_F(UffdThreadTest, AProcessEndsThoughItsThreadsWait) {
  EXPECT_EXIT(
      {
        static std::atomic<bool> asked{false};
        Space space = make_space(kPageBytes);
        auto engine = make_engine(kUffdThread, space);
        if (!engine->start(
                [](void*, std::uint64_t, Access, Served) -> bool {
                  asked = true;
                  for (;;) ::pause();
                },
                nullptr))
          ::_exit(1);
        std::thread loads([&] { static_cast<void>(*reinterpret_cast<volatile char*>(space.v(0))); });
        std::thread calls([&] {
          const PatternFile file(8);
          static_cast<void>(::pread(file.fd(), space.v(kBlockBytes), 8, 0));
        });
        while (!asked) ::sched_yield();
        ::_exit(42);
      },
      ::testing::ExitedWithCode(42), "");
}

int wishes_without_privileges() {
  // The kernel's answer to a program without privileges, and without the device's file.
  if (!refuse_system_call(SYS_userfaultfd, 0, O_CLOEXEC | O_NONBLOCK, EPERM) ||
      !refuse_system_call(SYS_openat, 2, O_RDWR | O_CLOEXEC, EACCES))
    return 1;
  const Space space = make_space(kPageBytes);
  const auto forced = make_fault_engine(space, kUffdThread);
  if (forced || forced.error().code != Errc::unsupported ||
      forced.error().message.find("vm.unprivileged_userfaultfd=1") == std::string::npos)
    return 2;
  if (engines()[2].available || engines()[2].reason.find("CAP_SYS_PTRACE") == std::string::npos) return 3;
  const auto chosen = make_fault_engine(space, "auto");
  if (!chosen || (*chosen)->name() == kUffdThread) return 4;
  return 42;
}

TEST(UffdThreadDeathTest, WithoutPrivilegesItSaysWhatToDoAndAutoTakesAnother) {
  EXPECT_EXIT(::_exit(wishes_without_privileges()), ::testing::ExitedWithCode(42), "");
}

/// The result of choosing an engine in a process whose kernel refuses a system call: 42 if uffd is refused
/// with that reason and auto takes mprotect.
int wishes_under(long number, unsigned argument, std::uint32_t value, int error, const char* reason) {
  if (!refuse_system_call(number, argument, value, error)) return 1;
  const Space space = make_space(kPageBytes);
  const auto forced = make_fault_engine(space, "uffd");
  if (forced || forced.error().code != Errc::unsupported ||
      forced.error().message.find(reason) == std::string::npos)
    return 2;
  const auto chosen = make_fault_engine(space, "auto");
  if (!chosen || (*chosen)->name() != "mprotect") return 3;
  if (engines()[0].available || engines()[0].reason.find(reason) == std::string::npos) return 4;
  return 42;
}

TEST_F(UffdEngineTest, WhereTheKernelRefusesItAutoTakesTheOther) {
  constexpr std::uint32_t kContinue = static_cast<std::uint32_t>(UFFDIO_CONTINUE);
  EXPECT_EXIT(::_exit(wishes_under(SYS_userfaultfd, 0, O_CLOEXEC | 1, EPERM,
                                   "refuses userfaultfd: Operation not permitted")),
              ::testing::ExitedWithCode(42), "");
  EXPECT_EXIT(::_exit(wishes_under(SYS_ioctl, 1, kContinue, EINVAL, "UFFDIO_CONTINUE_MODE_WP, Linux 6.4")),
              ::testing::ExitedWithCode(42), "");
}

TEST_F(UffdEngineTest, VIsClosedWhenTheEngineEnds) {
  EXPECT_EXIT(
      {
        traps::AltStack own = alt_stack();
        World w("uffd", kPageBytes);
        if (!w.engine->protect({BlockId{0}, 16}, Access::write)) ::_exit(1);
        w.engine.reset();
        traps::set_fallback([](int, siginfo_t*, void*) { ::_exit(42); });
        w.word(0) = 1;
        ::_exit(2);
      },
      ::testing::ExitedWithCode(42), "");
}

TEST_F(UffdEngineTest, WhatTheKernelRefusesIsToldToTheFallback) {
  EXPECT_EXIT(
      {
        traps::AltStack own = alt_stack();
        World w("uffd", kPageBytes);
        if (!w.engine->protect({BlockId{0}, 16}, Access::write)) ::_exit(1);
        if (::madvise(w.space.v(0), kBlockBytes, MADV_DONTNEED) != 0) ::_exit(3);
        if (::ftruncate(w.space.frames_fd(), 0) != 0) ::_exit(4);  // no frame can be made any more
        traps::set_fallback([](int, siginfo_t*, void*) { ::_exit(errno == EFAULT ? 42 : 5); });
        w.word(0) = 1;
        ::_exit(2);
      },
      ::testing::ExitedWithCode(42), "");
}

using EngineDeathTest = EngineTest;
INSTANTIATE_TEST_SUITE_P(Engines, EngineDeathTest, ::testing::ValuesIn(engines_here()), engine_test_name);

TEST_P(EngineDeathTest, ARunBeyondTheSpaceIsOurBug) {
  World w(GetParam(), kPageBytes);
  EXPECT_DEATH((void)w.engine->protect({BlockId{w.space.blocks() - 1}, 2}, Access::none), "");
}

}  // namespace
}  // namespace kasane::mem
