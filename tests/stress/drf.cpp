// SPDX-License-Identifier: Apache-2.0
// Runs random data-race-free programs (program.h) with real threads, pointers and moving stacks, and compares
// every read with the oracle.
//
//   [STRESS_PAGE=4096] kasane run -n 4 --workers 2 -- stress_drf --seed 1 --count 100
//   kasane run -n 2 --dram 16M -- stress_drf --data 48M --spills 32M        data larger than DRAM
//   kasane run -n 4 --threads spread -- stress_drf_spread --seed 1        threads, locks, barriers of std
//
// --data: the objects of each program have so many bytes together; the allocating thread fills all of them,
// and they are examined when they are freed, or at the end. --spills: fails unless so much was written to
// spill files.
//
// A read that differs prints seed, thread, operation and the command that replays it; exit status 1. All that
// threads share lies in global memory, the program's tables too, so that a thread can run anywhere. The table
// of object addresses is itself ordinary shared data, written by the thread that allocates or begins, read by
// threads ordered after it.
//
// Every third object lies in a variable of this program instead of the heap, and so do all counters of every
// other seed. Where each rank has its own variables (sanitizers) none does.
#include <kasane/kasane.hpp>

#include <atomic>
#include <barrier>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "stress/page_bytes.h"
#include "stress/program.h"
#include "support/counts.h"

namespace {

using kasane::stress::kFrameBytes;
using kasane::stress::kHeap;
using kasane::stress::kLocks;
using kasane::stress::kMaxChildren;
using kasane::stress::Object;
using kasane::stress::Op;
using kasane::stress::OpKind;
using kasane::stress::Program;
using kasane::stress::Thread;

#ifdef STRESS_SPREAD
using UsedThread = std::thread;
using UsedMutex = std::mutex;
using UsedBarrier = std::barrier<>;
constexpr const char* kProgram = "stress_drf_spread";
constexpr const char* kOptions = " --threads spread";
void yield() { std::this_thread::yield(); }
#else
using UsedThread = kasane::thread;
using UsedMutex = kasane::mutex;
using UsedBarrier = kasane::barrier;
constexpr const char* kProgram = "stress_drf";
constexpr const char* kOptions = "";
void yield() { kasane::this_thread::yield(); }
#endif

/// Two counters that are equal whenever the lock is free; they lie on different pages. The lock is a mutex,
/// or std::atomic as people spin on it. Beside them a sum that needs no lock, and a pointer that all threads
/// copy.
struct Counter {
  explicit Counter(bool s) : spins(s) {}
  void lock() {
    if (!spins) return mutex.lock();
    for (bool free = false; !busy.compare_exchange_weak(free, true, std::memory_order_acquire);) free = false;
  }
  void unlock() { spins ? busy.store(false, std::memory_order_release) : mutex.unlock(); }

