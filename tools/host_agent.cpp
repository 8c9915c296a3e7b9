// SPDX-License-Identifier: Apache-2.0
// The agent of a host: `kasane run --hosts` starts it there by ssh, and it starts the ranks. Its input and
// output lead back (agent_stream.h); what its ranks print goes that way, too. When its input ends, kasane run
// is gone, and the ranks end.
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <CLI/App.hpp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <utility>

#include "agent_stream.h"
#include "base/clock.h"
#include "comm/mpi/place.h"
#include "commands.h"
#include "hosts.h"
#include "kasane/version.h"

namespace kasane::tools {
namespace {

constexpr std::size_t kMostWaiting = 1 << 20;           // then the ranks' output waits in their pipes
constexpr std::uint64_t kKillAfter_ns = 2'000'000'000;  // a rank that a signal does not end

/// What kasane run has sent to start with.
struct Start {
  std::uint32_t ranks = 0, first = 0, here = 0;
  std::vector<std::string> command, environment;
};

struct Child {
  std::uint32_t rank = 0;
  pid_t pid = -1;
  std::optional<AgentStream> exchange;
  OwnedFd input, output, errors;
  std::string for_input;
  bool input_ends = false;
};

struct Pipe {
  OwnedFd in, out;
  Pipe() {
    int ends[2] = {-1, -1};
    if (::pipe2(ends, O_CLOEXEC) == 0) {
      in = OwnedFd(ends[0]);
      out = OwnedFd(ends[1]);
    }
  }
};

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> list;
  for (std::string& text : texts) list.push_back(text.data());
  list.push_back(nullptr);
  return list;
}

class Agent {
 public:
  Agent() : run_(OwnedFd(::dup(0)), OwnedFd(::dup(1))) {
    sigset_t child;
    ::sigemptyset(&child);
    ::sigaddset(&child, SIGCHLD);
    ::sigprocmask(SIG_BLOCK, &child, &mask_);
    children_ended_ = OwnedFd(::signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK));
    ::signal(SIGPIPE, SIG_IGN);
  }

  int serve() {
    while (left_ != 0 || !started_ || run_.waiting() != 0) {
      if (run_.ended() && (left_ == 0 || !started_)) break;
      turn();
    }
    return 0;
  }

 private:
  void turn() {
    std::vector<pollfd> fds;
    run_.watch(fds);
    fds.push_back({children_ended_.get(), POLLIN, 0});
    const bool takes = run_.waiting() < kMostWaiting;
    for (Child& c : children_) {
      if (c.exchange) c.exchange->watch(fds);
      for (const int fd : {c.output.get(), c.errors.get()})
        if (fd >= 0 && takes) fds.push_back({fd, POLLIN, 0});
      if (c.input.get() >= 0 && !c.for_input.empty()) fds.push_back({c.input.get(), POLLOUT, 0});
    }
    ::poll(fds.data(), fds.size(), kill_at_ != 0 ? 100 : -1);
    run_.receive();
    Head head;
    std::string bytes;
    while (run_.next(head, bytes)) take(head, bytes);
    for (Child& c : children_) {
      exchange(c);
      if (takes) print(c);
      feed(c);
    }
    reap();
    if (run_.ended()) end_all(SIGKILL);
    if (kill_at_ != 0 && now_ns() > kill_at_) end_all(SIGKILL);
    for (Child& c : children_)
      if (c.exchange) c.exchange->flush();
    run_.flush();
  }

  void take(const Head& head, const std::string& bytes) {
    switch (head.kind) {
      case kStart: return start(words_of(bytes));
      case Head::kAll:
        for (Child& c : children_)
          if (c.exchange) c.exchange->send(Head::kAll, c.rank, bytes);
        return;
      case kInput:
        if (children_.empty()) return;
        children_[0].for_input += bytes;
        children_[0].input_ends = bytes.empty();
        return;
      case kSignal:
        for (const Child& c : children_)
          if (c.rank == head.rank && c.pid > 0) ::kill(c.pid, std::atoi(bytes.c_str()));
        return;
      case kEnd:
        end_all(SIGTERM);
        kill_at_ = now_ns() + kKillAfter_ns;
        return;
      default: return;
    }
  }

  void refuse(const std::string& why) {
    started_ = true;
    run_.send(kRefused, 0, why);
  }

  void start(std::vector<std::string> w) {
    constexpr std::size_t kFixed = 6;
    if (w.size() < kFixed || w[0] != kasane_version())
      return refuse("has Kasane " + std::string(kasane_version()) + ", and the host of kasane run " +
                    (w.empty() ? "another" : w[0]));
    if (::chdir(w[1].c_str()) != 0) return refuse("cannot enter " + w[1] + ": " + std::strerror(errno));
    Start s;
    s.ranks = static_cast<std::uint32_t>(std::stoul(w[2]));
    s.first = static_cast<std::uint32_t>(std::stoul(w[3]));
    s.here = static_cast<std::uint32_t>(std::stoul(w[4]));
    const auto arguments = w.begin() + kFixed + std::stol(w[5]);
    s.command.assign(w.begin() + kFixed, arguments);
    s.environment.assign(arguments, w.end());
    if (::access(s.command[0].c_str(), X_OK) != 0)
      return refuse("cannot execute " + s.command[0] + ": " + std::strerror(errno));
    for (std::uint32_t i = 0; i < s.here; ++i) {
      children_.push_back(start_rank(s, s.first + i));
      if (children_.back().pid < 0)
        return refuse("cannot start a process: " + std::string(std::strerror(errno)));
      ++left_;
    }
    started_ = true;
  }

