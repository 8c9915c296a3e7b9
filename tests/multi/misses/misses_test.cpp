// SPDX-License-Identifier: Apache-2.0
// What a thread has in its registers when an access of any kind waits for a page, and what other threads of
// its worker do meanwhile (docs/design/misses.md). Pages that are on SSD, with a budget; else another rank's.
// Where the other rank's memory is mapped here no access waits so, and the same must hold.
#include <cpuid.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cfenv>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <kasane/kasane.hpp>
#include <memory>
#include <vector>

namespace {

constexpr std::size_t kBlock = 4096, kImage = 2688, kRedZone = 128;
constexpr std::size_t kX87Tags = 4, kX87 = 32;  ///< in the image
constexpr std::uint64_t kBlocks = 4096;

struct Live {
  std::uint64_t registers[15];  ///< rax rcx rdx rbx rbp rsi rdi r8 … r15
  std::uint64_t flags;
  std::uint64_t after[15], flags_after;
  void (*code)();
  unsigned char red_zone[kRedZone];  ///< of code's, from below
  alignas(64) unsigned char image[kImage], image_after[kImage];
};
static_assert(offsetof(Live, flags) == 120 && offsetof(Live, after) == 128 &&
              offsetof(Live, flags_after) == 248 && offsetof(Live, code) == 256 &&
              offsetof(Live, red_zone) == 264 && offsetof(Live, image) == 448 &&
              offsetof(Live, image_after) == 448 + kImage);

extern "C" void live_access(Live*);
// The code gets a return address, the words of its red zone but for the two that are used on the way there,
// flags and all registers. Each of the codes accesses the memory at rsi; what is loaded is in rax;
// repeat_moves has rcx words for rdi; gather overwrites the first three vector registers.
asm(R"(
        .text
        .p2align 4
live_access:
        pushq   %rbx
        pushq   %rbp
        pushq   %r12
        pushq   %r13
        pushq   %r14
        pushq   %r15
        subq    $8, %rsp
        fnstcw  (%rsp)
        stmxcsr 4(%rsp)
        pushq   %rdi
        movl    $0xe7, %eax
        xorl    %edx, %edx
        xrstor64 448(%rdi)
        leaq    1f(%rip), %rax
        pushq   %rax
        .set    at, 0
        .rept   14
        movq    264+at(%rdi), %rax
        movq    %rax, at-128(%rsp)
        .set    at, at+8
        .endr
        pushq   256(%rdi)
        pushq   120(%rdi)
        movq    0(%rdi), %rax
        movq    8(%rdi), %rcx
        movq    16(%rdi), %rdx
        movq    24(%rdi), %rbx
        movq    32(%rdi), %rbp
        movq    40(%rdi), %rsi
        movq    56(%rdi), %r8
        movq    64(%rdi), %r9
        movq    72(%rdi), %r10
        movq    80(%rdi), %r11
        movq    88(%rdi), %r12
        movq    96(%rdi), %r13
        movq    104(%rdi), %r14
        movq    112(%rdi), %r15
        movq    48(%rdi), %rdi
        popfq
        ret
1:      pushfq
        pushq   %rax
        movq    16(%rsp), %rax
        movq    %rdi, 176(%rax)
        movq    %rax, %rdi
        popq    128(%rdi)
        popq    248(%rdi)
        cld
        movq    %rcx, 136(%rdi)
        movq    %rdx, 144(%rdi)
        movq    %rbx, 152(%rdi)
        movq    %rbp, 160(%rdi)
        movq    %rsi, 168(%rdi)
        movq    %r8, 184(%rdi)
        movq    %r9, 192(%rdi)
        movq    %r10, 200(%rdi)
        movq    %r11, 208(%rdi)
        movq    %r12, 216(%rdi)
        movq    %r13, 224(%rdi)
        movq    %r14, 232(%rdi)
        movq    %r15, 240(%rdi)
        .set    at, 0
        .rept   14
        movq    at-136(%rsp), %rax
        movq    %rax, 264+at(%rdi)
        .set    at, at+8
        .endr
        movl    $0xe7, %eax
        xorl    %edx, %edx
        xsave64 448+2688(%rdi)
        fninit
        popq    %rdi
        fldcw   (%rsp)
        ldmxcsr 4(%rsp)
        addq    $8, %rsp
        popq    %r15
        popq    %r14
        popq    %r13
        popq    %r12
        popq    %rbp
        popq    %rbx
        ret
        .macro  CODE name
        .p2align 4
\name:
        .endm
        CODE    load_a_word
        movq    (%rsi), %rax
        ret
        CODE    load_over_a_page
        movq    4092(%rsi), %rax
        ret
        CODE    store_a_word
        movq    %rax, 8(%rsi)
        ret
        CODE    add_to_a_word
        lock addq $1, 16(%rsi)
        ret
        CODE    repeat_moves
        rep movsq
        ret
        CODE    push_a_word
        subq    $128, %rsp
        pushq   (%rsi)
        popq    %rax
        leaq    128(%rsp), %rsp
        ret
        CODE    call_through
        subq    $128, %rsp
        call    *24(%rsi)
        leaq    128(%rsp), %rsp
        ret
        CODE    called
        leaq    1(%rax), %rax
        ret
        CODE    gather
        vpcmpeqd %ymm0, %ymm0, %ymm0
        vpxor   %xmm2, %xmm2, %xmm2
        vpgatherqq %ymm0, (%rsi,%ymm2,1), %ymm1
        ret
)");
extern "C" {
void load_a_word();
void load_over_a_page();
void store_a_word();
void add_to_a_word();
void repeat_moves();
void push_a_word();
void call_through();
void called();
void gather();
}

/// Blocks that are not here: of the other rank, or more than the budget holds. Word 0 of each is its number.
class Away {
 public:
  Away() : there_(kasane::ranks() > 1 ? 1 : 0), memory_(allocate()) {
    kasane::thread(kasane::at{there_}, [this] {
      for (std::uint64_t i = 0; i < kBlocks; ++i) {
        auto* const words = reinterpret_cast<std::uint64_t*>(block(i));
        words[0] = i;
        words[3] = reinterpret_cast<std::uint64_t>(&called);
      }
    }).join();
    while (kasane::rank() != 0) kasane::this_thread::move_to(0);
  }
  ~Away() { kasane::deallocate(memory_); }
  [[nodiscard]] std::byte* block(std::uint64_t i) const { return memory_ + i % kBlocks * kBlock; }

