// SPDX-License-Identifier: Apache-2.0
#include "comm/bootstrap/supervisor.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/clock.h"
#include "comm/bootstrap/descendants.h"
#include "comm/bootstrap/private_memory.h"
#include "comm/bootstrap/signals_for_main.h"
#include "comm/shm_files.h"
#include "diagnostics/demangle.h"
#include "diagnostics/source_lines.h"
#include "topo/threads.h"

namespace kasane::comm {

using diagnostics::demangle_all, diagnostics::JobStatus, diagnostics::Phase, diagnostics::RankStatus;
using diagnostics::ThreadReports, diagnostics::with_source_lines;

namespace {

constexpr std::uint64_t kSecond = 1'000'000'000;
constexpr std::uint64_t kTermGrace = kSecond;           ///< from SIGTERM to SIGKILL
constexpr std::uint64_t kLostGrace = kSecond;           ///< from the end of a rank to that of one it has lost
constexpr std::uint64_t kShutdownGrace = 30 * kSecond;  ///< from the end of rank 0 to the end of all others

sigset_t watched_signals() {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int s : kForMain) ::sigaddset(&set, s);
  for (const int s : {SIGCHLD, SIGTSTP, SIGCONT}) ::sigaddset(&set, s);
  return set;
}

void read_from_dev_null() {
  const int null = ::open("/dev/null", O_RDONLY);
  if (null < 0) return;
  ::dup2(null, 0);
  ::close(null);
}

void ignore(int) {}

/// Of ranks that run main: the supervisor prints a report on its threads, and the program goes on.
void pass_quit() {
  struct sigaction old = {};
  ::sigaction(SIGQUIT, nullptr, &old);
  if (old.sa_handler == SIG_IGN) return;
  struct sigaction mine = {};
  mine.sa_handler = ignore;  // rather than SIG_IGN, which exec() keeps
  mine.sa_flags = SA_RESTART | SA_ONSTACK;
  ::sigaction(SIGQUIT, &mine, nullptr);
}

void ignore_signals_for_main() {
  for (const int s : kForMain) {
    struct sigaction old = {};
    ::sigaction(s, nullptr, &old);
    if (old.sa_handler == SIG_IGN) continue;  // e.g. under nohup
    const struct sigaction mine = action_for_main();
    ::sigaction(s, &mine, nullptr);
  }
}

std::string signal_text(int signal) {
  const char* name = ::sigabbrev_np(signal);
  const char* meaning = ::sigdescr_np(signal);
  std::string text = name != nullptr ? "SIG" + std::string(name) : "signal " + std::to_string(signal);
  if (meaning != nullptr) text.append(" (").append(meaning).append(")");
  return text;
}

void write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(n));
  }
}

/// The report's lines, indented below the message that they belong to.
std::string indented(std::string_view report) {
  std::string out;
  for (std::size_t at = 0; at < report.size();) {
    const std::size_t end = std::min(report.find('\n', at), report.size());
    out.append("kasane:   ").append(report.substr(at, end - at)).append("\n");
    at = end + 1;
  }
  return out;
}

}  // namespace

Result<Supervisor> Supervisor::create(std::uint32_t ranks, SupervisorOptions options) {
  auto status = JobStatus::create(ranks);
  KASANE_TRY(status);
  Supervisor supervisor(*status, ranks, options);
  supervisor.children_.resize(ranks);
  if (options.tag_output) {
    auto pump = OutputPump::create(ranks, *status);
    KASANE_TRY(pump);
    supervisor.pump_ = std::move(*pump);
  }
  const sigset_t set = watched_signals();
  supervisor.signals_ = ::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  if (supervisor.signals_ < 0) return fail_errno(Errc::limit, "signalfd");
  return supervisor;
}

Result<Rank> Supervisor::fork_ranks() {
  block_signals();
  const pid_t self = ::getpid();
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  for (std::uint32_t r = 0; r < children_.size(); ++r) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      become_rank(Rank{r}, self);
      return Rank{r};
    }
    if (pid < 0) {
      const int number = errno;
      const std::string limit = number == ENOMEM ? "no memory is left" : topo::full_process_limit(number);
      end_descendants(2 * static_cast<std::int64_t>(kSecond));
      return fail_errno(Errc::limit,
                        "cannot fork rank " + std::to_string(r) + " of " + std::to_string(children_.size()) +
                            " (" + limit + ")",
                        number);
    }
    children_[r] = {.pid = pid, .alive = true};
  }
  become_supervisor();
  return kNoRank;
}

