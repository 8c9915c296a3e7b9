// SPDX-License-Identifier: Apache-2.0
/// @file
/// More ways to order threads of any ranks, included by kasane.hpp: synchronized_value, shared_mutex,
/// timed_mutex, shared_timed_mutex, counting_semaphore, latch, call_once, atomic, promise and future.
///
/// **Where.** Each object lies where all its users reach it: on a stack, or in global memory. All but atomic
/// are constructed, used and destroyed on threads (error EPERM elsewhere); a constructor throws error EAGAIN
/// if the rank has no record left.
///
/// **Consistency.** As in C++: what synchronises by the standard synchronises here, between ranks, too. Each
/// class says what it costs.
///
/// **Deadlines.** As in C++ calls whose names end in _for and _until give up when a time has passed: never
/// earlier, and then when a worker of the rank has nothing else to run. Any clock will do; kasane::clock is
/// the same on all ranks. A call that gives up gets nothing; what became free meanwhile goes to the threads
/// that wait.
///
/// **Thread safety**: every call from any thread of any rank, but for promise and future, which belong to one
/// thread at a time.
#pragma once

#include <kasane/kasane.h>

#include <kasane/clock.hpp>
#include <kasane/error.hpp>
#include <kasane/global_ptr.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <future>
#include <new>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>

namespace kasane {

namespace detail {
/// Whether a call that returns `failed` where it does not get something has got it.
inline bool tried(int code, int failed = EBUSY) {
  if (code == failed) return false;
  check(code);
  return true;
}
}  // namespace detail

namespace detail {
/// Holds several mutexes, which order nothing. They are locked in the order of their addresses, which are the
/// same on every rank, so that no deadlock arises.
template <std::size_t kCount>
class RelaxedLocks {
 public:
  explicit RelaxedLocks(std::array<kasane_mutex_t*, kCount> mutexes) : mutexes_(mutexes) {
    std::sort(mutexes_.begin(), mutexes_.end(), std::less<>());
    for (; held_ < kCount; ++held_) check(kasane_mutex_lock_relaxed(mutexes_[held_]));
  }
  RelaxedLocks(const RelaxedLocks&) = delete;
  RelaxedLocks& operator=(const RelaxedLocks&) = delete;
  ~RelaxedLocks() {
    while (held_ != 0) kasane_mutex_unlock_relaxed(mutexes_[--held_]);
  }

 private:
  std::array<kasane_mutex_t*, kCount> mutexes_;
  std::size_t held_ = 0;
};
}  // namespace detail

/// A value and the mutex that guards it, where ranks exchange nothing but the value:
/// std::experimental::synchronized_value, as proposed for C++ (P0290), for this space.
///
///     kasane::synchronized_value<Account> a, b;   // Account: trivially copyable
///     kasane::apply([](Account& from, Account& to) { from.euros -= 5, to.euros += 5; }, a, b);
///
/// apply(f, values…) locks the values, calls f with a copy of each, and writes the copies back, also when f
/// throws. Any number of values: they cannot deadlock.
/// f's result is returned, as a value. The same object twice is an error (it is locked twice: the job ends
/// with a message).
///
/// Consistency: changes of a value are in one order, and each sees those before it. **Nothing else is
/// ordered**: no rank writes back or drops anything, which is the cost of a mutex between two ranks.
/// So the value holds all that it guards; a pointer in it does not make what it points to visible.
/// Cost: for each value the mutex, one get and one put at its page's owner, whatever its size; so it is for
/// values of some hundred bytes. It lies in global memory or on a stack.
/// Thread safety: any thread of any rank. Errors: EAGAIN (the constructor): this rank has no record left.
/// EPERM: not on a thread. EIO: a peer was lost.
template <class Type>
class synchronized_value {
  static_assert(std::is_trivially_copyable_v<Type>, "its bytes go from rank to rank");

 public:
  using value_type = Type;
  /// As an atomic's: no atomic operation, and a fence.
  explicit synchronized_value(const Type& value) {
    detail::check(kasane_mutex_init(&mutex_));
    kasane_release_all();
    put(value);
  }
  synchronized_value()
    requires std::default_initializable<Type>
      : synchronized_value(Type()) {}
  synchronized_value(const synchronized_value&) = delete;
  synchronized_value& operator=(const synchronized_value&) = delete;
  ~synchronized_value() {
    kasane_mutex_destroy(&mutex_);
    kasane_acquire_all();
  }

