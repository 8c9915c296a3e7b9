// SPDX-License-Identifier: Apache-2.0
#include "runtime/process/bound_threads.h"

#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>

#include "base/assert.h"
#include "base/call_selector.h"
#include "gas/regions.h"
#include "runtime/language/atomics.h"
#include "runtime/language/threads_check.h"
#include "runtime/process/pthread_keys.h"
#include "runtime/rank/hidden.h"
#include "runtime/rank/runtime.h"
#include "runtime/rank/warn.h"
#include "topo/threads.h"
#include "traps/alt_stack.h"
#include "traps/caught_calls.h"
#include "ult/pool.h"
#include "ult/runtime_section.h"

namespace kasane::runtime {
namespace {

using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
constinit Hidden<Create> g_create("pthread_create");
constinit Hidden<int (*)(pthread_t)> g_detach("pthread_detach");
constinit Hidden<int (*)(pthread_t, int)> g_kill("pthread_kill");
constinit Hidden<int (*)(pthread_t, int, const sigval)> g_queue("pthread_sigqueue");
constinit Hidden<int (*)(pthread_t, const char*)> g_set_name("pthread_setname_np");
constinit Hidden<int (*)(pthread_t, char*, std::size_t)> g_get_name("pthread_getname_np");
constinit Hidden<void (*)(void*)> g_exit("pthread_exit");

/// Breaks off what a thread waits for in the kernel. libc's own number for it, which no mask of the program's
/// blocks.
constexpr int kCancelSignal = 32;
constexpr std::uint64_t kIsDeputy = 2;  ///< of a Cancellation's object

constexpr std::size_t kPrivateStack = 256 * 1024;  ///< for what libc and destructors do, and thread-locals
constexpr std::size_t kStackUnit = 64 * 1024;
constexpr std::uint64_t kErrors = 4096;  ///< a smaller answer is an error, a larger one a pthread_t

[[gnu::tls_model("initial-exec")]] constinit thread_local BoundThread* t_here = nullptr;

BoundAction step(BoundThread& thread, BoundEvent event, int order) noexcept {
  std::uint32_t seen = load_atomic(&thread.word, __ATOMIC_RELAXED);
  for (;;) {
    const BoundStep to = next(BoundState{seen}, event);
    const auto word = static_cast<std::uint32_t>(to.next);
    if ((word == seen && to.action != BoundAction::free) || swap_atomic(&thread.word, seen, word, order))
      return to.action;
  }
}

void interrupt(const Cancellation& thread) noexcept {
  traps::issue_call(SYS_tgkill, {::getpid(), thread.os_thread(), kCancelSignal, 0, 0, 0});
}

/// pthread_attr_setstack has been called.
bool names_stack(const pthread_attr_t& attributes) noexcept {
  void* low = nullptr;
  std::size_t bytes = 0;
  ::pthread_attr_getstack(&attributes, &low, &bytes);
  return reinterpret_cast<std::uintptr_t>(low) + bytes != 0;  // its end is null before
}

std::uint64_t mask_of_caller() noexcept {
  sigset_t set;
  std::uint64_t mask = 0;
  ::pthread_sigmask(SIG_BLOCK, nullptr, &set);
  std::memcpy(&mask, &set, sizeof mask);
  return mask;
}

}  // namespace

struct BoundThreads::Begin {
  BoundThreads& threads;
  BoundThread& record;
  Cancellation& cancellation;
  BoundThread::Function function;
  void* argument;
  std::size_t stack_bytes;
  std::uint64_t mask;
};

/// Asked by one thread at a time, its bound thread. word: 0 has nothing to do, 1 has a call to make, 2 is to
/// end.
struct BoundThreads::Deputy {
  static constexpr std::uint32_t kIdle = 0, kAsked = 1, kEnds = 2;
  std::uint32_t word = kIdle;
  void (*function)(void*) = nullptr;
  void* argument = nullptr;
  Rank rank{};
  std::uint64_t thread = 0;  ///< its OS thread, a pthread_t