void Supervisor::block_signals() {
  sigset_t all;
  ::sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, &old_mask_);
  // If it were ignored, the kernel would reap the ranks, and their statuses would be lost. Before the forks,
  // since this discards pending signals.
  struct sigaction standard = {};
  standard.sa_handler = SIG_DFL;
  struct sigaction before = {};
  ::sigaction(SIGCHLD, &standard, &before);
  child_signal_ignored_ = before.sa_handler == SIG_IGN;
}

void Supervisor::become_rank(Rank rank, pid_t supervisor) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != supervisor) ::_exit(1);  // it died before the line above
  ::close(signals_);
  if (pump_) pump_->become_writer(rank);
  if (raw(rank) != 0) read_from_dev_null();
  note_supervisor(supervisor);
  if (raw(rank) != 0 && !options_.main_in_every_rank)
    ignore_signals_for_main();
  else
    pass_quit();
  if (child_signal_ignored_) ::signal(SIGCHLD, SIG_IGN);
  ::sigprocmask(SIG_SETMASK, &old_mask_, nullptr);
}

void Supervisor::become_supervisor() {
  read_from_dev_null();  // else a writer to the job's standard input would not notice that rank 0 closed it
  ::signal(SIGPIPE, SIG_IGN);
  if (pump_) pump_->become_reader();
}

int Supervisor::run() {
  while (any_alive()) {
    wait_for_events();
    take_signals();
    if (pump_) pump_->pump();
    reap();
    check_blocked();
    check_deadlines();
  }
  const int left = end_descendants(static_cast<std::int64_t>(kSecond));
  remove_dead_shm_files();
  if (pump_) pump_->drain();
  if (left > 0)
    write_all(2,
              "kasane: " + std::to_string(left) + " process(es) that the job started could not be killed\n");
  const int status = exit_status_.value_or(1);
  if (!pump_ || pump_->lost().empty()) return status;
  write_all(2, "kasane: the ranks' output cannot be written: " + pump_->lost() + "\n");
  return status != 0 ? status : 1;
}

bool Supervisor::any_alive() const {
  return std::any_of(children_.begin(), children_.end(), [](const Child& c) { return c.alive; });
}

void Supervisor::wait_for_events() {
  std::vector<pollfd> fds{{signals_, POLLIN, 0}};
  if (pump_) pump_->watch(fds);
  int timeout_ms = -1;
  std::uint64_t until = deadline_ns_;
  if (wait_until_ns_ != 0 && !ending_ && (until == 0 || wait_until_ns_ < until)) until = wait_until_ns_;
  if (!ending_ && threads_.look_every_ns() != 0 && (until == 0 || look_at_ns_ < until)) until = look_at_ns_;
  if (until != 0) {
    const std::uint64_t now = now_ns();
    timeout_ms = now >= until ? 0 : static_cast<int>((until - now) / 1'000'000 + 1);
  }
  ::poll(fds.data(), fds.size(), timeout_ms);
}

// ---- signals ----

void Supervisor::take_signals() {
  signalfd_siginfo info;
  while (::read(signals_, &info, sizeof info) == sizeof info) take_signal(info);
}

void Supervisor::take_signal(const signalfd_siginfo& info) {
  const int signal = static_cast<int>(info.ssi_signo);
  // SI_KERNEL: from the terminal, which sent it to every process of its foreground group, hence to each rank.
  const bool ranks_have_it = info.ssi_code == SI_KERNEL;
  if (signal == SIGTSTP) {
    if (!ranks_have_it) send_to_all(SIGTSTP);
    stop_with_ranks();
  } else if (signal == SIGCONT) {
    send_to_all(SIGCONT);
  } else if (for_main(signal)) {
    received_.push_back(signal);
    if (signal == SIGQUIT) report_threads();
    if (!ranks_have_it) send_to_main(signal);
  }
}

/// The shell waits for the supervisor, which therefore must stop, too. The ranks have stopped by the same
/// signal.
void Supervisor::stop_with_ranks() {
  const std::uint64_t before = now_ns();
  ::kill(::getpid(), SIGSTOP);
  send_to_all(SIGCONT);
  threads_.were_stopped();
  if (deadline_ns_ != 0) deadline_ns_ += now_ns() - before;
}

void Supervisor::send(Rank rank, int signal) {
  const Child& child = children_[raw(rank)];
  if (child.alive) ::kill(child.pid, signal);
}

void Supervisor::send_to_all(int signal) {
  for (std::uint32_t r = 0; r < children_.size(); ++r) send(Rank{r}, signal);
}

void Supervisor::send_to_main(int signal) {
  if (options_.main_in_every_rank) {
    send_to_all(signal);
  } else {
    send(Rank{0}, signal);
  }
}

