// SPDX-License-Identifier: Apache-2.0
// The functions that the compiler calls for atomics under -fno-inline-atomics (libatomic's names), and for
// fences and atomic_flag by <kasane/atomic_calls.h>.
//
//   the object                                        what executes it
//   private memory, or a job of one rank              the CPU, where it lies
//   a block that this rank owns, while no other       the CPU, in V, by a restartable sequence
//   rank uses the atomic                              (traps/restartable.h)
//   anything else in global memory                    runtime/language/atomics.h
//
// On x86-64 the CPU's atomics are sequentially consistent but for plain stores, so the order matters for
// stores and for other ranks alone.
//
// **Spinning.** A thread that polls an atomic keeps its worker, and the thread that would change it may be
// ready on that worker. So a user-level thread lets others run now and then (kRest).
//
// Thread safety: each call from any thread, also before the runtime begins and after it has ended.
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/full_fence.h"
#include "gas/users_word.h"
#include "runtime/language/atomics.h"
#include "runtime/rank/runtime.h"
#include "traps/restartable.h"
#include "ult/pool.h"

namespace kasane::runtime {
namespace {

using gas::UsersWord;

/// What the fast path reads. Constant while `bytes` is not 0, which says that the runtime is there.
struct FastPath {
  std::atomic<std::size_t> bytes{0};  ///< of the space's own range; 0: every address is private
  std::uintptr_t base = 0;
  std::uintptr_t parts = 0;  ///< [parts, parts + parts_bytes) has all parts of V that lie elsewhere
  std::size_t parts_bytes = 0;
  const mem::AddressMap* space = nullptr;
  Atomics* atomics = nullptr;
  /// Where atomics have their home at this rank: offsets. None where there are no sequences.
  struct Range {
    std::uint64_t begin = 0, bytes = 0;
  };
  std::array<Range, 5> home{};
  const std::uint64_t* users = nullptr;          ///< of this rank
  const std::uint64_t* notices = nullptr;        ///< 0: this rank has none
  const std::uint32_t* blocks = nullptr;         ///< the block table
  std::uint64_t open_begin = 0, open_bytes = 0;  ///< memory that all ranks show: never armed, never moved
  std::ptrdiff_t area = 0;                       ///< traps::rseq_offset()
  std::uint64_t alone = 0;                       ///< a users word of this rank, without the version
};
constinit FastPath g_fast;

// relaxed: a thread that can have an address of the space has synchronised with what made it.
[[gnu::always_inline]] inline bool is_global(const volatile void* p) noexcept {
  const auto at = reinterpret_cast<std::uintptr_t>(p);
  if (at - g_fast.base < g_fast.bytes.load(std::memory_order_relaxed)) return true;
  return at - g_fast.parts < g_fast.parts_bytes && g_fast.space->contains(const_cast<const void*>(p));
}

constexpr bool is_relaxed(int order) noexcept { return order == __ATOMIC_RELAXED; }

// ---- spinning ---------------------------------------------------------------------------------------------

/// So many reads or tries that this rank executes, or 1 / kRemote of them where another rank does, and the
/// thread lets others run.
constexpr std::int32_t kRest = 4096, kRemote = 64;
[[gnu::tls_model("initial-exec")]] thread_local constinit std::int32_t t_tries_left = kRest;

[[gnu::noinline]] void rest() noexcept {
  t_tries_left = kRest;
  if (ult::Pool::in_user_code()) ult::Pool::yield();
}
[[gnu::always_inline]] inline void count_try(std::int32_t by = 1) noexcept {
  if ((t_tries_left -= by) < 0) [[unlikely]]
    rest();
}

// ---- one rank alone ---------------------------------------------------------------------------------------

[[gnu::always_inline]] inline bool at_home(std::uint64_t offset) noexcept {
  for (const FastPath::Range& range : g_fast.home) {
    if (offset - range.begin < range.bytes) return true;
  }
  return false;
}
[[gnu::always_inline]] inline bool used_alone(std::uint64_t offset) noexcept {
  // acquire: of a read, what it returned came before. On x86 a plain load.
  const std::uint64_t word = __atomic_load_n(g_fast.users + Atomics::users_at(offset) / 8, __ATOMIC_ACQUIRE);
  return (word & UsersWord::kWithoutVersion) == g_fast.alone;
}
[[gnu::noinline]] void finish_read(const volatile void* p) noexcept {
  g_fast.atomics->finish_read(const_cast<const void*>(p));
}

/// The word of a block that never leaves.
constexpr std::uint32_t kOpen = dsm::BlockState{.owned = true, .access = mem::Access::write}.word();

/// Calls sequence(word of the block, area) if this rank is known to use the atomic alone, or the order does
/// not matter. True: done. What an acquiring read has to do otherwise is done, too.
template <class Sequence>
[[gnu::always_inline]] inline bool try_alone(const volatile void* p, int order, bool changes,
                                             const Sequence& sequence) noexcept {
  if (g_fast.blocks == nullptr) return false;
  const std::uint64_t offset = g_fast.space->offset(const_cast<const void*>(p));
  const bool ordered = order != __ATOMIC_RELAXED;
  if (ordered && (!at_home(offset) || (changes && !used_alone(offset)))) return false;
  if (changes && g_fast.atomics->release_is_due()) [[unlikely]]
    return false;
  const std::uint32_t* const word =
      offset - g_fast.open_begin < g_fast.open_bytes ? &kOpen : g_fast.blocks + offset / mem::kBlockBytes;
  if (!sequence(word, g_fast.area)) return false;
  // acquire: what the read returned came before.
  if (ordered && order != __ATOMIC_RELEASE &&
      (!used_alone(offset) || __atomic_load_n(g_fast.notices, __ATOMIC_ACQUIRE) != 0)) [[unlikely]]
    finish_read(p);
  return true;
}

// ---- operations -------------------------------------------------------------------------------------------

template <class T>
[[gnu::noinline]] T elsewhere(AtomicCall call, const volatile void* p, T operand, T compare,
                              int order) noexcept {
  const bool may_spin =
      call == AtomicCall::load || call == AtomicCall::compare_exchange || call == AtomicCall::exchange;
  if (may_spin) count_try(kRemote);
  return static_cast<T>(
      g_fast.atomics->perform(call, const_cast<void*>(p), sizeof(T), operand, compare, order));
}

template <class T>
T load(const volatile void* at, int order) noexcept {
  const auto* p = static_cast<const volatile T*>(at);
  count_try();
  if (!is_global(p)) return __atomic_load_n(p, __ATOMIC_SEQ_CST);
  T value{};
  const bool done = try_alone(p, order, false, [&](const std::uint32_t* word, std::ptrdiff_t area) {
    return traps::sequence_load(const_cast<const T*>(p), value, word, area);
  });
  return done ? value : elsewhere<T>(AtomicCall::load, p, 0, 0, order);
}

template <class T>
T exchange(volatile void* at, T desired, int order) noexcept {
  auto* p = static_cast<volatile T*>(at);
  count_try();
  if (!is_global(p)) return __atomic_exchange_n(p, desired, __ATOMIC_SEQ_CST);
  T value = desired;
  const bool done = try_alone(p, order, true, [&](const std::uint32_t* word, std::ptrdiff_t area) {
    return traps::sequence_exchange(const_cast<T*>(p), value, word, area);
  });
  return done ? value : elsewhere<T>(AtomicCall::exchange, p, desired, 0, order);
}

template <class T>
void store(volatile void* at, T value, int order) noexcept {
  auto* p = static_cast<volatile T*>(at);
  if (is_global(p))  // an exchange is sequentially consistent by itself: what it returns is not read
    exchange<T>(p, value, order == __ATOMIC_RELAXED ? __ATOMIC_RELAXED : __ATOMIC_RELEASE);
  else if (order == __ATOMIC_SEQ_CST)
    __atomic_store_n(p, value, __ATOMIC_SEQ_CST);
  else
    __atomic_store_n(p, value, __ATOMIC_RELEASE);
}

constexpr int stronger(int success, int failure) noexcept {
  if (success == __ATOMIC_SEQ_CST || failure == __ATOMIC_SEQ_CST) return __ATOMIC_SEQ_CST;
  if (failure == __ATOMIC_RELAXED || success == __ATOMIC_ACQ_REL) return success;
  return success == __ATOMIC_RELEASE ? __ATOMIC_ACQ_REL : __ATOMIC_ACQUIRE;
}

template <class T>
bool compare_exchange(volatile void* at, void* expected_at, T desired, int success, int failure) noexcept {
  auto* p = static_cast<volatile T*>(at);
  auto* expected = static_cast<T*>(expected_at);
  count_try();
  if (!is_global(p))
    return __atomic_compare_exchange_n(p, expected, desired, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  const int order = stronger(success, failure);
  const T wanted = *expected;  // it may fault: not within a sequence
  T seen = wanted;
  const bool done = try_alone(p, order, true, [&](const std::uint32_t* word, std::ptrdiff_t area) {
    return traps::sequence_compare_exchange(const_cast<T*>(p), seen, desired, word, area);
  });
  if (!done) seen = elsewhere<T>(AtomicCall::compare_exchange, p, desired, wanted, order);
  if (seen == wanted) return true;
  *expected = seen;
  return false;
}

template <class T>
T fetch_add(volatile void* at, T operand, int order) noexcept {
  auto* p = static_cast<volatile T*>(at);
  if (!is_global(p)) return __atomic_fetch_add(p, operand, __ATOMIC_SEQ_CST);
  T value = operand;
  const bool done = try_alone(p, order, true, [&](const std::uint32_t* word, std::ptrdiff_t area) {
    return traps::sequence_add(const_cast<T*>(p), value, word, area);
  });
  return done ? value : elsewhere<T>(AtomicCall::add, p, operand, 0, order);
}

/// The CPU has no instruction that returns the old value.
template <class T, class Result>
T fetch_by_exchange(AtomicCall call, volatile void* at, T operand, int order, const Result& result) noexcept {
  auto* p = static_cast<volatile T*>(at);
  T seen{};
  if (!is_global(p)) {
    // relaxed: the compare-swap orders.
    seen = __atomic_load_n(p, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(p, &seen, result(seen), false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)) {
    }
    return seen;
  }
  const bool done = try_alone(p, order, true, [&](const std::uint32_t* word, std::ptrdiff_t area) {
    if (!traps::sequence_load(const_cast<const T*>(p), seen, word, area)) return false;
    for (T found = seen;; seen = found) {
      if (!traps::sequence_compare_exchange(const_cast<T*>(p), found, result(seen), word, area)) return false;
      if (found == seen) return true;
    }
  });
  return done ? seen : elsewhere<T>(call, p, operand, 0, order);
}
template <class T>
T fetch_and(volatile void* p, T n, int order) noexcept {
  return fetch_by_exchange<T>(AtomicCall::bit_and, p, n, order,
                              [n](T old) { return static_cast<T>(old & n); });
}
template <class T>
T fetch_or(volatile void* p, T n, int order) noexcept {
  return fetch_by_exchange<T>(AtomicCall::bit_or, p, n, order,
                              [n](T old) { return static_cast<T>(old | n); });
}
template <class T>
T fetch_xor(volatile void* p, T n, int order) noexcept {
  return fetch_by_exchange<T>(AtomicCall::bit_xor, p, n, order,
                              [n](T old) { return static_cast<T>(old ^ n); });
}
template <class T>
T fetch_nand(volatile void* p, T n, int order) noexcept {
  return fetch_by_exchange<T>(AtomicCall::bit_nand, p, n, order,
                              [n](T old) { return static_cast<T>(~(old & n)); });
}

// ---- objects of other sizes -------------------------------------------------------------------------------

/// Locks for objects in private memory that the CPU cannot change as a whole. Other ranks have their own.
class PrivateLock {
 public:
  explicit PrivateLock(const volatile void* p) noexcept
      : flag_(locks()[reinterpret_cast<std::uintptr_t>(p) / 16 % kLocks]) {
    // acquire, release: the object as the last holder left it.
    while (flag_.test_and_set(std::memory_order_acquire)) relax();
  }
  PrivateLock(const PrivateLock&) = delete;
  PrivateLock& operator=(const PrivateLock&) = delete;
  ~PrivateLock() { flag_.clear(std::memory_order_release); }

 private:
  static constexpr std::size_t kLocks = 64;
  static std::array<std::atomic_flag, kLocks>& locks() noexcept {
    static constinit std::array<std::atomic_flag, kLocks> all{};
    return all;
  }
  std::atomic_flag& flag_;
};

using Sixteen = unsigned __int128;

/// Compare-swap of 16 bytes in private memory; returns the old value. Every x86-64 CPU but the first ones has
/// the instruction.
Sixteen swap_sixteen(volatile void* at, Sixteen expected, Sixteen desired) noexcept {
  auto low = static_cast<std::uint64_t>(expected), high = static_cast<std::uint64_t>(expected >> 64);
  asm volatile("lock cmpxchg16b %[at]"
               : [at] "+m"(*static_cast<volatile Sixteen*>(at)), "+a"(low), "+d"(high)
               : "b"(static_cast<std::uint64_t>(desired)), "c"(static_cast<std::uint64_t>(desired >> 64))
               : "cc", "memory");
  return Sixteen{high} << 64 | low;
}

Sixteen load_sixteen(const volatile void* at, int order) noexcept {
  if (!is_global(at)) return swap_sixteen(const_cast<volatile void*>(at), 0, 0);
  Sixteen value;
  g_fast.atomics->load(const_cast<const void*>(at), sizeof value, &value, order);
  return value;
}

bool compare_exchange_sixteen(volatile void* at, void* expected_at, Sixteen desired, int success,
                              int failure) noexcept {
  if (is_global(at))
    return g_fast.atomics->compare_exchange(const_cast<void*>(at), sizeof desired, expected_at, &desired,
                                            stronger(success, failure));
  Sixteen expected;
  std::memcpy(&expected, expected_at, sizeof expected);
  const Sixteen seen = swap_sixteen(at, expected, desired);
  if (seen == expected) return true;
  std::memcpy(expected_at, &seen, sizeof seen);
  return false;
}

template <class Result>
Sixteen change_sixteen(volatile void* at, int order, const Result& result) noexcept {
  Sixteen seen = load_sixteen(at, __ATOMIC_RELAXED);
  while (!compare_exchange_sixteen(at, &seen, result(seen), order, __ATOMIC_RELAXED)) count_try();
  return seen;
}

/// Of these sizes, if they lie at a multiple of it, objects are changed as above, also by these functions.
bool is_natural(std::size_t bytes, const volatile void* p) noexcept {
  return (bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8) &&
         reinterpret_cast<std::uintptr_t>(p) % bytes == 0;
}
bool is_sixteen(std::size_t bytes, const volatile void* p) noexcept {
  return bytes == 16 && reinterpret_cast<std::uintptr_t>(p) % 16 == 0;
}

/// Calls with(T{}) for the unsigned integer of so many bytes.
template <class With>
auto with_natural(std::size_t bytes, const With& with) noexcept {
  switch (bytes) {
    case 1: return with(std::uint8_t{});
    case 2: return with(std::uint16_t{});
    case 4: return with(std::uint32_t{});
    default: return with(std::uint64_t{});
  }
}
template <class T>
T value_at(const void* p) noexcept {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

void load_any(std::size_t bytes, const volatile void* at, void* to, int order) noexcept {
  if (is_natural(bytes, at)) {
    return with_natural(bytes, [&](auto zero) {
      const auto value = load<decltype(zero)>(at, order);
      std::memcpy(to, &value, sizeof value);
    });
  }
  if (is_global(at)) return g_fast.atomics->load(const_cast<const void*>(at), bytes, to, order);
  if (is_sixteen(bytes, at)) {
    const Sixteen value = load_sixteen(at, order);
    return void(std::memcpy(to, &value, sizeof value));
  }
  const PrivateLock lock(at);
  std::memcpy(to, const_cast<const void*>(at), bytes);
}

/// old: may be null.
void exchange_any(std::size_t bytes, volatile void* at, const void* from, void* old, int order) noexcept {
  if (is_natural(bytes, at)) {
    return with_natural(bytes, [&](auto zero) {
      using T = decltype(zero);
      const T value = exchange<T>(at, value_at<T>(from), order);
      if (old != nullptr) std::memcpy(old, &value, sizeof value);
    });
  }
  if (is_global(at)) return g_fast.atomics->exchange(const_cast<void*>(at), bytes, from, old, order);
  if (is_sixteen(bytes, at)) {
    const Sixteen value = change_sixteen(at, order, [&](Sixteen) { return value_at<Sixteen>(from); });
    if (old != nullptr) std::memcpy(old, &value, sizeof value);
    return;
  }
  const PrivateLock lock(at);
  if (old != nullptr) std::memcpy(old, const_cast<const void*>(at), bytes);
  std::memcpy(const_cast<void*>(at), from, bytes);
}

bool compare_exchange_any(std::size_t bytes, volatile void* at, void* expected, const void* desired,
                          int success, int failure) noexcept {
  if (is_natural(bytes, at)) {
    return with_natural(bytes, [&](auto zero) {
      using T = decltype(zero);
      T seen = value_at<T>(expected);
      const bool same = compare_exchange<T>(at, &seen, value_at<T>(desired), success, failure);
      if (!same) std::memcpy(expected, &seen, sizeof seen);
      return same;
    });
  }
  if (is_global(at))
    return g_fast.atomics->compare_exchange(const_cast<void*>(at), bytes, expected, desired,
                                            stronger(success, failure));
  if (is_sixteen(bytes, at))
    return compare_exchange_sixteen(at, expected, value_at<Sixteen>(desired), success, failure);
  const PrivateLock lock(at);
  void* const object = const_cast<void*>(at);
  const bool same = std::memcmp(object, expected, bytes) == 0;
  same ? std::memcpy(object, desired, bytes) : std::memcpy(expected, object, bytes);
  return same;
}

}  // namespace

bool is_shared_atomic(const void* p) noexcept { return is_global(p); }
std::uint32_t load_atomic(const void* p) noexcept { return load<std::uint32_t>(p, __ATOMIC_RELAXED); }
std::uint64_t load_atomic_word(const void* p) noexcept { return load<std::uint64_t>(p, __ATOMIC_RELAXED); }
bool swap_atomic_word(void* p, std::uint64_t& seen, std::uint64_t wanted) noexcept {
  return compare_exchange<std::uint64_t>(p, &seen, wanted, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}
int add_atomic(void* p, int n) noexcept {
  return static_cast<int>(fetch_add<std::uint32_t>(p, static_cast<std::uint32_t>(n), __ATOMIC_ACQ_REL));
}
std::uint32_t load_atomic(const void* p, int order) noexcept { return load<std::uint32_t>(p, order); }
std::uint32_t exchange_atomic(void* p, std::uint32_t value, int order) noexcept {
  return exchange<std::uint32_t>(p, value, order);
}
std::uint32_t add_atomic(void* p, std::uint32_t n, int order) noexcept {
  return fetch_add<std::uint32_t>(p, n, order);
}
bool swap_atomic(void* p, std::uint32_t& seen, std::uint32_t wanted, int order) noexcept {
  return compare_exchange<std::uint32_t>(p, &seen, wanted, order, __ATOMIC_RELAXED);
}
void release_atomics() noexcept { g_fast.atomics->release(); }
void acquire_atomics() noexcept { g_fast.atomics->acquire(); }

void connect_atomics(Atomics* atomics, const AtomicsConnection& c) noexcept {
  g_fast.bytes.store(0);
  g_fast.parts_bytes = 0;
  if (atomics == nullptr) return;
  g_fast.atomics = atomics;
  const auto parts = c.space->parts();
  g_fast.space = c.space;
  g_fast.base = reinterpret_cast<std::uintptr_t>(parts[0].at);
  g_fast.parts_bytes = 0;
  if (parts.size() > 1) {  // in the order of their addresses
    g_fast.parts = reinterpret_cast<std::uintptr_t>(parts[1].at);
    g_fast.parts_bytes =
        reinterpret_cast<std::uintptr_t>(parts.back().at) + parts.back().bytes - g_fast.parts;
  }
  for (std::size_t i = 0; i < c.home.size(); ++i) g_fast.home[i] = {c.home[i].begin, c.home[i].bytes};
  g_fast.users = c.users;
  g_fast.notices = c.notices;
  g_fast.area = traps::rseq_offset();
  g_fast.open_begin = c.open.begin;
  g_fast.open_bytes = c.open.bytes;
  g_fast.alone = UsersWord{UsersWord::Kind::alone, c.rank, 0}.pack();
  g_fast.blocks = c.blocks;
  g_fast.bytes.store(parts[0].bytes);
}

}  // namespace kasane::runtime

// The names are those of builtin functions, whose types a compiler may know otherwise.
#define KASANE_SIZED(T, n)                                                                              \
  T kasane_atomic_load_##n(const volatile void* p, int order) noexcept asm("__atomic_load_" #n);        \
  T kasane_atomic_load_##n(const volatile void* p, int order) noexcept { return load<T>(p, order); }    \
  void kasane_atomic_store_##n(volatile void* p, T v, int order) noexcept asm("__atomic_store_" #n);    \
  void kasane_atomic_store_##n(volatile void* p, T v, int order) noexcept { store<T>(p, v, order); }    \
  T kasane_atomic_exchange_##n(volatile void* p, T v, int order) noexcept asm("__atomic_exchange_" #n); \
  T kasane_atomic_exchange_##n(volatile void* p, T v, int order) noexcept {                             \
    return exchange<T>(p, v, order);                                                                    \
  }                                                                                                     \
  bool kasane_atomic_compare_exchange_##n(volatile void* p, void* e, T d, int success,                  \
                                          int failure) noexcept asm("__atomic_compare_exchange_" #n);   \
  bool kasane_atomic_compare_exchange_##n(volatile void* p, void* e, T d, int success,                  \
                                          int failure) noexcept {                                       \
    return compare_exchange<T>(p, e, d, success, failure);                                              \
  }
// result: of the old value and v.
#define KASANE_FETCH(T, n, op, function, operand, result)                                 \
  T kasane_atomic_fetch_##op##_##n(volatile void* p, T v,                                 \
                                   int order) noexcept asm("__atomic_fetch_" #op "_" #n); \
  T kasane_atomic_fetch_##op##_##n(volatile void* p, T v, int order) noexcept {           \
    return function<T>(p, static_cast<T>(operand), order);                                \
  }                                                                                       \
  T kasane_atomic_##op##_fetch_##n(volatile void* p, T v,                                 \
                                   int order) noexcept asm("__atomic_" #op "_fetch_" #n); \
  T kasane_atomic_##op##_fetch_##n(volatile void* p, T v, int order) noexcept {           \
    const T old = function<T>(p, static_cast<T>(operand), order);                         \
    return static_cast<T>(result);                                                        \
  }