  void become(std::uint32_t to) noexcept {
    exchange_atomic(&word, to, __ATOMIC_ACQ_REL);
    wake_word(&word, true);
  }
  /// Until it is something else. call: null: there is nothing to do.
  std::uint32_t await(std::uint32_t is, const char* call) noexcept {
    for (;;) {
      const std::uint32_t now = load_atomic(&word, __ATOMIC_ACQUIRE);
      if (now != is) return now;
      (void)wait_for_word(&word, is, nullptr, call);
    }
  }
};

/// What the OS thread has while it runs code of the program. It is made before any thread-local of the
/// program, so its destructor runs after theirs.
class BoundThreads::Presence {
 public:
  explicit Presence(const Begin& begin)
      : threads_(begin.threads),
        record_(begin.record),
        function_(begin.function),
        argument_(begin.argument),
        stack_bytes_(begin.stack_bytes),
        alternate_(traps::AltStack::create()),
        stack_(threads_.take_stack(stack_bytes_)) {
    KASANE_CHECK(alternate_.has_value(), "no memory for an alternate signal stack");
    t_here = &record_;
    Cancellation::set_here(&begin.cancellation);
    (void)load_atomic(&record_.word, __ATOMIC_ACQUIRE);
  }
  ~Presence() {
    Cancellation::here()->step(CancelEvent::exit);
    run_destructors_of_keys();
    for (const auto& [rank, deputy] : deputies_) deputy->become(Deputy::kEnds);
    {
      const ult::RuntimeSection section;
      Cancellation::set_here(nullptr);
      threads_.keep_stack(stack_, stack_bytes_);
      t_here = nullptr;
      threads_.ended(record_, !is_deputy());
    }
    set_calls(Calls::passed);  // what libc does at the end of the thread
  }
  Presence(const Presence&) = delete;
  Presence& operator=(const Presence&) = delete;

  void run(void (*function)()) {
    ucontext_t there, back;
    ::getcontext(&there);
    there.uc_stack.ss_sp = stack_;
    there.uc_stack.ss_size = stack_bytes_;
    there.uc_link = &back;
    ::makecontext(&there, function, 0);
    ::swapcontext(&back, &there);
  }
  Deputy& deputy_at(Rank rank) {
    const ult::RuntimeSection section;
    Deputy*& deputy = deputies_[rank];
    if (deputy != nullptr) return *deputy;
    const auto made = Runtime::current()->allocate(sizeof(Deputy), alignof(Deputy), gas::Placement::local);
    KASANE_CHECK(made.has_value(), "no global memory for a call on another rank");
    deputy = new (*made) Deputy;
    const std::uint64_t answer =
        threads_.create_at(rank, nullptr, BoundState::detached, &BoundThreads::main_of_deputy, deputy);
    KASANE_CHECK(answer >= kErrors, "no OS thread for a call on another rank");
    deputy->rank = rank;
    deputy->thread = answer;
    return *deputy;
  }
  void stack(void*& low, std::size_t& bytes) const noexcept { low = stack_, bytes = stack_bytes_; }
  [[nodiscard]] bool is_deputy() const noexcept { return function_ == &BoundThreads::main_of_deputy; }
  void* call() const { return function_(argument_); }

