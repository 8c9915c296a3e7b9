// SPDX-License-Identifier: Apache-2.0
// The program's OS threads on all ranks (--threads spread): pthread_create() makes each on the rank where the
// fewest of them run, main counted.
//
//   creator                              service thread there          the thread
//   asks rank 0 for a rank
//   record in global memory, releases
//   create ────────────────────────────▶ libc's pthread_create ──────▶ acquires; its stack in the space
//        ◀──────────────────────────────                               runs the function
//   joins: waits for the record's word ◀────────────────────────────── its destructors; releases, ended
//   frees the record ─ the next create ▶ libc's pthread_detach
//
// Only the stack pointer lies in the space: thread-locals and what libc keeps of a thread are private memory
// of the rank. So a pthread_t is libc's, and names one thread of the job, since the ranks' private memory
// lies apart; the rank where a thread runs knows its record, as does the one that made it, and others ask all
// ranks. A thread keeps its number until it has been joined, and the rank that made it has forgotten it: only
// then does libc give its memory to another one.
//
// Thread safety: as the functions of Pthreads. create(), join() and detach() release or acquire memory as
// Pthreads says.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

#include "base/ids.h"
#include "base/notes.h"
#include "comm/blocking.h"
#include "runtime/language/cancellation.h"
#include "runtime/language/futex_calls.h"
#include "runtime/process/bound_thread.h"
#include "runtime/rank/thread_contexts.h"

namespace kasane::runtime {

struct BoundThread {
  using Function = void* (*)(void*);
  static constexpr std::uint32_t kNobody = ~0u;
  std::uint32_t word = 0;           ///< a BoundState
  std::uint32_t rank = 0;           ///< where it runs
  std::uint32_t creator = kNobody;  ///< the rank that made it; kNobody: detached from the start
  void* value = nullptr;            ///< that it ended with; as word, reached by atomics alone
};

class BoundThreads {
 public:
  explicit BoundThreads(comm::Transport&);
  BoundThreads(const BoundThreads&) = delete;
  BoundThreads& operator=(const BoundThreads&) = delete;
  /// By main on its rank.
  void begin(ThreadContexts&, const cpu_set_t& cpus);

  /// pthread_create; 0 or an error.
  int create(pthread_t* thread, const pthread_attr_t*, BoundThread::Function, void* argument);
  // The rest returns nothing where the thread is none of these.
  std::optional<int> join(pthread_t, void** value, BoundEvent how, const Deadline*);
  std::optional<int> detach(pthread_t);
  /// pthread_sigqueue; value: null: pthread_kill.
  std::optional<int> signal(pthread_t, int signal, const sigval* value);
  /// pthread_cancel. Returns when the thread has left its wait.
  std::optional<int> cancel(pthread_t);
  /// pthread_setname_np and pthread_getname_np, of another rank's thread.
  std::optional<int> set_name(pthread_t, const char* name);
  std::optional<int> get_name(pthread_t, char* name, std::size_t bytes);
  /// ENOTSUP, and a warning, where the thread is another rank's.
  std::optional<int> refuse(pthread_t, const char* call);

  /// The number of another key. kThreadKeys: there is none left.
  std::uint32_t create_key();
  /// note_destructor() on all ranks.
  void tell_destructor(std::uint32_t number, void (*destructor)(void*));

  /// Threads that run on any rank, and main. On rank 0.
  [[nodiscard]] std::uint32_t running_anywhere();

  /// The calling thread's, or null.
  [[nodiscard]] static BoundThread* here() noexcept;
  /// By a bound thread, which cannot go there: its deputy at that rank calls function(argument). The deputy
  /// is an OS thread that it keeps until its end, so what a call leaves with its thread is there for the next
  /// one. argument: in the space. Releases before, acquires after.
  static void call_at(Rank, void (*function)(void*), void* argument);
  /// The lowest address and the bytes of its stack.
  static void stack_here(void*& low, std::size_t& bytes) noexcept;
  /// pthread_exit of a bound thread.
  [[noreturn]] static void exit(void* value);