 private:
  std::byte* allocate() const {
    return static_cast<std::byte*>(
        kasane::allocate((kBlocks + 1) * kBlock, kBlock, kasane::placement::on(there_)));
  }
  std::uint32_t there_;
  std::byte* memory_;
};

bool has_avx2() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (b >> 5 & 1) != 0;
}

/// Masks, upper halves, and the registers from 16 on.
constexpr unsigned kAvx512Parts[] = {5, 6, 7}, kUpperHalves = 6;

bool has_avx512() {
  unsigned a = 0, b = 0, c = 0, d = 0, low = 0, high = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (b >> 16 & 1) == 0) return false;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (low & 0xe0) == 0xe0;
}

struct Part {
  unsigned bytes = 0, at = 0;  ///< in the image, as the processor says
};

Part part_of_image(unsigned number) {
  Part part;
  unsigned c = 0, d = 0;
  __get_cpuid_count(0xd, number, &part.bytes, &part.at, &c, &d);
  return part;
}

/// Different in each thread and at each access.
void fill(Live& live, std::uint64_t seed) {
  auto next = [&seed] { return seed = seed * 6364136223846793005u + 1442695040888963407u; };
  for (auto& r : live.registers) r = next();
  live.flags = 0x202 | (next() & 0x8d5);  // carry, parity, adjust, zero, sign, overflow
  for (auto& byte : live.red_zone) byte = static_cast<unsigned char>(next() >> 40);
  asm volatile("xsave64 (%0)" : : "r"(std::memset(live.image, 0, kImage)), "a"(0xe7), "d"(0) : "memory");
  for (std::size_t i = 0; i < 8; ++i) {  // x87 registers as numbers, and all eight in use
    const std::uint64_t mantissa = next() | std::uint64_t{1} << 63;
    const auto exponent = static_cast<std::uint16_t>(0x3fff + i);
    std::memcpy(live.image + kX87 + 16 * i, &mantissa, 8);
    std::memcpy(live.image + kX87 + 16 * i + 8, &exponent, 2);
  }
  live.image[kX87Tags] = 0xff;
  for (std::size_t i = 0; i < 16 * 16; i += 8) {
    const std::uint64_t value = next();
    std::memcpy(live.image + 160 + i, &value, 8);
    std::memcpy(live.image + 576 + i, &value, 8);
  }
  const std::uint16_t control = 0x0f7f;  // truncates
  const std::uint32_t mxcsr = 0x7f80;    // truncates
  std::memcpy(live.image, &control, 2);
  std::memcpy(live.image + 24, &mxcsr, 4);
  live.image[512] |= has_avx2() ? 7 : 3;
  if (!has_avx512()) return;
  for (const unsigned number : kAvx512Parts) {
    const Part part = part_of_image(number);
    ASSERT_LE(part.at + part.bytes, kImage);
    for (unsigned i = 0; i < part.bytes; i += 8) {
      const std::uint64_t value = next();
      std::memcpy(live.image + part.at + i, &value, 8);
    }
  }
  live.image[512] |= 0xe0;
}