 private:
  template <class Callable, class... Ts>
  friend std::invoke_result_t<Callable, Ts&...> apply(Callable&& f, synchronized_value<Ts>&... values);

  struct Bytes {
    alignas(Type) std::byte of[sizeof(Type)];
  };
  [[nodiscard]] Type get() const {
    Bytes bytes;
    detail::check(kasane_get(&bytes, &bytes_, sizeof bytes));
    return std::bit_cast<Type>(bytes);
  }
  void put(const Type& value) { detail::check(kasane_put(&bytes_, &value, sizeof bytes_)); }

  kasane_mutex_t mutex_{};
  Bytes bytes_;  // never loaded or stored: the coherent view might have another copy
};

/// See synchronized_value.
template <class Callable, class... Ts>
std::invoke_result_t<Callable, Ts&...> apply(Callable&& f, synchronized_value<Ts>&... values) {
  using Result = std::invoke_result_t<Callable, Ts&...>;
  static_assert(!std::is_reference_v<Result>, "what f sees are copies: return a value");
  const detail::RelaxedLocks<sizeof...(Ts)> locks({&values.mutex_...});
  std::tuple<Ts...> now{values.get()...};
  const auto call = [&] { return std::apply(std::forward<Callable>(f), now); };
  const auto leave = [&] { std::apply([&](const Ts&... left) { (values.put(left), ...); }, now); };
  std::optional<std::conditional_t<std::is_void_v<Result>, std::monostate, Result>> result;
  try {
    if constexpr (std::is_void_v<Result>)
      call();
    else
      result.emplace(call());
  } catch (...) {
    leave();
    throw;
  }
  leave();
  if constexpr (!std::is_void_v<Result>) return *std::move(result);
}

/// Many readers or one writer. Works with std::unique_lock and std::shared_lock. Threads are served in the
/// order of their arrival, adjacent readers together: no thread starves. Not recursive, and a reader cannot
/// become a writer. May be held over a fork, a join or a move.
/// Consistency: a reader sees what earlier writers did, and a writer also what earlier readers did. Between
/// threads of one rank that costs nothing. A reader on another rank than the last writer's fetches what
/// changed, and writes back, when it unlocks, what its rank has written.
class shared_mutex {
 public:
  shared_mutex() { detail::check(kasane_rwlock_init(&l_)); }
  shared_mutex(const shared_mutex&) = delete;
  shared_mutex& operator=(const shared_mutex&) = delete;
  ~shared_mutex() { kasane_rwlock_destroy(&l_); }

  void lock() { detail::check(kasane_rwlock_wrlock(&l_)); }
  [[nodiscard]] bool try_lock() { return detail::tried(kasane_rwlock_trywrlock(&l_)); }
  void unlock() { detail::check(kasane_rwlock_wrunlock(&l_)); }
  void lock_shared() { detail::check(kasane_rwlock_rdlock(&l_)); }
  [[nodiscard]] bool try_lock_shared() { return detail::tried(kasane_rwlock_tryrdlock(&l_)); }
  void unlock_shared() { detail::check(kasane_rwlock_rdunlock(&l_)); }

 protected:
  kasane_rwlock_t l_{};
};

/// A shared_mutex with calls that wait until a time.
class shared_timed_mutex : public shared_mutex {
 public:
  template <class Rep, class Period>
  [[nodiscard]] bool try_lock_for(const std::chrono::duration<Rep, Period>& timeout) {
    return lock_by(detail::deadline_after(timeout));
  }
  template <class Clock, class Duration>
  [[nodiscard]] bool try_lock_until(const std::chrono::time_point<Clock, Duration>& time) {
    return detail::wait_until(time, [this](std::uint64_t deadline_ns) { return lock_by(deadline_ns); });
  }
  template <class Rep, class Period>
  [[nodiscard]] bool try_lock_shared_for(const std::chrono::duration<Rep, Period>& timeout) {
    return lock_shared_by(detail::deadline_after(timeout));
  }
  template <class Clock, class Duration>
  [[nodiscard]] bool try_lock_shared_until(const std::chrono::time_point<Clock, Duration>& time) {
    return detail::wait_until(time,
                              [this](std::uint64_t deadline_ns) { return lock_shared_by(deadline_ns); });
  }

