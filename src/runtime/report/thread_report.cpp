// SPDX-License-Identifier: Apache-2.0
#include "runtime/report/thread_report.h"

#include <link.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/clock.h"
#include "comm/bootstrap/signals_for_main.h"
#include "runtime/process/shared_process.h"
#include "runtime/rank/warn.h"
#include "runtime/report/suspended_stack.h"
#include "topo/threads.h"
#include "traps/signal_dispatch.h"
#include "ult/sync/mutex_record.h"
#include "ult/sync_record.h"

namespace kasane::runtime {
namespace {

using diagnostics::ThreadEntry, diagnostics::ThreadReport;
using ult::WaitsFor;

constexpr std::size_t kFramesOfThread = 12;
constexpr std::uint64_t kLookEveryNs = 50'000'000;
constexpr std::uint32_t kLeftForTheRest = 8 * 1024;  ///< bytes of text, for one more thread and the last line

std::uint32_t count_os_threads() { return static_cast<std::uint32_t>(topo::os_threads().size()); }

bool in_this_library(const void* code) noexcept {
  dl_find_object object, own;
  return ::_dl_find_object(const_cast<void*>(code), &object) == 0 &&
         ::_dl_find_object(reinterpret_cast<void*>(&in_this_library), &own) == 0 &&
         object.dlfo_link_map == own.dlfo_link_map;
}

/// A signal may make the program act.
bool handles_signals() noexcept {
  for (int s = 1; s < NSIG; ++s) {
    if (s == SIGSEGV || s == SIGBUS || s == SIGILL || s == SIGFPE || s == SIGABRT || s == SIGTRAP ||
        s == SIGSYS)
      continue;
    struct sigaction action = {};
    if (::sigaction(s, nullptr, &action) != 0) continue;  // the program's, which ours calls
    if (action.sa_handler == SIG_DFL || action.sa_handler == SIG_IGN) continue;
    if (!in_this_library(reinterpret_cast<const void*>(action.sa_handler))) return true;
  }
  return false;
}

bool timer_runs() noexcept {
  for (const auto which : {ITIMER_REAL, ITIMER_VIRTUAL, ITIMER_PROF}) {
    itimerval value = {};
    if (::getitimer(which, &value) == 0 && (value.it_value.tv_sec != 0 || value.it_value.tv_usec != 0))
      return true;
  }
  return false;
}

const char* noun(WaitsFor::Kind kind) noexcept {
  switch (kind) {
    case WaitsFor::Kind::mutex: return "mutex";
    case WaitsFor::Kind::condition: return "condition variable";
    case WaitsFor::Kind::barrier: return "barrier";
    case WaitsFor::Kind::latch: return "latch";
    case WaitsFor::Kind::permits: return "lock or semaphore";
    case WaitsFor::Kind::word: return "word";
    case WaitsFor::Kind::turn:
    case WaitsFor::Kind::network:
    case WaitsFor::Kind::page:
    case WaitsFor::Kind::outside:
    case WaitsFor::Kind::thread: break;
  }
  return "object";
}

// ---- frames of a thread that runs: its OS thread unwinds itself in a handler of SIGQUIT ----

struct Sample {
  std::atomic<pid_t> of{0};  ///< the OS thread that is to fill it in; 0: it has
  Backtrace trace;
};
Sample g_sample;  // of the service thread; static, since the handler may run late

/// In place of the one that the supervisor installed: SIGQUIT from outside of the job does nothing
/// (supervisor.h).
void on_quit(int signal, siginfo_t* info, void* context) {
  const int saved = errno;
  const auto self = static_cast<pid_t>(::syscall(SYS_gettid));
  // acquire/release: the trace belongs to this thread in between
  if (info->si_code == SI_QUEUE && info->si_ptr == &g_sample) {
    if (g_sample.of.load(std::memory_order_acquire) == self) {
      unwind(context, g_sample.trace);
      g_sample.of.store(0, std::memory_order_release);
    }
  } else if (comm::sender_of(*info) == comm::Sender::job) {
    comm::on_signal_for_main(signal, info, context);
  }
  errno = saved;
}

/// Also where SIGQUIT is ignored, as in jobs that a shell script starts in the background; not where the
/// program has a handler, or wants to end by it.
void install_quit_handler() noexcept {
  struct sigaction kernels = {}, seen = {};
  traps::raw_sigaction(SIGQUIT, nullptr, &kernels);
  ::sigaction(SIGQUIT, nullptr, &seen);
  const bool ours = in_this_library(reinterpret_cast<const void*>(seen.sa_handler));
  if (!comm::is_action_for_main(kernels) && seen.sa_handler != SIG_IGN && !ours) return;
  struct sigaction mine = {};
  mine.sa_sigaction = on_quit;
  mine.sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK;
  traps::raw_sigaction(SIGQUIT, &mine, nullptr);
}

/// False: the OS thread did not answer in time.
bool unwind_running(pid_t os_thread, Backtrace& out) noexcept {
  struct sigaction now = {};
  if (os_thread == 0 || traps::raw_sigaction(SIGQUIT, nullptr, &now) != 0 || now.sa_sigaction != on_quit)
    return false;
  g_sample.trace.count = 0;
  g_sample.of.store(os_thread, std::memory_order_release);  // release: the count
  siginfo_t asks = {};
  asks.si_signo = SIGQUIT;
  asks.si_code = SI_QUEUE;
  asks.si_pid = ::getpid();
  asks.si_ptr = &g_sample;
  if (::syscall(SYS_rt_tgsigqueueinfo, ::getpid(), os_thread, SIGQUIT, &asks) != 0) return false;
  for (int i = 0; i < 100; ++i) {
    if (g_sample.of.load(std::memory_order_acquire) == 0) {  // acquire: the trace
      out = g_sample.trace;
      leave_out_runtime(out);
      return true;
    }
    const timespec moment{0, 2'000'000};
    ::nanosleep(&moment, nullptr);
  }
  return false;
}

}  // namespace

ThreadReporter::ThreadReporter(ult::Pool& pool, ThreadReport* all, std::uint64_t deadlock_ns, bool other_main)
    : pool_(pool),
      alone_(all == nullptr ? new ThreadReport{} : nullptr),
      all_(all != nullptr ? all : alone_.get()),
      own_(all_[all != nullptr ? raw(pool.config().rank) : 0]),
      deadlock_ns_(deadlock_ns),
      other_main_(other_main) {}
ThreadReporter::~ThreadReporter() = default;

void ThreadReporter::note_started() noexcept {
  install_quit_handler();
  os_threads_.store(count_os_threads() - pool_.outside_callers(), std::memory_order_relaxed);
}

bool ThreadReporter::serve() noexcept {
  const std::uint64_t now = now_ns();
  if (now - looked_ns_ >= kLookEveryNs) {
    looked_ns_ = now;
    look(now);
    if (alone_ != nullptr) end_alone(now);
  }
  // acquire: a step follows what the supervisor saw of the one before; relaxed: our own
  const std::uint32_t asked = own_.asked.load(std::memory_order_acquire);
  if (asked == own_.done.load(std::memory_order_relaxed)) return false;
  if (std::exchange(noticed_, asked) != asked) return true;
  look(now);
  asked % 4 == 1 ? list() : describe_all();
  own_.done.store(asked, std::memory_order_release);  // release: the text
  return false;
}

void ThreadReporter::look(std::uint64_t now) noexcept {
  // The number of what has run is read on both sides of the look: what runs between counts.
  const std::uint64_t activity = pool_.activity();
  const bool quiet = pool_.quiet() && pool_.activity() == activity;
  if (!quiet)
    quiet_since_ns_ = 0;
  else if (quiet_since_ns_ == 0 || activity != activity_)
    quiet_since_ns_ = now;
  activity_ = activity;
  own_.quiet_since_ns.store(quiet_since_ns_, std::memory_order_release);  // release: after the looks
}

void ThreadReporter::end_alone(std::uint64_t now) noexcept {
  if (quiet_since_ns_ == 0) reported_ = false;
  if (pool_.config().ranks != 1 || deadlock_ns_ == 0 || quiet_since_ns_ == 0 || reported_ ||
      now - quiet_since_ns_ < deadlock_ns_)
    return;
  list();
  describe_all();
  reported_ = true;
  CrashText text;
  warn(text.add("kasane: all threads are blocked:\n"));
  [[maybe_unused]] const auto n = ::write(2, own_.text, own_.text_bytes);
  // relaxed: stored by list()
  if (own_.doubt.load(std::memory_order_relaxed) == 0) ::_exit(diagnostics::kDeadlockStatus);
}

std::uint32_t ThreadReporter::doubt() const noexcept {
  const std::uint32_t of_program = count_os_threads() - pool_.outside_callers();
  return (of_program != os_threads_.load(std::memory_order_relaxed) ? diagnostics::kDoubtOsThreads : 0) |
         (handles_signals() ? diagnostics::kDoubtHandlers : 0) |
         (timer_runs() ? diagnostics::kDoubtTimer : 0) | (other_main_ ? diagnostics::kDoubtMain : 0);
}

void ThreadReporter::list() noexcept {
  own_.entries = own_.more = 0;
  own_.doubt.store(doubt(), std::memory_order_relaxed);  // relaxed: done publishes it
  pool_.for_each_thread(
      [](void* self, const ult::Pool::ThreadState& t) {
        auto& own = static_cast<ThreadReporter*>(self)->own_;
        if (own.entries == ThreadReport::kMostEntries) {
          ++own.more;
          return;
        }
        own.entry[own.entries++] = {raw(t.slot), raw(t.rank), t.sp, t.stack_end};
      },
      this);
}

void ThreadReporter::describe_all() noexcept {
  const ult::Config& config = pool_.config();
  own_.text_bytes = 0;
  SuspendedStack stack(config.stack_bytes);
  std::uint32_t left_out = own_.more;
  for (std::uint32_t r = 0; r < config.ranks; ++r) {
    const ThreadReport& list = all_[r];
    for (std::uint32_t i = 0; i < list.entries; ++i) {
      if (list.entry[i].rank != raw(config.rank)) continue;
      if (own_.text_bytes + kLeftForTheRest > sizeof own_.text)
        ++left_out;
      else
        describe(list.entry[i], stack);
    }
  }
  if (BoundThreads* const threads = SharedProcess::current_threads(); threads != nullptr) {
    pthread_t last = 0;
    for (auto seen = threads->next_here(last); seen; seen = threads->next_here(last = seen->thread)) {
      if (own_.text_bytes + kLeftForTheRest > sizeof own_.text)
        ++left_out;
      else
        describe(*seen);
    }
  }
  if (left_out == 0) return;
  CrashText text;
  (void)append(text.add("  and ").decimal(left_out).add(" threads more\n"));
}

void ThreadReporter::describe(const BoundThreads::Seen& thread) noexcept {
  CrashText text;
  text.add("  OS thread ").decimal(static_cast<std::uint64_t>(thread.os_thread));
  text.add(thread.is_main ? ", main, " : " ");
  if (thread.waits.call == nullptr)
    text.add("runs, or waits for the kernel");
  else
    describe_data(text.add("waits in ").add(thread.waits.call).add(" for the word at "), thread.waits.word);
  Backtrace trace;
  if (append(text.add("\n")) && unwind_running(thread.os_thread, trace)) add_frames(trace);
}

std::optional<std::uint32_t> ThreadReporter::runs_on(SlotId slot) const noexcept {
  for (std::uint32_t w = 0; w < pool_.config().workers; ++w)
    if (pool_.running_on(w) == slot) return w;
  return std::nullopt;
}

void ThreadReporter::describe(const ThreadEntry& entry, SuspendedStack& stack) noexcept {
  auto worker = runs_on(SlotId{entry.slot});
  const bool copied = stack.copy(entry.sp, entry.stack_end);
  if (!worker) worker = runs_on(SlotId{entry.slot});  // since before the copy's end
  CrashText text;
  text.add("  thread ").decimal(entry.slot).add(" ");
  if (worker)
    text.add("runs on worker ").decimal(*worker);
  else
    add_state(text, entry, stack, copied);
  if (!append(text.add("\n"))) return;
  Backtrace trace;
  if (worker) {
    if (!unwind_running(pool_.os_thread_of(*worker), trace)) return;
  } else if (copied) {
    stack.unwind(trace);
  }
  add_frames(trace);
}

void ThreadReporter::add_frames(const Backtrace& trace) noexcept {
  for (std::size_t i = 0; i < trace.count && i < kFramesOfThread; ++i) {
    CrashText line;
    line.add("    #").decimal(i).add(" ");
    runtime::describe(line, trace.frames[i]);
    if (trace.frames[i].times > 1) line.add(", ").decimal(trace.frames[i].times).add(" times");
    if (!append(line.add("\n"))) return;
  }
}

void ThreadReporter::add_state(CrashText& text, const ThreadEntry& entry, const SuspendedStack& stack,
                               bool copied) const noexcept {
  WaitsFor waits;
  if (!copied)
    text.add("is suspended; its stack is not here");
  else if (!stack.waits_for(waits) || waits.kind == WaitsFor::Kind::turn)
    text.add("can run");
  else
    add_wait(text, SlotId{entry.slot}, waits);
}

void ThreadReporter::add_wait(CrashText& text, SlotId self, const WaitsFor& waits) const noexcept {
  if (waits.kind == WaitsFor::Kind::network) {
    text.add("waits for a transfer between ranks");
    return;
  }
  if (waits.kind == WaitsFor::Kind::page) {
    text.add("waits for a page: it has accessed ");
    describe_data(text, waits.address);
    return;
  }
  text.add("waits in ").add(waits.call);
  if (waits.kind == WaitsFor::Kind::outside) return;
  if (waits.timed) text.add(", with a deadline,");
  if (waits.kind == WaitsFor::Kind::thread) {
    text.add(" for thread ").decimal(waits.object);
    return;
  }
  text.add(" for the ").add(noun(waits.kind)).add(" at ");
  describe_data(text, waits.address);
  if (waits.kind != WaitsFor::Kind::mutex) return;
  const SlotId holder = ult::MutexWord::unpack(
                            ult::SyncRecords(pool_).load(ult::SyncHandle{waits.object}, ult::SyncField::word))
                            .holder;
  if (holder == self)
    text.add(", which it has got");
  else if (holder != kNoSlot)
    text.add(", which thread ").decimal(raw(holder)).add(" holds");
}

bool ThreadReporter::append(const CrashText& text) noexcept {
  if (own_.text_bytes + text.size() > sizeof own_.text) return false;
  std::memcpy(own_.text + own_.text_bytes, text.data(), text.size());
  own_.text_bytes += static_cast<std::uint32_t>(text.size());
  return true;
}

}  // namespace kasane::runtime