void expect_the_same(const Live& live, const Live& before, bool changes_vectors, const char* what) {
  EXPECT_EQ(live.flags_after & 0x8d5, before.flags & 0x8d5) << what;
  EXPECT_EQ(std::memcmp(live.red_zone, before.red_zone, kRedZone - 16), 0) << what;
  for (int i = 1; i < 15; ++i) EXPECT_EQ(live.after[i], before.registers[i]) << what << ", register " << i;
  const std::size_t from = changes_vectors ? 3 * 16 : 0;
  EXPECT_EQ(std::memcmp(live.image_after + 160 + from, before.image + 160 + from, 256 - from), 0) << what;
  if (has_avx2()) {
    EXPECT_EQ(std::memcmp(live.image_after + 576 + from, before.image + 576 + from, 256 - from), 0) << what;
  }
  for (const unsigned number : kAvx512Parts) {
    if (!has_avx512()) break;
    const Part part = part_of_image(number);
    const unsigned begin = part.at + (number == kUpperHalves ? static_cast<unsigned>(2 * from) : 0);
    EXPECT_EQ(std::memcmp(live.image_after + begin, before.image + begin, part.at + part.bytes - begin), 0)
        << what << ": AVX-512, part " << number;
  }
  EXPECT_EQ(std::memcmp(live.image_after, before.image, 2), 0) << what << ": x87 control word";
  EXPECT_EQ(live.image_after[kX87Tags], before.image[kX87Tags]) << what << ": x87 stack";
  for (std::size_t at = kX87; at < kX87 + 8 * 16; at += 16)
    EXPECT_EQ(std::memcmp(live.image_after + at, before.image + at, 10), 0) << what << ": x87 register";
  EXPECT_EQ(std::memcmp(live.image_after + 24, before.image + 24, 4), 0) << what << ": MXCSR";
}

void access_with_all_live(const Away& away, std::uint64_t number) {
  struct Kind {
    void (*code)();
    const char* name;
  };
  constexpr Kind kinds[] = {{load_a_word, "load"},   {load_over_a_page, "load over a page"},
                            {store_a_word, "store"}, {repeat_moves, "rep movs"},
                            {push_a_word, "push"},   {call_through, "call"},
                            {gather, "gather"}};
  const auto live = std::make_unique<Live>();
  const auto before = std::make_unique<Live>();
  std::uint64_t copy[1024];
  std::uint64_t at = number * 977;
  for (int round = 0; round < 4; ++round) {
    for (const Kind& kind : kinds) {
      if (kind.code == gather && !has_avx2()) continue;
      at += 37;
      fill(*live, at);
      live->code = kind.code;
      live->registers[5] = reinterpret_cast<std::uint64_t>(away.block(at));
      if (kind.code == repeat_moves) {
        live->registers[1] = 600;  // over a page, and into the next one
        live->registers[6] = reinterpret_cast<std::uint64_t>(copy);
      }
      *before = *live;
      errno = static_cast<int>(number);
      live_access(live.get());
      EXPECT_EQ(errno, static_cast<int>(number)) << kind.name;
      if (kind.code == load_a_word || kind.code == push_a_word) {
        EXPECT_EQ(live->after[0], at % kBlocks) << kind.name;
      }
      if (kind.code == call_through) {
        EXPECT_EQ(live->after[0], before->registers[0] + 1);
      }
      if (kind.code == repeat_moves) {
        EXPECT_EQ(live->after[1], 0u);
        EXPECT_EQ(live->after[5], before->registers[5] + 4800);
        EXPECT_EQ(live->after[6], before->registers[6] + 4800);
        EXPECT_EQ(copy[0], at % kBlocks);
        before->registers[1] = 0;
        before->registers[5] += 4800;
        before->registers[6] += 4800;
      }
      if (kind.code == push_a_word || kind.code == call_through) {  // their own arithmetic
        live->flags_after = before->flags;
        std::memcpy(live->red_zone, before->red_zone, kRedZone);
      }
      expect_the_same(*live, *before, kind.code == gather, kind.name);
    }
  }
}