  Child start_rank(const Start& s, std::uint32_t rank) {
    int sockets[2] = {-1, -1};
    Pipe input, output, errors;
    Child child;
    child.rank = rank;
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0) return child;
    OwnedFd ours(sockets[0]), theirs(sockets[1]);
    std::vector<std::string> environment = s.environment;
    const auto set = [&](const char* name, std::uint64_t value) {
      environment.push_back(std::string(name) + "=" + std::to_string(value));
    };
    set(comm::mpi::kAgentRank, rank);
    set(comm::mpi::kAgentRanks, s.ranks);
    set(comm::mpi::kAgentHere, s.here);
    set(comm::mpi::kAgentSocket, static_cast<std::uint64_t>(theirs.get()));
    std::vector<std::string> command = s.command;
    const std::vector<char*> argv = pointers(command), envp = pointers(environment);
    const pid_t agent = ::getpid();
    child.pid = ::fork();
    if (child.pid == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != agent) ::_exit(1);
      ::dup2(rank == 0 ? input.in.get() : ::open("/dev/null", O_RDONLY | O_CLOEXEC), 0);
      ::dup2(output.out.get(), 1);
      ::dup2(errors.out.get(), 2);
      ::fcntl(theirs.get(), F_SETFD, 0);
      ::sigprocmask(SIG_SETMASK, &mask_, nullptr);
      ::signal(SIGPIPE, SIG_DFL);
      ::execve(argv[0], argv.data(), envp.data());
      const std::string why = "kasane: " + command[0] + ": " + std::strerror(errno) + "\n";
      static_cast<void>(!::write(2, why.data(), why.size()));
      ::_exit(126);
    }
    const int other_end = ::fcntl(ours.get(), F_DUPFD_CLOEXEC, 0);
    child.exchange.emplace(std::move(ours), OwnedFd(other_end));
    if (rank == 0) child.input = std::move(input.out);
    child.output = std::move(output.in);
    child.errors = std::move(errors.in);
    for (const int fd : {child.input.get(), child.output.get(), child.errors.get()})
      if (fd >= 0) ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
    return child;
  }

  void exchange(Child& c) {
    if (!c.exchange) return;
    c.exchange->receive();
    Head head;
    std::string bytes;
    while (c.exchange->next(head, bytes))
      if (head.kind == Head::kMine || head.kind == Head::kLeft) run_.send(head.kind, c.rank, bytes);
    if (c.exchange->ended()) c.exchange.reset();
  }

  void print(Child& c) {
    for (auto [fd, kind] : {std::pair{&c.output, kOutput}, std::pair{&c.errors, kErrors}}) {
      char part[1 << 14];
      ssize_t n = 0;
      while (fd->get() >= 0 && run_.waiting() < kMostWaiting &&
             (n = ::read(fd->get(), part, sizeof part)) > 0)
        run_.send(kind, c.rank, {part, static_cast<std::size_t>(n)});
      if (n == 0 && fd->get() >= 0 && run_.waiting() < kMostWaiting) *fd = OwnedFd();
    }
  }

  void feed(Child& c) {
    while (c.input.get() >= 0 && !c.for_input.empty()) {
      const ssize_t n = ::write(c.input.get(), c.for_input.data(), c.for_input.size());
      if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
      if (n < 0) c.input = OwnedFd();
      if (n > 0) c.for_input.erase(0, static_cast<std::size_t>(n));
    }
    if (c.input_ends && c.for_input.empty()) c.input = OwnedFd();
  }

  void reap() {
    signalfd_siginfo info;
    while (::read(children_ended_.get(), &info, sizeof info) > 0) {
    }
    int status = 0;
    for (Child& c : children_) {
      if (c.pid <= 0 || ::waitpid(c.pid, &status, WNOHANG) != c.pid) continue;
      exchange(c);
      print(c);  // its last words; a process that it has left may hold the pipes
      run_.send(kEnded, c.rank, std::to_string(status));
      c.pid = -1;
      c.input = OwnedFd();
      --left_;
    }
  }

  void end_all(int signal) noexcept {
    for (const Child& c : children_)
      if (c.pid > 0) ::kill(c.pid, signal);
  }

  AgentStream run_;
  sigset_t mask_{};
  OwnedFd children_ended_;
  std::vector<Child> children_;
  std::uint32_t left_ = 0;
  bool started_ = false;
  std::uint64_t kill_at_ = 0;
};

}  // namespace

Command make_agent(CLI::App& kasane) {
  CLI::App* app = kasane.add_subcommand(kAgentCommand, "What kasane run --hosts starts on each host");
  app->group("");
  return {app, [] {
            if (::isatty(0) == 0) return Agent().serve();
            std::fputs("kasane: agent: kasane run --hosts starts it, on each host\n", stderr);
            return 2;
          }};
}

}  // namespace kasane::tools