// ---- threads ----

void Supervisor::report_threads() {
  std::uint32_t doubt = 0;
  bool all = true;
  write_all(2, "kasane: threads of the job:\n" +
                   indented(with_source_lines(demangle_all(threads_.ask(doubt, all)))));
}

void Supervisor::check_blocked() {
  if (ending_ || threads_.look_every_ns() == 0 || now_ns() < look_at_ns_) return;
  look_at_ns_ = now_ns() + threads_.look_every_ns();
  const ThreadReports::Blocked blocked = threads_.look();
  if (blocked.report.empty()) return;
  std::string text = "kasane: all threads of the job are blocked, and have been for " +
                     std::to_string(options_.deadlock_ns / kSecond) + " s:\n" +
                     indented(with_source_lines(demangle_all(blocked.report)));
  if (blocked.doubt != 0) {
    write_all(2, text + "kasane: the job goes on, since the program " +
                     diagnostics::doubt_text(blocked.doubt) + "\n");
    return;
  }
  write_all(2, text + "kasane: no thread can go on: ending the job with status " +
                   std::to_string(diagnostics::kDeadlockStatus) + "\n");
  begin_shutdown(diagnostics::kDeadlockStatus);
}

// ---- deaths ----

void Supervisor::reap() {
  int wait_status = 0;
  for (pid_t pid = ::waitpid(-1, &wait_status, WNOHANG); pid > 0;
       pid = ::waitpid(-1, &wait_status, WNOHANG)) {
    const auto child = std::find_if(children_.begin(), children_.end(),
                                    [&](const Child& c) { return c.alive && c.pid == pid; });
    if (child == children_.end()) continue;  // a process that some rank started
    child->alive = false;
    dead_.emplace_back(Rank{static_cast<std::uint32_t>(child - children_.begin())}, wait_status);
  }
  if (dead_.empty() || ending_ || waits_for_lost()) return;  // once all were told to end nothing is reported
  // A rank that gave up may take longer to end than others to notice that it is gone; its report has the
  // reason. That another is lost is none, if that one's end is known.
  const std::vector<std::pair<Rank, int>> dead = std::exchange(dead_, {});
  wait_until_ns_ = 0;
  for (std::uint32_t r = 0; r < children_.size(); ++r)
    if (children_[r].alive && gave_up(Rank{r}) && lost_by(Rank{r}) == kNoRank) note_exit(Rank{r}, 1);
  for (const bool of_loss : {false, true}) {
    for (const auto& [rank, how] : dead)
      if ((lost_by(rank) != kNoRank) == of_loss && !(of_loss && ending_)) note_death(rank, how);
  }
  if (messages_.empty()) return;
  const auto left = std::count_if(children_.begin(), children_.end(), [](const Child& c) { return c.alive; });
  if (ending_ && left > 0)
    messages_ +=
        "kasane: ending the " + std::to_string(left) + (left == 1 ? " other rank\n" : " other ranks\n");
  write_all(2, std::exchange(messages_, {}));
}

bool Supervisor::gave_up(Rank rank) const {
  // acquire: pairs with the store of the phase, before which the rank's text is complete
  return status_.of(rank).phase.load(std::memory_order_acquire) == Phase::gave_up;
}

/// The other rank that this one gave up for, or kNoRank.
Rank Supervisor::lost_by(Rank rank) const {
  // relaxed: it is stored before the phase
  const std::uint32_t lost = gave_up(rank) ? status_.of(rank).lost.load(std::memory_order_relaxed) : 0;
  return lost == 0 ? kNoRank : Rank{lost - 1};
}

/// A rank's peers lose it while it ends, and may themselves be reaped first. Its own end says more than
/// theirs, and comes soon, unless the network has failed.
bool Supervisor::waits_for_lost() {
  const bool known = std::any_of(dead_.begin(), dead_.end(), [&](const auto& d) {
    const Rank lost = lost_by(d.first);
    return lost == kNoRank || !children_[raw(lost)].alive;
  });
  if (known || (wait_until_ns_ != 0 && now_ns() >= wait_until_ns_)) return false;
  if (wait_until_ns_ == 0) wait_until_ns_ = now_ns() + kLostGrace;
  return true;
}

void Supervisor::note_death(Rank rank, int wait_status) {
  if (WIFEXITED(wait_status)) {
    note_exit(rank, WEXITSTATUS(wait_status));
  } else {
    note_signal(rank, WTERMSIG(wait_status));
  }
}