 private:
  bool lock_by(std::uint64_t deadline_ns) {
    return detail::tried(kasane_rwlock_timedwrlock(&l_, deadline_ns), ETIMEDOUT);
  }
  bool lock_shared_by(std::uint64_t deadline_ns) {
    return detail::tried(kasane_rwlock_timedrdlock(&l_, deadline_ns), ETIMEDOUT);
  }
};

/// A mutex with calls that wait until a time: a shared_timed_mutex without readers. Consistency: as
/// kasane::mutex.
class timed_mutex : private shared_timed_mutex {
 public:
  using shared_timed_mutex::lock, shared_timed_mutex::try_lock, shared_timed_mutex::try_lock_for,
      shared_timed_mutex::try_lock_until;
  using shared_timed_mutex::unlock;
};

/// A number of permits, taken one at a time, in the order of arrival.
/// Consistency: an acquire sees what was done before the releases so far. A release writes back what its rank
/// has written; an acquire drops what other ranks may have changed (with one rank: nothing).
class counting_semaphore {
 public:
  /// Throws error EINVAL if there are more than max() permits.
  explicit counting_semaphore(std::uint32_t permits) { detail::check(kasane_sem_init(&s_, permits)); }
  counting_semaphore(const counting_semaphore&) = delete;
  counting_semaphore& operator=(const counting_semaphore&) = delete;
  ~counting_semaphore() { kasane_sem_destroy(&s_); }

  [[nodiscard]] static constexpr std::uint32_t max() noexcept { return KASANE_SEM_MAX; }
  void acquire() { detail::check(kasane_sem_wait(&s_)); }
  [[nodiscard]] bool try_acquire() { return detail::tried(kasane_sem_trywait(&s_)); }
  template <class Rep, class Period>
  [[nodiscard]] bool try_acquire_for(const std::chrono::duration<Rep, Period>& timeout) {
    return acquire_by(detail::deadline_after(timeout));
  }
  template <class Clock, class Duration>
  [[nodiscard]] bool try_acquire_until(const std::chrono::time_point<Clock, Duration>& time) {
    return detail::wait_until(time, [this](std::uint64_t deadline_ns) { return acquire_by(deadline_ns); });
  }
  /// Throws error EINVAL if there were more than max() permits then; nothing has happened.
  void release(std::uint32_t permits = 1) { detail::check(kasane_sem_post(&s_, permits)); }

 private:
  bool acquire_by(std::uint64_t deadline_ns) {
    return detail::tried(kasane_sem_timedwait(&s_, deadline_ns), ETIMEDOUT);
  }
  kasane_sem_t s_{};
};

/// Opens once, when it has been counted down to 0, and stays open. A thread that has passed may destroy it.
/// Consistency: a thread that passes sees what was done before all counts. A count writes back what its rank
/// has written; a passage drops what other ranks may have changed (with one rank: nothing).
class latch {
 public:
  explicit latch(std::uint32_t expected) { detail::check(kasane_latch_init(&l_, expected)); }
  latch(const latch&) = delete;
  latch& operator=(const latch&) = delete;
  ~latch() { kasane_latch_destroy(&l_); }

  /// Throws error EINVAL if fewer than n are still to come; nothing has happened.
  void count_down(std::uint32_t n = 1) { detail::check(kasane_latch_count_down(&l_, n)); }
  /// True: it is open, and the effects are those of wait().
  [[nodiscard]] bool try_wait() const { return detail::tried(kasane_latch_trywait(&l_)); }
  void wait() const { detail::check(kasane_latch_wait(&l_)); }
  void arrive_and_wait(std::uint32_t n = 1) {
    count_down(n);
    wait();
  }

 private:
  kasane_latch_t l_{};
};

/// For call_once. Not a static variable: each rank has its own.
class once_flag {
 public:
  once_flag() { detail::check(kasane_once_init(&o_)); }
  once_flag(const once_flag&) = delete;
  once_flag& operator=(const once_flag&) = delete;
  ~once_flag() { kasane_once_destroy(&o_); }

