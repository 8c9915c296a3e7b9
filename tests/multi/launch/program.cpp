// SPDX-License-Identifier: Apache-2.0
// What the launch tests launch: it does one thing, named by its first argument. With KASANE_MAIN=all every
// rank does it, and `RANK what` does it on one rank only while the others wait.
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <kasane/kasane.hpp>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iterator>
#include <map>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>

namespace {

int g_constructed = 0;
struct Constructed {
  Constructed() { ++g_constructed; }
  ~Constructed() { std::printf("destroyed\n"); }
} g_static;

/// Where nothing is mapped, and that no compiler knows.
volatile std::uintptr_t g_wild = 0x1234560;

[[gnu::noinline]] void store_to_a_wild_address() { *reinterpret_cast<volatile int*>(g_wild) = 1; }

volatile int g_deepest = 1 << 30;

[[gnu::noinline]] int overflow_the_stack(int depth) {
  if (depth == g_deepest) return 0;
  volatile char frame[512];
  frame[0] = static_cast<char>(depth);
  return overflow_the_stack(depth + 1) + frame[0];
}

[[gnu::noinline]] void work_a_little() {
  volatile int spin = 20000;
  while (spin > 0) spin = spin - 1;
}

[[noreturn]] void wait_for_ever() {
  for (;;) ::sleep(1);
}

void say(const char* text) {
  std::printf("%s\n", text);
  std::fflush(stdout);
}

int say_pid() {
  std::printf("rank %u pid %d\n", kasane_rank(), ::getpid());
  std::fflush(stdout);
  wait_for_ever();
}

int echo_input() {
  char line[256];
  while (std::fgets(line, sizeof line, stdin) != nullptr) std::printf("input: %s", line);
  say("end of input");
  return 0;
}

int write_many_lines() {
  for (int i = 0; i < 2000; ++i) {
    std::printf("line %d of a rank\n", i);
    if (i % 100 == 0) std::fprintf(stderr, "error line %d\n", i);
  }
  std::printf("no newline here");
  return 0;
}

volatile sig_atomic_t g_signal = 0;

int catch_signal() {
  for (const int s : {SIGINT, SIGTERM, SIGUSR1}) ::signal(s, [](int signal) { g_signal = signal; });
  say("ready");
  while (g_signal == 0) ::usleep(1000);
  std::printf("got %d\n", static_cast<int>(g_signal));
  return 5;
}

int leave_orphan() {
  // The shell ends at once, the sleeper in the background stays.
  return std::system("sleep 1000 >/dev/null 2>&1 & echo started") == 0 ? 0 : 1;
}

sigjmp_buf g_back;
volatile sig_atomic_t g_faults = 0;

void on_fault(int, siginfo_t* info, void*) {
  g_faults = g_faults + (info->si_addr == reinterpret_cast<void*>(g_wild));
  siglongjmp(g_back, 1);
}

/// A program's own SIGSEGV handler serves its own faults while Kasane serves those of the space.
int handle_own_faults() {
  struct sigaction mine = {}, told = {};
  mine.sa_sigaction = on_fault;
  mine.sa_flags = SA_SIGINFO;
  if (::sigaction(SIGSEGV, &mine, nullptr) != 0) return 1;
  int* shared = nullptr;
  kasane::run([&] {
    shared = static_cast<int*>(kasane_allocate(1 << 20, 64, KASANE_PLACEMENT_CYCLIC));
    for (int i = 0; i < (1 << 18); i += 1024) shared[i] = i;
  });
  for (int round = 0; round < 3; ++round) {
    if (sigsetjmp(g_back, 1) == 0) store_to_a_wild_address();
  }
  if (::sigaction(SIGSEGV, nullptr, &told) != 0 || told.sa_sigaction != on_fault) return 2;
  for (int i = 0; i < (1 << 18); i += 1024) {
    if (shared[i] != i) return 3;
  }
  return g_faults == 3 ? 0 : 4;
}

int fork_in_main() { return ::fork() < 0 ? 1 : 0; }

int fork_in_a_thread() {
  kasane::run([] { kasane::thread([] { ::fork(); }).join(); });
  return 0;
}

int fork_in_an_os_thread() {
  int code = -1;
  std::thread([&] {
    const pid_t pid = ::fork();
    if (pid == 0) std::exit(0);  // through exit(): the child must not speak for its parent
    int status = 0;
    ::waitpid(pid, &status, 0);
    code = WEXITSTATUS(status);
  }).join();
  return code;
}

int start_programs() {
  int failures = 0;
  kasane::run([&] {
    failures += std::system("echo from system") != 0;
    std::FILE* pipe = ::popen("echo ranks=$KASANE_RANKS", "r");
    char line[64] = {};
    failures +=
        pipe == nullptr || std::fgets(line, sizeof line, pipe) == nullptr || std::string(line) != "ranks=1\n";
    if (pipe != nullptr) ::pclose(pipe);
  });
  return failures;
}

/// This program once more, as one that a rank starts.
int start_oneself() {
  char path[4096];
  const ssize_t n = ::readlink("/proc/self/exe", path, sizeof path);
  return n > 0 ? std::system((std::string(path, static_cast<std::size_t>(n)) + " hello").c_str()) : 1;
}

/// The soft limit of the stack, here and in a program that is started.
int say_stack_limit() {
  rlimit limit = {};
  ::getrlimit(RLIMIT_STACK, &limit);
  std::printf("stack %llu KiB\n", static_cast<unsigned long long>(limit.rlim_cur >> 10));
  std::fflush(stdout);
  return std::system("echo child stack $(ulimit -Ss) KiB");
}

/// Runs f on a serving rank.
void on_another_rank(const std::function<void()>& f) {
  kasane::run([&] {
    void* there = kasane_allocate_at(64, 16, 1);
    kasane_thread_move_near(there);
    if (kasane_rank() != 0) f();
  });
}

/// Leaves behind a thread that runs for ever on some worker that is not main's, in global memory, and one
/// that yields, forks and joins for ever.
void leave_threads_running() {
  struct Shared {
    kasane::mutex mutex;
    kasane::condition_variable changed;
    bool started = false;
    std::uint64_t words[1 << 16] = {};
  };
  kasane::run([] {
    auto* shared = new (kasane_allocate(sizeof(Shared), 64, KASANE_PLACEMENT_CYCLIC)) Shared;
    kasane::thread([shared] {
      // until an idle worker takes the continuation
      while (kasane_rank() == 0 && ::gettid() == ::getpid()) kasane::thread(work_a_little).join();
      {
        const std::scoped_lock lock(shared->mutex);
        shared->started = true;
      }
      shared->changed.notify_one();
      // Having notified it may have moved back, but one that runs on main's worker keeps main from ending.
      while (kasane_rank() == 0 && ::gettid() == ::getpid()) kasane::thread(work_a_little).join();
      volatile std::uint64_t* words = shared->words;
      for (std::size_t i = 0;; i = (i + 1) % std::size(shared->words)) words[i] = words[i] + 1;
    }).detach();
    {
      std::unique_lock lock(shared->mutex);
      shared->changed.wait(lock, [&] { return shared->started; });
    }
    kasane::thread([] {
      for (;;) {
        kasane::this_thread::yield();
        kasane::thread(work_a_little).join();
      }
    }).detach();
    say("left running");
  });
}

/// For ever, 48 MiB of two ranks.
int change_more_than_memory() {
  constexpr std::size_t kWords = std::size_t{6} << 20, kPart = 8192;
  kasane::run([] {
    const auto words = kasane::make_array<std::uint64_t>(kWords, kasane::placement::block);
    say("ready");
    for (std::uint64_t round = 1;; ++round) {
      kasane::parallel_for(std::size_t{0}, kWords / kPart, [round, all = words.get()](std::size_t part) {
        for (std::size_t i = 0; i < kPart; ++i) all[part * kPart + i] += round;
      });
    }
  });
  return 0;
}

/// Threads that keep every rank busy, for tests that break in.
int busy_threads() {
  say("ready");
  kasane::run([] {
    for (;;) {
      kasane::thread child(work_a_little);
      child.join();
    }
  });
  return 0;
}

const std::map<std::string, int (*)()> kDeeds = {
    {"return", [] { return 0; }},
    {"return3", [] { return 3; }},
    {"return255", [] { return 255; }},
    {"exit7", []() -> int { std::exit(7); }},
    {"exit0", []() -> int { std::exit(0); }},
    {"_exit0", []() -> int { ::_exit(0); }},
    {"segv",
     [] {
       store_to_a_wild_address();
       return 0;
     }},
    {"abort", []() -> int { std::abort(); }},
    {"throw", []() -> int { throw std::runtime_error("nobody catches me"); }},
    {"kill", [] { return ::raise(SIGKILL); }},
    {"overflow", [] { return overflow_the_stack(0); }},
    {"constructed", [] { return g_constructed == 1 ? 0 : 1; }},
    {"hello",
     [] {
       std::printf("hello from rank %u of %u\n", kasane_rank(), kasane_ranks());
       return 0;
     }},
    {"pid", say_pid},
    {"input", echo_input},
    {"lines", write_many_lines},
    {"signal", catch_signal},
    {"orphan", leave_orphan},
    {"own-faults", handle_own_faults},
    {"fork-main", fork_in_main},
    {"fork-thread", fork_in_a_thread},
    {"fork-os-thread", fork_in_an_os_thread},
    {"programs", start_programs},
    {"start-oneself", start_oneself},
    {"stack-limit", say_stack_limit},
    {"busy", busy_threads},
    {"page", change_more_than_memory},
    {"detached",
     [] {
       leave_threads_running();
       return 3;
     }},
    {"detached-exit",
     []() -> int {
       leave_threads_running();
       std::exit(5);
     }},
    {"thread-exit",
     [] {
       kasane::run([] { kasane::thread([] { std::exit(0); }).join(); });
       return 0;
     }},
    {"thread-segv",
     [] {
       kasane::run([] { kasane::thread([] { store_to_a_wild_address(); }).join(); });
       return 0;
     }},
    {"thread-overflow",
     [] {
       kasane::run([] { kasane::thread([] { overflow_the_stack(0); }).join(); });
       return 0;
     }},
    {"elsewhere-exit",
     [] {
       on_another_rank([] { std::exit(4); });
       return 0;
     }},
    {"elsewhere-segv",
     [] {
       on_another_rank(store_to_a_wild_address);
       return 0;
     }},
    {"wild-in-space",
     [] {
       kasane::run([] {
         auto* p = static_cast<volatile char*>(kasane_malloc(64));
         p[std::size_t{1} << 36] = 1;  // in the space, far from anything
       });
       return 0;
     }},
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 99;
  if (argc > 2 && kasane_rank() != static_cast<std::uint32_t>(std::atoi(argv[2]))) wait_for_ever();
  const auto deed = kDeeds.find(argv[1]);
  return deed == kDeeds.end() ? 98 : deed->second();
}