void Supervisor::note_exit(Rank rank, int code) {
  const RankStatus& status = status_.of(rank);
  // acquire: the rank's text is complete before its phase is stored
  const Phase phase = status.phase.load(std::memory_order_acquire);
  const std::string who =
      "kasane: rank " + std::to_string(raw(rank)) + " (pid " + std::to_string(children_[raw(rank)].pid) + ")";
  if (phase == Phase::ended && raw(rank) == 0) {
    // With main in every rank the others may take any time, unless rank 0 failed: then they might wait for it
    // for ever.
    if (!options_.main_in_every_rank || code != 0) deadline_ns_ = now_ns() + kShutdownGrace;
    if (!exit_status_) exit_status_ = code;
    return;
  }
  if (phase == Phase::ended && code == 0) return;
  // One program has ended, not one of several.
  if (phase == Phase::exited && !options_.main_in_every_rank) return begin_shutdown(code);
  // A single rank may also have become another program (exec).
  if (phase == Phase::running && children_.size() == 1) return begin_shutdown(code);
  if (phase == Phase::ended) {
    messages_ += who + " ended with exit code " + std::to_string(code) + "\n";
  } else if (phase == Phase::gave_up) {
    messages_ += who + " gave up\n";
  } else if (phase == Phase::starting) {
    const std::string why(status.text());
    if (!why.empty() && why == refusal_) return begin_shutdown(code != 0 ? code : 1);
    refusal_ = why;
    messages_ += who + " did not start: exit code " + std::to_string(code) + "\n";
  } else {
    messages_ += who + " exited with code " + std::to_string(code) + " while the job was running\n";
  }
  messages_ += indented(with_source_lines(demangle_all(status.text())));
  begin_shutdown(code != 0 ? code : 1);
}

void Supervisor::note_signal(Rank rank, int signal) {
  const RankStatus& status = status_.of(rank);
  // relaxed: the rank has ended. The reported signal has precedence: a crash inside the report may have ended
  // the rank by another signal.
  const int reported = status.signal.load(std::memory_order_relaxed);
  const int cause = reported != 0 ? reported : signal;
  messages_ += "kasane: rank " + std::to_string(raw(rank)) + " (pid " +
               std::to_string(children_[raw(rank)].pid) + ") was ended by " + signal_text(cause);
  const bool asked = std::find(received_.begin(), received_.end(), cause) != received_.end();
  if (asked) messages_ += ", which was sent to the job";
  messages_ += "\n" + indented(with_source_lines(demangle_all(status.text()))) + explain_address(rank);
  begin_shutdown(128 + cause);
}

/// Where the address at which the rank faulted is mapped in other ranks, which still live.
std::string Supervisor::explain_address(Rank rank) const {
  // relaxed: as in note_signal()
  const std::uint64_t address = status_.of(rank).fault_address.load(std::memory_order_relaxed);
  if (address == 0) return {};
  for (std::uint32_t r = 0; r < children_.size(); ++r) {
    if (Rank{r} == rank || !children_[r].alive) continue;
    const auto [what, constant] = memory_at(children_[r].pid, address);
    if (what.empty()) continue;
    const std::string owner = "rank " + std::to_string(r), user = "rank " + std::to_string(raw(rank));
    if (constant)
      return "kasane:   on " + owner + " this address lies in the code or constants of " + what + ", which " +
             user + " has not loaded there. Link the program with it, or set LD_PRELOAD, instead of dlopen\n";
    return "kasane:   on " + owner + " this address lies in " + what +
           ". If the pointer came from there: that memory is private to " + owner + ", and " + user +
           " has other memory, or none, at its address. Memory that threads share is allocated by new, "
           "kasane::allocate, or malloc with --malloc space\n";
  }
  return {};
}

void Supervisor::begin_shutdown(int exit_status) {
  // The first reason counts; but if a rank fails after rank 0 succeeded, the job has failed.
  if (!ending_ && exit_status_.value_or(0) == 0) exit_status_ = exit_status;
  if (ending_) return;
  ending_ = true;
  deadline_ns_ = now_ns() + kTermGrace;
  send_to_all(SIGTERM);
  send_to_all(SIGCONT);  // a stopped process takes no SIGTERM
}

void Supervisor::check_deadlines() {
  if (deadline_ns_ == 0 || now_ns() < deadline_ns_) return;
  if (!ending_) {
    for (std::uint32_t r = 0; r < children_.size(); ++r) {
      if (children_[r].alive)
        write_all(2, "kasane: rank " + std::to_string(r) +
                         " did not end within 30 s after main had returned; it is killed\n");
    }
    if (exit_status_.value_or(0) == 0) exit_status_ = 1;
    ending_ = true;
  }
  send_to_all(SIGKILL);
  deadline_ns_ = 0;
}

}  // namespace kasane::comm