 private:
  template <class Callable, class... Args>
  friend void call_once(once_flag&, Callable&&, Args&&...);
  kasane_once_t o_{};
};

/// Calls f(args...) if no thread of the job has done so with this flag; else waits until that call has ended.
/// If f throws, the exception is rethrown, and another caller calls it.
/// Consistency: afterwards all callers see what f did. The first caller of a rank pays for the edge, later
/// ones read one word.
template <class Callable, class... Args>
void call_once(once_flag& flag, Callable&& f, Args&&... args) {
  auto call = [&] { std::invoke(std::forward<Callable>(f), std::forward<Args>(args)...); };
  detail::check(kasane_call_once(&flag.o_, [](void* c) { (*static_cast<decltype(call)*>(c))(); }, &call));
}

/// A trivially copyable value of up to 8 bytes (an integer, bool, a floating-point number, a pointer, an
/// enumeration, a small struct) that all ranks change atomically; std::atomic for this space. It takes 4 or 8
/// bytes, the units of an owner's atomics: a bool or a char lies in 4. Each operation is one
/// read-modify-write at the owner's copy (a network round trip where that is not
/// mapped here), also between threads of one rank. Sums of floating-point numbers, and of integers of 1 and 2
/// bytes, are computed here, and again where another change came between. Comparisons are of bytes, as in
/// C++: -0.0 is not 0.0, but padding does not count (with clang it does).
/// Consistency: the orders of C++, with its default, sequentially consistent, also of the operators. release
/// and stronger first write back what this rank has written; acquire and stronger afterwards drop what other
/// ranks may have changed. So use std::memory_order_relaxed where only the number matters (a counter).
/// atomic_ref has relaxed as its default.
/// Thread safety: any thread of any rank. Errors: EINVAL: it does not lie in global memory. EIO: a peer was
/// lost.
template <detail::atomic_value Type>
class atomic {
  static constexpr std::memory_order kDefault = std::memory_order_seq_cst;

 public:
  using value_type = Type;
  using difference_type = detail::atomic_difference<Type>;
  /// Like std::atomic's, this is no atomic operation: other threads learn of the object by other means. The
  /// memory was, and will be, used by loads and stores, so the constructor writes back what this rank has
  /// written there (zeros, of a new Type()), and the destructor drops what the rank has cached: each is a
  /// fence.
  atomic(Type value) { store(value, std::memory_order_release); }
  atomic()
    requires std::default_initializable<Type>
      : atomic(Type()) {}
  atomic(const atomic&) = delete;
  atomic& operator=(const atomic&) = delete;
  ~atomic() { kasane_acquire_all(); }

  [[nodiscard]] Type load(std::memory_order order = kDefault) const { return word().load(order); }
  operator Type() const { return load(); }
  void store(Type desired, std::memory_order order = kDefault) { word().exchange(desired, order); }
  Type operator=(Type desired) { return store(desired), desired; }
  Type exchange(Type desired, std::memory_order order = kDefault) { return word().exchange(desired, order); }
  /// False: expected becomes the value, read in the order of failure (by default success without its
  /// release). Neither form fails spuriously.
  bool compare_exchange_strong(Type& expected, Type desired, std::memory_order success,
                               std::memory_order failure) {
    return word().compare_exchange(expected, desired, success, failure);
  }
  bool compare_exchange_strong(Type& expected, Type desired, std::memory_order order = kDefault) {
    return word().compare_exchange(expected, desired, order, detail::of_failure(order));
  }
  bool compare_exchange_weak(Type& expected, Type desired, std::memory_order success,
                             std::memory_order failure) {
    return word().compare_exchange(expected, desired, success, failure);
  }
  bool compare_exchange_weak(Type& expected, Type desired, std::memory_order order = kDefault) {
    return word().compare_exchange(expected, desired, order, detail::of_failure(order));
  }
  /// Of pointers: n elements.
  Type fetch_add(difference_type n, std::memory_order order = kDefault)
    requires detail::atomic_sums<Type>
  {
    return word().fetch_add(n, order);
  }
  Type fetch_sub(difference_type n, std::memory_order order = kDefault)
    requires detail::atomic_sums<Type>
  {
    return word().fetch_sub(n, order);
  }
  Type fetch_and(Type n, std::memory_order order = kDefault)
    requires detail::atomic_bits<Type>
  {
    return word().fetch_and(n, order);
  }
  Type fetch_or(Type n, std::memory_order order = kDefault)
    requires detail::atomic_bits<Type>
  {
    return word().fetch_or(n, order);
  }
  Type fetch_xor(Type n, std::memory_order order = kDefault)
    requires detail::atomic_bits<Type>
  {
    return word().fetch_xor(n, order);
  }
  Type operator+=(difference_type n)
    requires detail::atomic_sums<Type>
  {
    return static_cast<Type>(fetch_add(n) + n);
  }
  Type operator-=(difference_type n)
    requires detail::atomic_sums<Type>
  {
    return static_cast<Type>(fetch_sub(n) - n);
  }
  Type operator&=(Type n)
    requires detail::atomic_bits<Type>
  {
    return static_cast<Type>(fetch_and(n) & n);
  }
  Type operator|=(Type n)
    requires detail::atomic_bits<Type>
  {
    return static_cast<Type>(fetch_or(n) | n);
  }
  Type operator^=(Type n)
    requires detail::atomic_bits<Type>
  {
    return static_cast<Type>(fetch_xor(n) ^ n);
  }
  Type operator++()
    requires detail::atomic_steps<Type>
  {
    return static_cast<Type>(fetch_add(1) + 1);
  }
  Type operator--()
    requires detail::atomic_steps<Type>
  {
    return static_cast<Type>(fetch_sub(1) - 1);
  }
  Type operator++(int)
    requires detail::atomic_steps<Type>
  {
    return fetch_add(1);
  }
  Type operator--(int)
    requires detail::atomic_steps<Type>
  {
    return fetch_sub(1);
  }