  /// A thread of the program on this rank, for reports: the one behind `after`; 0: the first. No deputy that
  /// has nothing to do.
  struct Seen {
    pthread_t thread = 0;
    pid_t os_thread = 0;
    bool is_main = false;
    Cancellation::Wait waits;
  };
  [[nodiscard]] std::optional<Seen> next_here(pthread_t after);

  /// True if there was something to do. By the service thread.
  bool serve();
  /// Threads that run on this rank now.
  [[nodiscard]] std::uint32_t running() const noexcept { return running_.load(); }

 private:
  enum class Ask : std::uint8_t {
    place,
    create,
    find,
    signal,
    cancel,
    rouse,
    interrupt,
    set_name,
    get_name,
    forget,
    reap,
    gone,
    key,
    destructor
  };
  using Name = std::array<std::uint64_t, 2>;  ///< with the 0 at its end
  using Joined = std::array<pthread_t, 16>;   ///< 0: none
  struct Message {
    Ask ask;
    bool has_value = false;
    std::int32_t signal = 0;
    std::uint32_t rank = 0;
    std::uint64_t thread = 0;
    BoundThread* record = nullptr;
    std::uint64_t stack_bytes = 0, mask = 0;
    void (*destructor)(void*) = nullptr;
    BoundThread::Function function = nullptr;
    void* value = nullptr;  ///< of a new thread: its argument
    Name name{};
    Joined joined{};  ///< of the rank that is told
  };
  struct Noted {
    Message message;
    comm::ReplyToken token;
  };
  struct Begin;
  struct Deputy;
  class Presence;
  static thread_local std::unique_ptr<Presence> t_presence;

  static void on_message(void* self, const comm::Message&) noexcept;
  std::uint64_t answer(const Message&) noexcept;
  std::uint64_t start(const Message&) noexcept;
  static void* main_of_thread(void* begin);
  static void main_on_stack();
  static void* main_of_deputy(void* deputy);
  std::uint64_t create_at(Rank, const pthread_attr_t*, BoundState, BoundThread::Function, void* argument);
  std::uint64_t ask(Rank, const Message&);
  void tell(Rank, const Message&);
  void name_main();
  BoundThread* find(pthread_t);
  /// Null: it is none of these, or of this rank.
  BoundThread* find_elsewhere(pthread_t);
  void drop(BoundThread&, pthread_t);
  void ended(BoundThread&, bool counts) noexcept;
  static void set_value(void*) noexcept;
  void reap(pthread_t);
  [[nodiscard]] Joined take_joined(Rank);
  [[nodiscard]] std::byte* take_stack(std::size_t bytes);
  void keep_stack(std::byte*, std::size_t bytes);

  comm::Transport& transport_;
  ThreadContexts* contexts_ = nullptr;
  cpu_set_t cpus_ = {};  ///< of the threads on this rank: the service thread has its own
  pthread_t main_ = 0;   ///< on its rank
  std::atomic<std::uint32_t> running_{0};
  std::mutex mutex_;  ///< of what follows
  /// Not joined yet: those that run here, and those that were made here.
  std::map<pthread_t, BoundThread*> threads_, made_;
  std::map<pthread_t, std::unique_ptr<Cancellation>> cancellations_;  ///< of threads_
  std::map<Rank, std::vector<pthread_t>> joined_;  ///< of other ranks, which are not told yet
  std::set<pthread_t> forgotten_;      ///< made here, and gone before the answer that names them has come
  std::vector<std::uint32_t> counts_;  ///< on rank 0: threads that run, by rank
  std::uint32_t keys_ = 0;             ///< on rank 0: how many have been made
  std::multimap<std::size_t, std::byte*> stacks_;  ///< kept for reuse, by size
  Notes<Noted, 64> noted_;
};

}  // namespace kasane::runtime