/// Are there accesses here during which the worker runs other threads?
bool leaves() { return kasane::counter("faults_left") != 0; }

TEST(Misses, KeepWhatAThreadHas) {
  kasane::run([] {
    const Away away;
    std::vector<kasane::thread> threads;
    for (std::uint64_t i = 0; i < 16; ++i)
      threads.emplace_back([&away, i] {
        while (kasane::rank() != 0) kasane::this_thread::move_to(0);
        access_with_all_live(away, i);
      });
    for (auto& t : threads) t.join();
  });
}

volatile std::sig_atomic_t g_handled = 0;

TEST(Misses, HandlersOfSignalsRunMeanwhile) {
  struct sigaction action{};
  action.sa_handler = [](int) { g_handled = g_handled + 1; };
  action.sa_flags = SA_RESTART;
  sigaction(SIGALRM, &action, nullptr);
  kasane::run([] {
    const Away away;
    const itimerval often{{0, 1000}, {0, 1000}}, never{};
    setitimer(ITIMER_REAL, &often, nullptr);
    std::vector<kasane::thread> threads;
    std::atomic<std::uint64_t> wrong{0};
    for (std::uint64_t i = 0; i < 8; ++i)
      threads.emplace_back([&, i] {
        for (std::uint64_t n = 0; n < 400; ++n) {
          const std::uint64_t at = (i * 400 + n) * 1237 % kBlocks;
          if (*reinterpret_cast<volatile std::uint64_t*>(away.block(at)) != at) ++wrong;
        }
      });
    for (auto& t : threads) t.join();
    setitimer(ITIMER_REAL, &never, nullptr);
    EXPECT_EQ(wrong.load(), 0u);
  });
}

/// A thread's stores arrive, though others of its worker store to the same blocks while it waits, and its
/// rank releases and acquires.
TEST(Misses, StoresToTheSameBlocks) {
  kasane::run([] {
    const Away away;
    constexpr std::uint64_t kThreads = 16, kOf = 200;
    std::vector<kasane::thread> threads;
    for (std::uint64_t i = 0; i < kThreads; ++i)
      threads.emplace_back([&away, i] {
        for (std::uint64_t n = 0; n < kOf; ++n) {
          auto* const word = reinterpret_cast<volatile std::uint64_t*>(away.block(n * 19)) + 8 + i;
          *word = n * kThreads + i;
          if (n % 16 == i) kasane::release_all();
          if (n % 32 == i) kasane::acquire_all();
        }
      });
    for (auto& t : threads) t.join();
    std::uint64_t wrong = 0;
    for (std::uint64_t n = 0; n < kOf; ++n)
      for (std::uint64_t i = 0; i < kThreads; ++i)
        wrong += (reinterpret_cast<volatile std::uint64_t*>(away.block(n * 19))[8 + i] != n * kThreads + i);
    EXPECT_EQ(wrong, 0u);
  });
}

/// Without a thread beyond them: the second half begins while the first one waits, and each runs once.
TEST(Misses, LazyHalvesRunMeanwhile) {
  kasane::run([] {
    const Away away;
    int overtaken = 0, ran[2] = {0, 0};
    for (std::uint64_t i = 0; i < 100; ++i) {
      bool first_ended = false;
      std::uint64_t sum = 0;
      const auto* const word = reinterpret_cast<volatile std::uint64_t*>(away.block(i * 1237));
      kasane::parallel_invoke(
          [&] {
            sum = *word;
            first_ended = true;
            ++ran[0];
          },
          [&] {
            overtaken += !first_ended;
            ++ran[1];
          });
      EXPECT_EQ(sum, i * 1237 % kBlocks);
    }
    EXPECT_EQ(ran[0], 100);
    EXPECT_EQ(ran[1], 100);
    if (leaves()) {
      EXPECT_GT(overtaken, 0);
    }
  });
}

/// The calling thread stays at rank 0, as does another one of its worker that runs whenever it may.
class WithAnother {
 public:
  WithAnother()
      : other_([this] {
          while (!done_) {
            while (kasane::rank() != 0) kasane::this_thread::move_to(0);
            if (waits_ && !ran_) ran_ = true;
            kasane::this_thread::yield();
          }
        }) {}
  ~WithAnother() {
    done_ = true;
    other_.join();
  }
  WithAnother(const WithAnother&) = delete;
  WithAnother& operator=(const WithAnother&) = delete;