  /// Returns when the value is not `old`: the thread is suspended, not its worker, until a thread that
  /// changed it notifies. On a thread (error EPERM elsewhere); it may be on another rank afterwards.
  void wait(Type old, std::memory_order order = kDefault) const { word().wait(old, order); }
  /// After a change: the thread that has waited longest for this value (all that wait) compares again. One
  /// load where no thread waits. On a thread.
  void notify_one() { word().notify_one(); }
  void notify_all() { word().notify_all(); }

 private:
  [[nodiscard]] detail::AtomicWord<Type> word() const noexcept { return detail::AtomicWord<Type>(&word_); }
  // never loaded or stored: the coherent view might have another copy
  alignas(sizeof(detail::word_of<Type>)) mutable detail::word_of<Type> word_;
};

// ---- promise and future -----------------------------------------------------------------------------------

namespace detail {

/// What a promise and its future share, in global memory. The one permit of `ready`, which the future takes,
/// orders value and error. The later of the two to be destroyed deletes it.
template <class Type>
class Promised {
 public:
  using Value = std::conditional_t<std::is_void_v<Type>, std::monostate, Type>;

  static Promised* make() {
    void* memory = kasane_allocate_placed(sizeof(Promised), alignof(Promised) < 16 ? 16 : alignof(Promised),
                                          KASANE_PLACEMENT_LOCAL, 0, KASANE_PAGE_DEFAULT);
    if (memory == nullptr) throw_last_error();
    struct Free {
      void* memory;
      ~Free() {
        if (memory != nullptr) kasane_free(memory);
      }
    } guard{memory};
    auto* made = ::new (memory) Promised;
    guard.memory = nullptr;
    return made;
  }
  template <class... As>
  void set(As&&... as) {
    value.emplace(std::forward<As>(as)...);
    ready.release();
  }
  void fail(std::exception_ptr e) {
    error = std::move(e);
    ready.release();
  }
  /// Called once by the promise and once by the future.
  void leave() noexcept {
    if (owners_.fetch_sub(1, std::memory_order_relaxed) != 1) return;
    kasane_acquire_all();  // the promise's writes, for a value that no get() took
    this->~Promised();
    kasane_free(this);
  }

  counting_semaphore ready{0};
  std::optional<Value> value;
  std::exception_ptr error;

 private:
  atomic<std::uint32_t> owners_{2};
};

}  // namespace detail

/// A value, or an exception, that another thread promised. Moved, not copied; one get().
template <class Type>
class future {
  static_assert(!std::is_reference_v<Type>, "promise a value or a pointer");