  UsedMutex mutex;
  const bool spins;
  std::atomic<bool> busy{false};
  std::atomic<std::uint64_t> sum{0};
  std::shared_ptr<const std::uint64_t> shared = std::make_shared<const std::uint64_t>(kShared);
  static constexpr std::uint64_t kShared = 0x5EED5EED5EED5EED;
  std::uint64_t first = 0;
  std::uint64_t* second = nullptr;
};

/// File-scope variables: the memory of objects, and of counters.
alignas(64) std::byte g_objects[std::size_t{1} << 20];
alignas(64) std::byte g_counters[kLocks * sizeof(Counter)];
constexpr std::uint32_t kOnHeap = 0xFFFFFFFFu;

bool variables_are_shared() {
  std::byte copy;
  return kasane::ranks() == 1 || kasane_get(&copy, g_objects, 1) == 0;
}

/// A program in global memory.
struct Shared {
  std::uint64_t seed;
  std::uint64_t data;  ///< bytes it was stretched to; 0: it was not
  const Op* ops;
  const Thread* threads;
  const Object* objects;
  std::byte** where;            ///< of each object
  const std::uint32_t* places;  ///< of each object in g_objects, or kOnHeap
  Counter* counters;
  UsedBarrier* barriers;
  UsedMutex* failing;
  std::uint64_t* failures;
};

[[gnu::noinline]] void count_failure(const Shared& s) {
  const std::lock_guard hold(*s.failing);
  ++*s.failures;
}

[[gnu::noinline]] void say_replay(const Shared& s) {
  std::fprintf(stderr,
               "  replay: STRESS_PAGE=%zu kasane run -n %u --workers %u%s -- %s --seed %llu --count 1 "
               "--data %lluM\n",
               kasane::stress::page_bytes(), kasane::ranks(), kasane::workers(), kOptions, kProgram,
               static_cast<unsigned long long>(s.seed), static_cast<unsigned long long>(s.data >> 20));
}

[[gnu::noinline]] void fail(const Shared& s, std::uint32_t thread, std::uint32_t index, std::uint64_t got) {
  const Op& op = s.ops[s.threads[thread].first_op + index];
  std::fprintf(stderr,
               "%s: seed %llu thread %u operation %u (kind %d, object %u, offset %llu, width %d) on rank %u: "
               "got %llx, should be %llx\n",
               kProgram, static_cast<unsigned long long>(s.seed), thread, index, static_cast<int>(op.kind),
               op.target, static_cast<unsigned long long>(op.offset), static_cast<int>(op.width),
               kasane::rank(), static_cast<unsigned long long>(got),
               static_cast<unsigned long long>(op.value));
  say_replay(s);
  count_failure(s);
}

/// Words between the pieces of a stretched object, one a block or more: those of object `number` at `at`.
/// body(word, the value it has).
template <class F>
void each_fill(const Shared& s, std::uint32_t number, F&& body) {
  const Object& o = s.objects[number];
  for (std::uint64_t piece = 0; o.distance != 0 && piece < o.bytes; piece += o.distance)
    for (std::uint64_t i = kasane::stress::kTogether; i < o.distance; i += 4096)
      body(reinterpret_cast<volatile std::uint64_t*>(s.where[number] + piece + i),
           (s.seed << 40 | number) * 0x9E3779B97F4A7C15u + piece + i);
}

[[gnu::noinline]] void fill(const Shared& s, std::uint32_t number) {
  each_fill(s, number, [](volatile std::uint64_t* word, std::uint64_t value) { *word = value; });
}

/// By a thread that holds all cells of the object, so that no other uses it any more.
[[gnu::noinline]] void look_at_fill(const Shared& s, std::uint32_t number) {
  std::uint64_t wrong = 0;
  each_fill(s, number,
            [&](const volatile std::uint64_t* word, std::uint64_t value) { wrong += *word != value; });
  if (wrong == 0) return;
  std::fprintf(stderr,
               "stress_drf: seed %llu: %llu words of object %u differ from what was stored when it was "
               "allocated (seen on rank %u)\n",
               static_cast<unsigned long long>(s.seed), static_cast<unsigned long long>(wrong), number,
               kasane::rank());
  say_replay(s);
  count_failure(s);
}

[[gnu::noinline]] void store(std::byte* at, const Op& op) {
  switch (op.width) {
    case 1: *reinterpret_cast<volatile std::uint8_t*>(at) = static_cast<std::uint8_t>(op.value); break;
    case 2: *reinterpret_cast<volatile std::uint16_t*>(at) = static_cast<std::uint16_t>(op.value); break;
    case 4: *reinterpret_cast<volatile std::uint32_t*>(at) = static_cast<std::uint32_t>(op.value); break;
    default: *reinterpret_cast<volatile std::uint64_t*>(at) = op.value; break;
  }
}

[[gnu::noinline]] std::uint64_t load(const std::byte* at, const Op& op) {
  switch (op.width) {
    case 1: return *reinterpret_cast<const volatile std::uint8_t*>(at);
    case 2: return *reinterpret_cast<const volatile std::uint16_t*>(at);
    case 4: return *reinterpret_cast<const volatile std::uint32_t*>(at);
    default: return *reinterpret_cast<const volatile std::uint64_t*>(at);
  }
}

[[gnu::noinline]] void work(std::uint64_t iterations) {
  for (std::uint64_t i = 0; i < iterations * 50; ++i) __asm__ volatile("" ::: "memory");
}

std::byte* memory_of(const Shared& s, std::uint32_t number) {
  if (s.places[number] != kOnHeap) return g_objects + s.places[number];
  return static_cast<std::byte*>(kasane::allocate(
      s.objects[number].bytes, 16, kasane::placement::local.in_pages(kasane::stress::page_bytes())));
}

void give_back(const Shared& s, std::uint32_t number) {
  look_at_fill(s, number);
  if (s.places[number] == kOnHeap) kasane::deallocate(s.where[number]);
  s.where[number] = nullptr;
}

void run_thread(const Shared* shared, std::uint32_t thread);

[[gnu::noinline]] void run_op(const Shared& s, std::uint32_t thread, std::uint32_t index,
                              UsedThread* children) {
  const Op op = s.ops[s.threads[thread].first_op + index];
  switch (op.kind) {
    case OpKind::write: store(s.where[op.target] + op.offset, op); break;
    case OpKind::read:
      if (const std::uint64_t got = load(s.where[op.target] + op.offset, op); got != op.value)
        fail(s, thread, index, got);
      break;
    case OpKind::fork: {
      const Shared* shared = &s;
      const std::uint32_t child = op.target;
      children[op.slot] = UsedThread([shared, child] { run_thread(shared, child); });
      break;
    }
    case OpKind::join: children[op.slot].join(); break;
    case OpKind::add:
    case OpKind::check: {
      Counter& c = s.counters[op.target];
      const std::shared_ptr<const std::uint64_t> shared = c.shared;
      if (*shared != Counter::kShared) fail(s, thread, index, *shared);
      if (op.kind == OpKind::add) c.sum.fetch_add(op.value, std::memory_order_relaxed);
      c.lock();
      const std::uint64_t first = c.first, second = *c.second;
      if (op.kind == OpKind::add) {
        c.first = first + op.value;
        *c.second = second + op.value;
      }
      c.unlock();
      if (op.kind == OpKind::check && c.sum.load() != op.value) fail(s, thread, index, c.sum.load());
      if (first != second) fail(s, thread, index, first - second);
      if (op.kind == OpKind::check && first != op.value) fail(s, thread, index, first);
      break;
    }
    case OpKind::barrier: s.barriers[op.target].arrive_and_wait(); break;
    case OpKind::allocate:
      s.where[op.target] = memory_of(s, op.target);
      fill(s, op.target);
      break;
    case OpKind::release: give_back(s, op.target); break;
    case OpKind::work: work(op.value); break;
    case OpKind::yield: yield(); break;
  }
}

/// Some children keep their worker busy for a while, so that other workers take their parents over:
/// iterations for work().
std::uint64_t linger(std::uint64_t seed, std::uint32_t thread) {
  const std::uint64_t mixed = (seed * 0x9E3779B97F4A7C15u ^ thread) * 0xBF58476D1CE4E5B9u;
  return (mixed >> 40) % 4 == 0 ? 10'000 : 0;
}

/// The frame lies on this thread's stack: children write and read it through s.where while this thread is
/// anywhere.
void run_thread(const Shared* shared, std::uint32_t thread) {
  alignas(64) std::byte frame[kFrameBytes];
  UsedThread children[kMaxChildren];
  shared->where[shared->threads[thread].frame] = frame;
  work(linger(shared->seed, thread));
  for (std::uint32_t i = 0; i < shared->threads[thread].ops; ++i) run_op(*shared, thread, i, children);
}

template <class T>
T* copy_of(const std::vector<T>& v) {
  auto* p = static_cast<T*>(kasane::allocate(
      v.size() * sizeof(T) + 1, 64, kasane::placement::local.in_pages(kasane::stress::page_bytes())));
  if (!v.empty()) std::memcpy(p, v.data(), v.size() * sizeof(T));
  return p;
}

/// Of each object its place in g_objects, or kOnHeap.
std::vector<std::uint32_t> places(const Program& p) {
  std::vector<std::uint32_t> all(p.objects.size(), kOnHeap);
  std::uint32_t end = 0;
  const bool shared = variables_are_shared();
  for (std::uint32_t i = 0; shared && i < all.size(); ++i) {
    const std::uint32_t bytes = (p.objects[i].bytes + 15) / 16 * 16;
    if ((p.seed + i) % 3 != 0 || p.objects[i].thread != kHeap || p.objects[i].distance != 0 ||
        bytes > sizeof g_objects - end)
      continue;
    all[i] = end;
    end += bytes;
  }
  return all;
}

/// Runs the program of a seed once; the number of reads that differed.
std::uint64_t run_program(const Program& p, std::uint64_t data) {
  auto* s = static_cast<Shared*>(kasane::allocate(sizeof(Shared)));
  *s = {p.seed,
        data,
        copy_of(p.ops),
        copy_of(p.threads),
        copy_of(p.objects),
        nullptr,
        copy_of(places(p)),
        nullptr,
        nullptr,
        nullptr,
        nullptr};
  s->where = static_cast<std::byte**>(
      kasane::allocate(p.objects.size() * sizeof(std::byte*), 64,
                       kasane::placement::local.in_pages(kasane::stress::page_bytes())));
  std::memset(static_cast<void*>(s->where), 0, p.objects.size() * sizeof(std::byte*));
  const bool in_variable = p.seed % 2 == 1 && variables_are_shared();
  s->counters =
      static_cast<Counter*>(in_variable ? g_counters : kasane::allocate(kLocks * sizeof(Counter), 64));
  auto* seconds = static_cast<std::uint64_t*>(kasane::allocate(
      kLocks * sizeof(std::uint64_t), 64, kasane::placement::cyclic.in_pages(kasane::stress::page_bytes())));
  for (std::uint32_t i = 0; i < kLocks; ++i) {
    new (&s->counters[i]) Counter((p.seed + i) % 2 == 0);
    s->counters[i].second = &seconds[i];
    seconds[i] = 0;
  }
  s->barriers = static_cast<UsedBarrier*>(kasane::allocate(p.barriers.size() * sizeof(UsedBarrier) + 1, 64));
  for (std::size_t i = 0; i < p.barriers.size(); ++i)
    new (&s->barriers[i]) UsedBarrier(p.barriers[i].members);
  s->failing = new (kasane::allocate(sizeof(UsedMutex))) UsedMutex;
  s->failures = static_cast<std::uint64_t*>(kasane::allocate(sizeof(std::uint64_t)));
  *s->failures = 0;

  const Shared* shared = s;
  UsedThread root([shared] { run_thread(shared, 0); });
  root.join();
  for (std::uint32_t i = 0; i < p.objects.size(); ++i) {
    // this thread may be at another rank now, which has no p
    if (s->objects[i].thread == kHeap && s->where[i] != nullptr) give_back(*s, i);
  }
  const std::uint64_t failures = *s->failures;

  std::uint64_t counted = 0;  // pointers that were not given back, or were twice
  for (std::uint32_t i = 0; i < kLocks; ++i) {
    counted += s->counters[i].shared.use_count() != 1;
    std::destroy_at(&s->counters[i]);
  }
  if (counted != 0)
    std::fprintf(stderr, "stress_drf: %llu shared_ptr have a wrong count\n",
                 static_cast<unsigned long long>(counted));
  if (!in_variable) kasane::deallocate(s->counters);
  for (std::size_t i = 0; i < p.barriers.size(); ++i) std::destroy_at(&s->barriers[i]);
  std::destroy_at(s->failing);
  for (const void* block : {static_cast<const void*>(s->ops), static_cast<const void*>(s->threads),
                            static_cast<const void*>(s->objects), static_cast<const void*>(s->where),
                            static_cast<const void*>(s->places), static_cast<const void*>(seconds),
                            static_cast<const void*>(s->barriers), static_cast<const void*>(s->failing),
                            static_cast<const void*>(s->failures), static_cast<const void*>(s)})
    kasane::deallocate(const_cast<void*>(block));
  return failures + counted;
}

std::uint64_t number(int argc, char** argv, const char* name, std::uint64_t otherwise) {
  for (int i = 1; i + 1 < argc; ++i)
    if (std::strcmp(argv[i], name) == 0) return std::strtoull(argv[i + 1], nullptr, 10);
  return otherwise;
}

/// "48M": in MiB.
std::uint64_t mebibytes(int argc, char** argv, const char* name) { return number(argc, argv, name, 0) << 20; }

}  // namespace