#define KASANE_ALL(T, n)                               \
  KASANE_SIZED(T, n)                                   \
  KASANE_FETCH(T, n, add, fetch_add, v, old + v)       \
  KASANE_FETCH(T, n, sub, fetch_add, T{} - v, old - v) \
  KASANE_FETCH(T, n, and, fetch_and, v, old& v)        \
  KASANE_FETCH(T, n, or, fetch_or, v, old | v)         \
  KASANE_FETCH(T, n, xor, fetch_xor, v, old ^ v)       \
  KASANE_FETCH(T, n, nand, fetch_nand, v, ~(old & v))

namespace kasane::runtime {
namespace {
template <>
Sixteen load<Sixteen>(const volatile void* p, int order) noexcept {
  return load_sixteen(p, order);
}
template <>
Sixteen exchange<Sixteen>(volatile void* p, Sixteen v, int order) noexcept {
  Sixteen old;
  exchange_any(sizeof v, p, &v, &old, order);
  return old;
}
template <>
void store<Sixteen>(volatile void* p, Sixteen v, int order) noexcept {
  exchange_any(sizeof v, p, &v, nullptr, order);
}
template <>
bool compare_exchange<Sixteen>(volatile void* p, void* e, Sixteen d, int success, int failure) noexcept {
  return compare_exchange_sixteen(p, e, d, success, failure);
}
template <>
Sixteen fetch_add<Sixteen>(volatile void* p, Sixteen v, int order) noexcept {
  return change_sixteen(p, order, [v](Sixteen old) { return old + v; });
}
template <>
Sixteen fetch_and<Sixteen>(volatile void* p, Sixteen v, int order) noexcept {
  return change_sixteen(p, order, [v](Sixteen old) { return old & v; });
}
template <>
Sixteen fetch_or<Sixteen>(volatile void* p, Sixteen v, int order) noexcept {
  return change_sixteen(p, order, [v](Sixteen old) { return old | v; });
}
template <>
Sixteen fetch_xor<Sixteen>(volatile void* p, Sixteen v, int order) noexcept {
  return change_sixteen(p, order, [v](Sixteen old) { return old ^ v; });
}
template <>
Sixteen fetch_nand<Sixteen>(volatile void* p, Sixteen v, int order) noexcept {
  return change_sixteen(p, order, [v](Sixteen old) { return ~(old & v); });
}
}  // namespace

extern "C" {

KASANE_ALL(std::uint8_t, 1)
KASANE_ALL(std::uint16_t, 2)
KASANE_ALL(std::uint32_t, 4)
KASANE_ALL(std::uint64_t, 8)
KASANE_ALL(Sixteen, 16)

void kasane_atomic_load_any(std::size_t bytes, const volatile void* p, void* to, int order) noexcept
    asm("__atomic_load");
void kasane_atomic_load_any(std::size_t bytes, const volatile void* p, void* to, int order) noexcept {
  load_any(bytes, p, to, order);
}
void kasane_atomic_store_any(std::size_t bytes, volatile void* p, const void* from, int order) noexcept
    asm("__atomic_store");
void kasane_atomic_store_any(std::size_t bytes, volatile void* p, const void* from, int order) noexcept {
  exchange_any(bytes, p, from, nullptr, order);
}
void kasane_atomic_exchange_any(std::size_t bytes, volatile void* p, const void* from, void* old,
                                int order) noexcept asm("__atomic_exchange");
void kasane_atomic_exchange_any(std::size_t bytes, volatile void* p, const void* from, void* old,
                                int order) noexcept {
  exchange_any(bytes, p, from, old, order);
}
bool kasane_atomic_compare_exchange_any(std::size_t bytes, volatile void* p, void* expected,
                                        const void* desired, int success, int failure) noexcept
    asm("__atomic_compare_exchange");
bool kasane_atomic_compare_exchange_any(std::size_t bytes, volatile void* p, void* expected,
                                        const void* desired, int success, int failure) noexcept {
  return compare_exchange_any(bytes, p, expected, desired, success, failure);
}
/// p: null: any object of this size.
bool kasane_atomic_is_lock_free(std::size_t bytes, const volatile void* p) noexcept
    asm("__atomic_is_lock_free");
bool kasane_atomic_is_lock_free(std::size_t bytes, const volatile void* p) noexcept {
  return is_natural(bytes, p);
}

// <kasane/atomic_calls.h>
void kasane_atomic_thread_fence(int order) {
  if (g_fast.bytes.load(std::memory_order_relaxed) != 0)  // relaxed: as is_global()
    g_fast.atomics->fence(order);
  else if (order != __ATOMIC_RELAXED)
    full_fence();
}

}  // extern "C"

}  // namespace kasane::runtime