 private:
  BoundThreads& threads_;
  BoundThread& record_;
  const BoundThread::Function function_;
  void* const argument_;
  const std::size_t stack_bytes_;
  Result<traps::AltStack> alternate_;
  std::byte* const stack_;
  std::map<Rank, Deputy*> deputies_;
  const traps::ProgramThread runs_user_code_;
};

thread_local std::unique_ptr<BoundThreads::Presence> BoundThreads::t_presence;

BoundThreads::BoundThreads(comm::Transport& transport)
    : transport_(transport), counts_(transport.ranks(), 0) {
  counts_[0] = 1;  // main
  transport_.set_handler(gas::kThreadHandler, &BoundThreads::on_message, this);
}

void BoundThreads::begin(ThreadContexts& contexts, const cpu_set_t& cpus) {
  contexts_ = &contexts;
  cpus_ = cpus;
  traps::install_own_handler(kCancelSignal, [](int, siginfo_t*, void*) {}, /*restarts=*/false);
  if (raw(transport_.rank()) != 0) return;
  main_ = ::pthread_self();
  const auto& own = cancellations_[main_] = std::make_unique<Cancellation>();
  Cancellation::set_here(own.get());
}

// ---- between ranks ----------------------------------------------------------------------------------------

std::uint64_t BoundThreads::ask(Rank rank, const Message& message) {
  if (rank == transport_.rank() && message.ask != Ask::create) return answer(message);
  auto& io = contexts_->here().io;
  for (;; io.waiter().pause()) {
    const std::uint64_t value = io.request(rank, gas::kThreadHandler, comm::as_payload(message));
    if (value != gas::kAgain) return value;
  }
}

void BoundThreads::tell(Rank rank, const Message& message) {
  if (rank == transport_.rank())
    answer(message);
  else
    contexts_->here().io.send(rank, gas::kThreadHandler, comm::as_payload(message));
}

void BoundThreads::on_message(void* self, const comm::Message& received) noexcept {
  auto& threads = *static_cast<BoundThreads*>(self);
  Noted noted{{}, received.token};
  std::memcpy(&noted.message, received.payload.data(), sizeof noted.message);
  switch (noted.message.ask) {
    case Ask::create:
      if (!threads.noted_.add(noted)) return threads.transport_.reply(received.token, gas::kAgain);
      return threads.transport_.wake(threads.transport_.rank(), comm::Doorbell::messages);
    case Ask::reap:
    case Ask::gone: threads.answer(noted.message); return;
    case Ask::place:
    case Ask::find:
    case Ask::signal:
    case Ask::cancel:
    case Ask::rouse:
    case Ask::interrupt:
    case Ask::set_name:
    case Ask::get_name:
    case Ask::forget:
    case Ask::key:
    case Ask::destructor: threads.transport_.reply(received.token, threads.answer(noted.message));
  }
}

std::uint64_t BoundThreads::answer(const Message& message) noexcept {
  const ult::RuntimeSection section;
  const std::scoped_lock lock(mutex_);
  const auto thread = static_cast<pthread_t>(message.thread);
  switch (message.ask) {
    case Ask::place: {
      const auto fewest = std::ranges::min_element(counts_);
      ++*fewest;
      return static_cast<std::uint64_t>(fewest - counts_.begin());
    }
    case Ask::gone: --counts_[message.rank]; return 0;
    case Ask::forget:
      if (made_.erase(thread) == 0) forgotten_.insert(thread);
      return 0;
    case Ask::reap:
      if (thread != 0) reap(thread);
      for (const pthread_t joined : message.joined)
        if (joined != 0) reap(joined);
      return 0;
    case Ask::find: {
      for (const auto* table : {&threads_, &made_})
        if (const auto found = table->find(thread); found != table->end())
          return reinterpret_cast<std::uint64_t>(found->second);
      return 0;
    }
    case Ask::signal:
      if (!message.has_value) return static_cast<std::uint64_t>(g_kill.get()(thread, message.signal));
      return static_cast<std::uint64_t>(g_queue.get()(thread, message.signal, {.sival_ptr = message.value}));
    case Ask::cancel:
    case Ask::rouse: {
      const auto found = cancellations_.find(thread);
      if (found == cancellations_.end()) return 0;
      if (message.ask == Ask::cancel) found->second->step(CancelEvent::cancel);
      const std::uint64_t by = found->second->roused_by();
      if (by == Cancellation::kSignal) interrupt(*found->second);
      return by;
    }
    case Ask::interrupt:
      if (const auto found = cancellations_.find(thread); found != cancellations_.end())
        interrupt(*found->second);
      return 0;
    case Ask::set_name:
      return static_cast<std::uint64_t>(
          g_set_name.get()(thread, reinterpret_cast<const char*>(message.name.data())));
    case Ask::get_name: {
      Name name{};
      if (g_get_name.get()(thread, reinterpret_cast<char*>(name.data()), sizeof name) != 0) return 0;
      return name[message.rank];
    }
    case Ask::key: return keys_ < kThreadKeys ? keys_++ : kThreadKeys;
    case Ask::destructor: note_destructor(message.rank, message.destructor); return 0;
    case Ask::create: break;
  }
  return 0;
}

/// libc may give its memory to the next thread.
void BoundThreads::reap(pthread_t thread) {
  threads_.erase(thread);
  cancellations_.erase(thread);
  g_detach.get()(thread);
}

bool BoundThreads::serve() {
  Noted noted;
  if (!noted_.any() || !noted_.take(noted)) return false;
  transport_.reply(noted.token, start(noted.message));
  return true;
}

std::uint64_t BoundThreads::start(const Message& message) noexcept {
  answer({.ask = Ask::reap, .joined = message.joined});
  auto cancellation = std::make_unique<Cancellation>();
  auto begin = std::make_unique<Begin>(*this, *message.record, *cancellation, message.function, message.value,
                                       message.stack_bytes, message.mask);
  pthread_attr_t attributes;
  ::pthread_attr_init(&attributes);
  std::size_t bytes = 0;
  ::pthread_attr_getstacksize(&attributes, &bytes);  // with room for thread-locals (topo/threads.h)
  ::pthread_attr_setstacksize(&attributes, std::min(bytes, kPrivateStack + topo::thread_local_bytes()));
  // Only where it is another than the service thread's: libc makes such a thread wait for its creator.
  cpu_set_t own;
  if (::sched_getaffinity(0, sizeof own, &own) != 0 || !CPU_EQUAL(&own, &cpus_))
    ::pthread_attr_setaffinity_np(&attributes, sizeof cpus_, &cpus_);
  sigset_t all;
  ::sigfillset(&all);
  for (const int signal : traps::kNeverBlocked) ::sigdelset(&all, signal);
  ::pthread_attr_setsigmask_np(&attributes, &all);
  pthread_t thread = 0;
  const std::scoped_lock lock(mutex_);  // who asks for the thread finds it
  const int error = g_create.get()(&thread, &attributes, &BoundThreads::main_of_thread, begin.get());
  ::pthread_attr_destroy(&attributes);
  if (error != 0) return static_cast<std::uint64_t>(error);
  (void)begin.release();
  threads_[thread] = message.record;
  cancellations_[thread] = std::move(cancellation);
  running_.fetch_add(1);
  return thread;
}

// ---- the thread -------------------------------------------------------------------------------------------

void* BoundThreads::main_of_thread(void* p) {
  const std::unique_ptr<Begin> begin(static_cast<Begin*>(p));
  t_presence = std::make_unique<Presence>(*begin);
  if (!t_presence->is_deputy()) ThreadsCheck::add_thread();
  sigset_t mask;
  ::sigemptyset(&mask);
  std::memcpy(&mask, &begin->mask, sizeof begin->mask);
  ult::Pool::enter_program();
  ::pthread_sigmask(SIG_SETMASK, &mask, nullptr);
  t_presence->run(&BoundThreads::main_on_stack);
  leave_runtime(Calls::caught);  // for the destructors of its thread-locals
  return nullptr;
}

void BoundThreads::main_on_stack() {
  leave_runtime(Calls::caught);
  set_value(t_presence->call());
  set_calls(Calls::passed);  // of libc on the way back to the other stack
}

/// Most have none, and a word that nobody writes is not released.
void BoundThreads::set_value(void* value) noexcept {
  const auto wanted = reinterpret_cast<std::uint64_t>(value);
  for (std::uint64_t seen = 0; seen != wanted && !swap_atomic_word(&t_here->value, seen, wanted);) {
  }
}

BoundThread* BoundThreads::here() noexcept { return t_here; }

void BoundThreads::stack_here(void*& low, std::size_t& bytes) noexcept { t_presence->stack(low, bytes); }

std::optional<BoundThreads::Seen> BoundThreads::next_here(pthread_t after) {
  const std::scoped_lock lock(mutex_);
  for (auto at = cancellations_.upper_bound(after); at != cancellations_.end(); ++at)
    if (const Cancellation& of = *at->second;
        of.os_thread() != 0 && (of.wait().call != nullptr || of.wait().word == nullptr))
      return Seen{at->first, of.os_thread(), at->first == main_, of.wait()};
  return std::nullopt;
}

std::uint32_t BoundThreads::running_anywhere() {
  const ult::RuntimeSection section;
  const std::scoped_lock lock(mutex_);
  return std::accumulate(counts_.begin(), counts_.end(), std::uint32_t{0});
}

void BoundThreads::call_at(Rank rank, void (*function)(void*), void* argument) {
  Deputy& deputy = t_presence->deputy_at(rank);
  deputy.function = function;
  deputy.argument = argument;
  Cancellation& own = *Cancellation::here();
  own.set_object(reinterpret_cast<std::uint64_t>(&deputy) | kIsDeputy);
  deputy.become(Deputy::kAsked);
  (void)deputy.await(Deputy::kAsked, "a call on another rank");
  own.set_object(0);
}

void* BoundThreads::main_of_deputy(void* p) {
  auto& deputy = *static_cast<Deputy*>(p);
  while (deputy.await(Deputy::kIdle, nullptr) == Deputy::kAsked) {
    deputy.function(deputy.argument);
    deputy.become(Deputy::kIdle);
  }
  const ult::RuntimeSection section;
  Runtime::current()->deallocate(&deputy);
  return nullptr;
}

void BoundThreads::exit(void* value) {
  set_value(value);
  Cancellation::here()->step(CancelEvent::exit);
  g_exit.get()(value);
  __builtin_unreachable();
}

/// counts: it is no deputy. Its joiner, where one waits, says that it is gone: that is awake then, and often
/// on rank 0.
void BoundThreads::ended(BoundThread& thread, bool counts) noexcept {
  const BoundAction action = step(thread, BoundEvent::end, __ATOMIC_RELEASE);
  if (action == BoundAction::wake)
    wake_word(&thread.word, true);
  else if (counts)
    tell(Rank{0}, {.ask = Ask::gone, .rank = raw(transport_.rank())});
  if (action == BoundAction::free) drop(thread, ::pthread_self());
  running_.fetch_sub(1);
}

std::byte* BoundThreads::take_stack(std::size_t bytes) {
  {
    const std::scoped_lock lock(mutex_);
    if (const auto kept = stacks_.find(bytes); kept != stacks_.end()) {
      std::byte* const stack = kept->second;
      stacks_.erase(kept);
      return stack;
    }
  }
  std::byte* const made = Runtime::current()->make_stack(bytes);
  KASANE_CHECK(made != nullptr,
               "no room for the stack of a thread: fewer of them, or smaller stacks (ulimit "
               "-s, pthread_attr_setstacksize)");
  return made;
}

void BoundThreads::keep_stack(std::byte* stack, std::size_t bytes) {
  const std::scoped_lock lock(mutex_);
  stacks_.emplace(bytes, stack);
}

// ---- calls of the program ---------------------------------------------------------------------------------

std::uint64_t BoundThreads::create_at(Rank rank, const pthread_attr_t* attributes, BoundState state,
                                      BoundThread::Function function, void* argument) {
  pthread_attr_t usual;
  if (attributes == nullptr) ::pthread_attr_init(&usual);
  std::size_t bytes = 0;
  ::pthread_attr_getstacksize(attributes != nullptr ? attributes : &usual, &bytes);
  Runtime& runtime = *Runtime::current();
  const auto made = runtime.allocate(sizeof(BoundThread), alignof(BoundThread), gas::Placement::local);
  if (!made) return EAGAIN;
  auto& record = *new (*made) BoundThread{
      .rank = raw(rank),
      .creator = state == BoundState::running ? raw(transport_.rank()) : BoundThread::kNobody};
  exchange_atomic(&record.word, static_cast<std::uint32_t>(state), __ATOMIC_RELEASE);
  const std::uint64_t answer = ask(rank, {.ask = Ask::create,
                                          .record = &record,
                                          .stack_bytes = (bytes + kStackUnit - 1) / kStackUnit * kStackUnit,
                                          .mask = mask_of_caller(),
                                          .function = function,
                                          .value = argument,
                                          .joined = take_joined(rank)});
  if (answer < kErrors) {
    runtime.deallocate(&record);
  } else if (state == BoundState::running) {
    const std::scoped_lock lock(mutex_);
    if (const auto thread = static_cast<pthread_t>(answer); forgotten_.erase(thread) == 0)
      made_[thread] = &record;
  }
  return answer;
}

/// Before another thread can ask for main. Nobody joins it.
void BoundThreads::name_main() {
  const std::scoped_lock lock(mutex_);
  if (main_ == 0 || threads_.contains(main_)) return;
  Runtime& runtime = *Runtime::current();
  const auto made = runtime.allocate(sizeof(BoundThread), alignof(BoundThread), gas::Placement::local);
  if (made)
    threads_[main_] = new (*made) BoundThread{.word = static_cast<std::uint32_t>(BoundState::detached)};
}

int BoundThreads::create(pthread_t* thread, const pthread_attr_t* attributes, BoundThread::Function function,
                         void* argument) {
  int detached = PTHREAD_CREATE_JOINABLE;
  if (attributes != nullptr) ::pthread_attr_getdetachstate(attributes, &detached);
  const ult::RuntimeSection section;
  if (attributes != nullptr && names_stack(*attributes)) {
    CrashText text;
    warn(
        text.add("kasane: pthread_create: a stack of the program's own (pthread_attr_setstack) is not used "
                 "with --threads spread: say how large it is to be (pthread_attr_setstacksize)\n"));
    return EINVAL;
  }
  name_main();
  const Rank rank{static_cast<std::uint32_t>(ask(Rank{0}, {.ask = Ask::place}))};
  const auto state = detached == PTHREAD_CREATE_DETACHED ? BoundState::detached : BoundState::running;
  const std::uint64_t answer = create_at(rank, attributes, state, function, argument);
  if (answer >= kErrors) {
    *thread = static_cast<pthread_t>(answer);
    return 0;
  }
  tell(Rank{0}, {.ask = Ask::gone, .rank = raw(rank)});
  return static_cast<int>(answer);
}

BoundThread* BoundThreads::find(pthread_t thread) {
  if (thread == ::pthread_self()) return t_here;
  const Message message{.ask = Ask::find, .thread = thread};
  if (const std::uint64_t own = answer(message); own != 0) return reinterpret_cast<BoundThread*>(own);
  for (std::uint32_t r = 0; r < transport_.ranks(); ++r) {
    if (Rank{r} == transport_.rank()) continue;
    if (const std::uint64_t found = ask(Rank{r}, message); found != 0)
      return reinterpret_cast<BoundThread*>(found);
  }
  return nullptr;
}

std::optional<int> BoundThreads::join(pthread_t id, void** value, BoundEvent how, const Deadline* deadline) {
  if (t_here != nullptr && id == ::pthread_self()) return EDEADLK;
  BoundThread* const thread = [&] {
    const ult::RuntimeSection section;
    return find(id);
  }();
  if (thread == nullptr) return std::nullopt;
  if (how == BoundEvent::join) Cancellation::test();
  // relaxed, all: a joiner says nothing, and hears at the end
  BoundAction action = step(*thread, how, __ATOMIC_RELAXED);
  const bool waited = action == BoundAction::wait;
  while (action == BoundAction::wait) {
    const int error = wait_in_point(&thread->word, static_cast<std::uint32_t>(BoundState::awaited), deadline,
                                    "pthread_join");
    action = step(*thread, error == 0 ? BoundEvent::look : BoundEvent::give_up, __ATOMIC_RELAXED);
    if (action == BoundAction::busy && error == EINTR)
      return Cancellation::test(), join(id, value, how, deadline);
    if (action == BoundAction::busy) return error;
  }
  if (action != BoundAction::free) return action == BoundAction::busy ? EBUSY : EINVAL;
  (void)load_atomic(&thread->word, __ATOMIC_ACQUIRE);
  if (value != nullptr) *value = reinterpret_cast<void*>(load_atomic_word(&thread->value));
  const ult::RuntimeSection section;
  if (waited) tell(Rank{0}, {.ask = Ask::gone, .rank = thread->rank});
  drop(*thread, id);
  return 0;
}

std::optional<int> BoundThreads::detach(pthread_t id) {
  const ult::RuntimeSection section;
  BoundThread* const thread = find(id);
  if (thread == nullptr) return std::nullopt;
  const BoundAction action = step(*thread, BoundEvent::detach, __ATOMIC_RELAXED);
  if (action == BoundAction::free) drop(*thread, id);
  return action == BoundAction::refused ? EINVAL : 0;
}

std::optional<int> BoundThreads::signal(pthread_t id, int signal, const sigval* value) {
  const ult::RuntimeSection section;
  const BoundThread* const thread = find(id);
  if (thread == nullptr) return std::nullopt;
  return static_cast<int>(ask(Rank{thread->rank}, {.ask = Ask::signal,
                                                   .has_value = value != nullptr,
                                                   .signal = signal,
                                                   .thread = id,
                                                   .value = value != nullptr ? value->sival_ptr : nullptr}));
}

std::optional<int> BoundThreads::cancel(pthread_t id) {
  const ult::RuntimeSection section;
  if (Cancellation* const own = Cancellation::here(); own != nullptr && id == ::pthread_self())
    return own->step(CancelEvent::cancel), 0;
  const BoundThread* const thread = find(id);
  if (thread == nullptr) return std::nullopt;
  const Rank rank{thread->rank};  // the record goes when the thread has been joined
  // Not for ever: a signal handler may leave a wait by longjmp().
  Ask what = Ask::cancel;
  for (std::uint32_t tries = 0; tries < 10'000'000 / kRouseAgainUs; ++tries, what = Ask::rouse) {
    const std::uint64_t by = ask(rank, {.ask = what, .thread = id});
    if (by == 0) break;
    if ((by & kIsDeputy) != 0) {
      const auto& deputy = *reinterpret_cast<const Deputy*>(by & ~kIsDeputy);
      ask(deputy.rank, {.ask = Ask::interrupt, .thread = deputy.thread});
    } else if (by != Cancellation::kSignal) {
      wake_word(reinterpret_cast<void*>(by), true);
    }
    ::usleep(kRouseAgainUs);
  }
  return 0;
}

BoundThread* BoundThreads::find_elsewhere(pthread_t id) {
  BoundThread* const thread = find(id);
  return thread != nullptr && Rank{thread->rank} != transport_.rank() ? thread : nullptr;
}

std::optional<int> BoundThreads::set_name(pthread_t id, const char* name) {
  const ult::RuntimeSection section;
  const BoundThread* const thread = find_elsewhere(id);
  if (thread == nullptr) return std::nullopt;
  Message message{.ask = Ask::set_name, .thread = id};
  if (std::strlen(name) >= sizeof message.name) return ERANGE;
  std::strcpy(reinterpret_cast<char*>(message.name.data()), name);
  return static_cast<int>(ask(Rank{thread->rank}, message));
}

std::optional<int> BoundThreads::get_name(pthread_t id, char* name, std::size_t bytes) {
  const ult::RuntimeSection section;
  const BoundThread* const thread = find_elsewhere(id);
  if (thread == nullptr) return std::nullopt;
  Name found{};
  if (bytes < sizeof found) return ERANGE;
  for (std::uint32_t i = 0; i < found.size(); ++i)
    found[i] = ask(Rank{thread->rank}, {.ask = Ask::get_name, .rank = i, .thread = id});
  std::memcpy(name, found.data(), sizeof found);
  return 0;
}

std::optional<int> BoundThreads::refuse(pthread_t id, const char* call) {
  const ult::RuntimeSection section;
  const BoundThread* const thread = find_elsewhere(id);
  if (thread == nullptr) return std::nullopt;
  CrashText text;
  text.add("kasane: ").add(call).add(" fails with ENOTSUP: the thread runs on rank ").decimal(thread->rank);
  warn(text.add(" (--threads spread)\n"));
  return ENOTSUP;
}

std::uint32_t BoundThreads::create_key() {
  const ult::RuntimeSection section;
  return static_cast<std::uint32_t>(ask(Rank{0}, {.ask = Ask::key}));
}

void BoundThreads::tell_destructor(std::uint32_t number, void (*destructor)(void*)) {
  const ult::RuntimeSection section;
  for (std::uint32_t r = 0; r < transport_.ranks(); ++r)
    ask(Rank{r}, {.ask = Ask::destructor, .rank = number, .destructor = destructor});
}

/// Nobody will ask for the thread any more.
void BoundThreads::drop(BoundThread& thread, pthread_t id) {
  if (thread.creator != BoundThread::kNobody) ask(Rank{thread.creator}, {.ask = Ask::forget, .thread = id});
  const Rank rank{thread.rank};
  Runtime::current()->deallocate(&thread);
  std::size_t kept = 0;
  if (rank != transport_.rank()) {
    const std::scoped_lock lock(mutex_);
    auto& joined = joined_[rank];
    joined.push_back(id);
    kept = joined.size();
    if (kept < Joined{}.size()) return;  // the next create() tells, or one of the next of these
  }
  tell(rank, {.ask = Ask::reap, .thread = kept == 0 ? id : 0, .joined = take_joined(rank)});
}

BoundThreads::Joined BoundThreads::take_joined(Rank rank) {
  const std::scoped_lock lock(mutex_);
  auto& all = joined_[rank];
  Joined some{};
  for (std::size_t i = 0; i < some.size() && !all.empty(); ++i, all.pop_back()) some[i] = all.back();
  return some;
}

}  // namespace kasane::runtime