 public:
  future() noexcept = default;
  future(future&& other) noexcept : state_(std::exchange(other.state_, nullptr)), ready_(other.ready_) {}
  future& operator=(future&& other) noexcept {
    std::swap(state_, other.state_);
    std::swap(ready_, other.ready_);
    return *this;
  }
  ~future() {
    if (state_ != nullptr) state_->leave();
  }

  /// True until get() was called.
  [[nodiscard]] bool valid() const noexcept { return state_ != nullptr; }
  /// Is the value there?
  [[nodiscard]] bool ready() const {
    return have([](counting_semaphore& s) { return s.try_acquire(); });
  }
  /// Waits for the value; the thread is suspended, not its worker. Consistency: all that was done before it
  /// was set is visible.
  void wait() const {
    have([](counting_semaphore& s) { return s.acquire(), true; });
  }
  /// Waits at most so long: std::future_status::ready or timeout. If ready, as wait().
  template <class Rep, class Period>
  std::future_status wait_for(const std::chrono::duration<Rep, Period>& timeout) const {
    return status(have([&](counting_semaphore& s) { return s.try_acquire_for(timeout); }));
  }
  template <class Clock, class Duration>
  std::future_status wait_until(const std::chrono::time_point<Clock, Duration>& time) const {
    return status(have([&](counting_semaphore& s) { return s.try_acquire_until(time); }));
  }
  /// Waits and takes the value; throws the exception instead if there is one.
  Type get() {
    wait();
    future done(std::move(*this));
    if (done.state_->error) std::rethrow_exception(std::move(done.state_->error));
    if constexpr (!std::is_void_v<Type>) return std::move(*done.state_->value);
  }

 private:
  template <class Other>
  friend class promise;
  explicit future(detail::Promised<Type>* state) noexcept : state_(state) {}
  [[nodiscard]] detail::Promised<Type>& state() const {
    if (state_ == nullptr)
      throw error(EINVAL,
                  "kasane::future: there is nothing to wait for: the value was taken already, or the future "
                  "has no promise");
    return *state_;
  }
  /// True: the value is there; take(permit) is called where it was not taken before.
  template <class Take>
  bool have(const Take& take) const {
    detail::Promised<Type>& s = state();
    return ready_ = ready_ || take(s.ready);
  }
  static std::future_status status(bool ready) noexcept {
    return ready ? std::future_status::ready : std::future_status::timeout;
  }
  detail::Promised<Type>* state_ = nullptr;
  mutable bool ready_ = false;  ///< the permit was taken
};

/// The other end: sets the value, once. A promise that is destroyed without a value sets error ECANCELED.
/// Consistency: as counting_semaphore::release.
template <class Type>
class promise {
 public:
  promise() : state_(detail::Promised<Type>::make()) {}
  promise(promise&& other) noexcept
      : state_(std::exchange(other.state_, nullptr)), given_(other.given_), set_(other.set_) {}
  promise& operator=(promise&& other) noexcept {
    std::swap(state_, other.state_);
    std::swap(given_, other.given_);
    std::swap(set_, other.set_);
    return *this;
  }
  ~promise() {
    if (state_ == nullptr) return;
    if (!set_)
      state_->fail(std::make_exception_ptr(
          error(ECANCELED, "kasane::promise: it was destroyed before it had a value")));
    if (!given_) state_->leave();
    state_->leave();
  }

  /// A second call throws error EINVAL.
  [[nodiscard]] future<Type> get_future() {
    need(!given_, "kasane::promise: its future was taken already");
    given_ = true;
    return future<Type>(state_);
  }
  /// Sets the value from what Type is constructed from; nothing for void. A second call throws error EINVAL.
  template <class... As>
  void set_value(As&&... as) {
    need(!set_, "kasane::promise: it has a value already");
    state_->set(std::forward<As>(as)...);
    set_ = true;
  }
  void set_exception(std::exception_ptr e) {
    need(!set_, "kasane::promise: it has a value already");
    state_->fail(std::move(e));
    set_ = true;
  }

 private:
  void need(bool good, const char* text) const {
    if (state_ == nullptr || !good)
      throw error(EINVAL, state_ == nullptr ? "kasane::promise: it was moved from" : text);
  }
  detail::Promised<Type>* state_ = nullptr;
  bool given_ = false, set_ = false;
};

}  // namespace kasane