int main(int argc, char** argv) {
  const std::uint64_t first = number(argc, argv, "--seed", 1), count = number(argc, argv, "--count", 20);
  kasane::stress::Limits limits;
  limits.threads = static_cast<std::uint32_t>(number(argc, argv, "--threads", limits.threads));
  limits.actions = static_cast<std::uint32_t>(number(argc, argv, "--actions", limits.actions));
  const std::uint64_t data = mebibytes(argc, argv, "--data"), spills = mebibytes(argc, argv, "--spills");
  std::uint64_t failures = 0;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    Program program = kasane::stress::generate(seed, limits);
    if (data != 0) kasane::stress::stretch(program, data);
    if (argc > 1 && std::strcmp(argv[argc - 1], "--show") == 0)
      std::fputs(kasane::stress::to_string(program).c_str(), stdout);
#ifdef STRESS_SPREAD
    failures += run_program(program, data);
#else
    failures += kasane::run([&] { return run_program(program, data); });
#endif
  }
  const kasane::test::Counts total;
  std::printf(
      "%s: seeds %llu … %llu, %u ranks, %u workers: %llu wrong reads; %llu threads, %llu steals inside "
      "ranks, "
      "%llu across, %llu diffs, %llu pages moved, %llu KiB spilled\n",
      kProgram, static_cast<unsigned long long>(first), static_cast<unsigned long long>(first + count - 1),
      kasane::ranks(), kasane::workers(), static_cast<unsigned long long>(failures),
      static_cast<unsigned long long>(total["threads"]),
      static_cast<unsigned long long>(total["steals_local"]),
      static_cast<unsigned long long>(total["steals_remote"]),
      static_cast<unsigned long long>(total["diffs"]), static_cast<unsigned long long>(total["pages_moved"]),
      static_cast<unsigned long long>(total["bytes_spilled"] >> 10));
  if (total["bytes_spilled"] < spills) {
    std::printf("stress_drf: only %llu KiB were written to spill files: nothing was tested\n",
                static_cast<unsigned long long>(total["bytes_spilled"] >> 10));
    return 1;
  }
  return failures == 0 ? 0 : 1;
}