  /// Has the other thread run between the beginning of the call and its end?
  template <class Call>
  bool runs_during(const Call& call) {
    while (kasane::rank() != 0) kasane::this_thread::move_to(0);
    ran_ = false;
    waits_ = true;
    call();
    waits_ = false;
    return ran_;
  }

 private:
  volatile bool done_ = false, waits_ = false, ran_ = false;
  kasane::thread other_;
};

/// A call on a block that is not here, of whose first word it is told the address.
struct CallOnBlock {
  const char* name;
  bool (*is_right)(std::uint64_t* word, std::uint64_t number, int file);
};
constexpr CallOnBlock kCalls[] = {
    {"view", [](std::uint64_t* word, std::uint64_t number,
                int) { return kasane::view<const std::uint64_t>(word, 1)[0] == number; }},
    {"get",
     [](std::uint64_t* word, std::uint64_t number, int) {
       std::uint64_t value = 0;
       kasane::get(&value, word);
       return value == number;
     }},
    {"put",
     [](std::uint64_t* word, std::uint64_t number, int) {
       kasane::put(word + 1, &number);
       std::uint64_t value = 0;
       kasane::get(&value, word + 1);
       return value == number;
     }},
    {"atomic",
     [](std::uint64_t* word, std::uint64_t number, int) {
       std::uint64_t old = 0;
       return kasane_atomic(KASANE_FETCH_ADD, 8, word, 0, 0, &old, nullptr) == 0 && old == number;
     }},
    {"write",
     [](std::uint64_t* word, std::uint64_t number, int file) {
       std::uint64_t value = 0;
       return ::lseek(file, 0, SEEK_SET) == 0 && ::write(file, word, 8) == 8 &&
              ::pread(file, &value, 8, 0) == 8 && value == number;
     }},
    {"pwrite",
     [](std::uint64_t* word, std::uint64_t number, int file) {
       std::uint64_t value = 0;
       return ::pwrite(file, word, 8, 64) == 8 && ::pread(file, &value, 8, 64) == 8 && value == number;
     }},
    {"read",
     [](std::uint64_t* word, std::uint64_t number, int file) {
       return ::lseek(file, 128, SEEK_SET) == 128 && ::read(file, word + 2, 8) == 8 && word[2] == 7 &&
              word[0] == number;
     }},
    {"readv",
     [](std::uint64_t* word, std::uint64_t number, int file) {
       const iovec vector = {word + 2, 8};
       return ::lseek(file, 128, SEEK_SET) == 128 && ::readv(file, &vector, 1) == 8 && word[2] == 7 &&
              word[0] == number;
     }},
    {"view of pages",
     [](std::uint64_t* word, std::uint64_t number, int) {
       constexpr std::size_t kWords = std::size_t{40} * kBlock / 8;
       const kasane::view<const std::uint64_t> v(word, kWords);
       return v[0] == number && v[kWords - kBlock / 8] == number + 39;
     }},
};

/// Calls that wait for what is elsewhere as an access does. Each block is used once.
TEST(Misses, CallsLetOthersRunMeanwhile) {
  constexpr std::uint64_t kTimes = 60;
  kasane::run([] {
    const Away away;
    const int file = ::memfd_create("misses", 0);
    const std::uint64_t seven = 7;
    ASSERT_EQ(::pwrite(file, &seven, 8, 128), 8);
    std::uint64_t n = 0;
    WithAnother another;
    for (; n < kTimes; ++n) {  // does it happen here at all?
      const auto* const word = reinterpret_cast<const volatile std::uint64_t*>(away.block(n * 1237));
      another.runs_during([&] { EXPECT_EQ(*word, n * 1237 % kBlocks); });
    }
    for (const CallOnBlock& call : kCalls) {
      std::uint64_t during = 0;
      // What is there at the first look keeps the thread, so how many let others run depends on the machine.
      for (std::uint64_t i = 0; i < kTimes || (leaves() && during == 0 && i < 10 * kTimes); ++i) {
        const std::uint64_t at = n++ * 1237 % (kBlocks - 64);
        auto* const word = reinterpret_cast<std::uint64_t*>(away.block(at));
        during += another.runs_during([&] { EXPECT_TRUE(call.is_right(word, at, file)) << call.name; });
      }
      if (leaves()) {
        EXPECT_GE(during, 1u) << call.name;
      }
    }
    ::close(file);
  });
}

}  // namespace
