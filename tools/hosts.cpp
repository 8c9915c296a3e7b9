// SPDX-License-Identifier: Apache-2.0
#include "hosts.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <utility>

#include "agent_stream.h"
#include "base/clock.h"
#include "execute.h"
#include "kasane/version.h"
#include "mpirun.h"
#include "program_file.h"

extern char** environ;

namespace kasane::tools {
namespace {

constexpr std::size_t kMostInput = 1 << 16;              // of standard input that waits for rank 0
constexpr std::uint64_t kOthersEnd_ns = 20'000'000'000;  // after main has ended
constexpr std::uint64_t kSignalled_ns = 5'000'000'000;   // for main to end by itself

struct Host {
  std::string name;
  std::uint32_t first = 0, ranks = 0, left = 0;
  pid_t pid = -1;
  std::optional<AgentStream> agent;
};

/// A rank's line that has not ended, of its standard output and error.
struct Lines {
  std::string text[2];
};

void say(const std::string& text) { std::fputs(("kasane: " + text + "\n").c_str(), stderr); }

/// The words of the command by which `host` runs our agent.
std::vector<std::string> agent_command(const std::string& agent, const std::string& host,
                                       const std::string& kasane) {
  std::vector<std::string> words;
  bool named = agent.empty();  // on this host
  for (std::size_t at = 0; at < agent.size();) {
    const std::size_t end = std::min(agent.find(' ', at), agent.size());
    std::string word = agent.substr(at, end - at);
    for (std::size_t p; (p = word.find("%h")) != std::string::npos; named = true) word.replace(p, 2, host);
    if (!word.empty()) words.push_back(std::move(word));
    at = end + 1;
  }
  if (!named) words.push_back(host);
  words.push_back(kasane);
  words.emplace_back(kAgentCommand);
  return words;
}

class HostsJob {
 public:
  /// attaching: every rank has a main, and leaves the job before it ends.
  HostsJob(const runtime::Options& options, const std::vector<HostRanks>& hosts, bool attaching)
      : options_(options), attaching_(attaching) {
    for (const HostRanks& h : hosts) {
      Host host;
      host.name = h.host;
      host.first = ranks_;
      host.ranks = host.left = h.ranks;
      hosts_.push_back(std::move(host));
      ranks_ += h.ranks;
    }
    mine_.resize(ranks_);
    joined_.resize(ranks_);
    lines_.resize(ranks_);
    sigset_t set;
    ::sigemptyset(&set);
    for (const int s : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD}) ::sigaddset(&set, s);
    ::sigprocmask(SIG_BLOCK, &set, &mask_);
    signals_ = OwnedFd(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
    ::signal(SIGPIPE, SIG_IGN);
  }

  int run(const std::string& agent, const std::vector<std::string>& command) {
    const std::string kasane = std::filesystem::read_symlink("/proc/self/exe");
    for (Host& host : hosts_) {
      start_agent(host, agent_command(agent, host.name, kasane));
      host.agent->send(kStart, 0, start_words(host, command));
    }
    while (std::any_of(hosts_.begin(), hosts_.end(), [](const Host& h) { return h.agent.has_value(); }))
      turn();
    for (Host& host : hosts_)
      if (host.pid > 0) ::waitpid(host.pid, nullptr, 0);
    for (std::uint32_t r = 0; r < ranks_; ++r)
      for (int which : {0, 1})
        if (!lines_[r].text[which].empty()) print(r, which, "\n");
    return status_;
  }

 private:
  void start_agent(Host& host, std::vector<std::string> words) {
    int in[2], out[2];
    if (::pipe2(in, O_CLOEXEC) != 0 || ::pipe2(out, O_CLOEXEC) != 0) {
      say(std::string("no pipe: ") + std::strerror(errno));
      std::exit(1);
    }
    host.pid = ::fork();
    if (host.pid == 0) {
      ::setsid();  // Ctrl-C is for us
      ::dup2(in[0], 0);
      ::dup2(out[1], 1);
      ::sigprocmask(SIG_SETMASK, &mask_, nullptr);
      ::signal(SIGPIPE, SIG_DFL);
      ::_exit(
          execute(std::move(words), "It was to start ranks on " + host.name + " (--agent, KASANE_AGENT)"));
    }
    ::close(in[0]);
    ::close(out[1]);
    host.agent.emplace(OwnedFd(out[0]), OwnedFd(in[1]));
  }

  std::string start_words(const Host& host, const std::vector<std::string>& command) const {
    std::error_code error;
    std::vector<std::string> list{kasane_version(),           std::filesystem::current_path(error),
                                  std::to_string(ranks_),     std::to_string(host.first),
                                  std::to_string(host.ranks), std::to_string(command.size())};
    list.insert(list.end(), command.begin(), command.end());
    for (char** variable = environ; *variable != nullptr; ++variable) {
      const std::string_view text(*variable);
      // of this host, or of the connection to it
      const bool here =
          text.starts_with("SSH_") || text.starts_with("HOSTNAME=") || text.starts_with("DISPLAY=");
      if (!here) list.emplace_back(text);
    }
    return words(list);
  }

  void turn() {
    std::vector<pollfd> fds{{signals_.get(), POLLIN, 0}};
    for (const Host& host : hosts_)
      if (host.agent) host.agent->watch(fds);
    const bool reads = input_ && hosts_[0].agent && hosts_[0].agent->waiting() < kMostInput;
    if (reads) fds.push_back({0, POLLIN, 0});
    ::poll(fds.data(), fds.size(), end_at_ != 0 ? 100 : -1);
    take_signals();
    if (reads && fds.back().revents != 0) pass_input();
    for (Host& host : hosts_) {
      if (!host.agent) continue;
      host.agent->receive();
      Head head;
      std::string bytes;
      while (host.agent->next(head, bytes)) take(host, head, bytes);
      if (host.agent->ended()) agent_ended(host);
    }
    for (Host& host : hosts_)
      if (host.agent) host.agent->flush();
    if (end_at_ != 0 && now_ns() > end_at_) {
      if (!ending_ && main_ended_) say("ranks have not ended 20 s after main: they are ended");
      end();
    }
  }

  void take(Host& host, const Head& head, const std::string& bytes) {
    if (head.rank >= ranks_) return;
    switch (head.kind) {
      case Head::kMine: return exchange(head.rank, bytes);
      case Head::kLeft: joined_[head.rank] = false; return;
      case kOutput: return print(head.rank, 0, bytes);
      case kErrors: return print(head.rank, 1, bytes);
      case kEnded: return rank_ended(host, head.rank, std::atoi(bytes.c_str()));
      case kRefused:
        if (!ending_) say("host " + host.name + " " + bytes);
        host.left = 0;
        return fail(1);
      default: return;
    }
  }

  /// When all have come, every rank gets what all have.
  void exchange(std::uint32_t rank, const std::string& bytes) {
    if (attaching_ && hosts_[0].left != ranks_ && !ending_) {
      say("rank " + std::to_string(rank) + " joins a job of which ranks have ended");
      return fail(1);
    }
    if (!mine_[rank]) ++come_;
    joined_[rank] = true;
    mine_[rank] = bytes;
    if (come_ != ranks_) return;
    std::string all;
    for (std::optional<std::string>& one : mine_) {
      const std::uint64_t n = one->size();
      all.append(reinterpret_cast<const char*>(&n), sizeof n).append(*one);
      one.reset();
    }
    come_ = 0;
    for (Host& host : hosts_)
      if (host.agent) host.agent->send(Head::kAll, 0, all);
  }

  void print(std::uint32_t rank, int which, const std::string& bytes) {
    std::FILE* const to = which == 0 ? stdout : stderr;
    if (!options_.tag_output) {
      std::fwrite(bytes.data(), 1, bytes.size(), to);
    } else {
      std::string& line = lines_[rank].text[which];
      for (const char c : bytes) {
        line.push_back(c);
        if (c != '\n') continue;
        std::fprintf(to, "[%u] %s", rank, line.c_str());
        line.clear();
      }
    }
    std::fflush(to);
  }

  void rank_ended(Host& host, std::uint32_t rank, int status) {
    if (host.left != 0) --host.left;
    const bool by_signal = WIFSIGNALED(status);
    const int code = by_signal ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    if (!ending_ && !by_signal && (joined_[rank] || (attaching_ && come_ != 0))) {
      const bool one_program = !attaching_ && !options_.main_in_every_rank;
      if (one_program && (code == 0 || rank == 0)) return fail(code);  // ended by _exit()
      if (code == 0) {
        say("rank " + std::to_string(rank) + " ended without leaving the job, which the others wait for");
        return fail(1);
      }
    }
    if (rank == 0 && !attaching_ && !ending_ && (!by_signal || WTERMSIG(status) == signalled_)) {
      main_ended_ = true;
      status_ = std::max(status_, code);
      end_at_ = now_ns() + kOthersEnd_ns;
      if (signalled_ != 0) return end();
    }
    if (ending_ || code == 0 || (rank == 0 && main_ended_)) return;
    std::string what = "rank " + std::to_string(rank) + " on " + host.name;
    if (by_signal) {
      const char* const name = ::sigabbrev_np(WTERMSIG(status));
      what += std::string(" was ended by SIG") + (name != nullptr ? name : "?") + " (" +
              ::strsignal(WTERMSIG(status)) + ")";
    } else {
      what += " exited with code " + std::to_string(code);
    }
    say(what + ": the other ranks are ended");
    fail(code);
  }

  void agent_ended(Host& host) {
    host.agent.reset();
    int status = 0;
    ::waitpid(std::exchange(host.pid, -1), &status, 0);
    if (host.left == 0) return;
    const std::string how = WIFSIGNALED(status) ? "signal " + std::to_string(WTERMSIG(status))
                                                : "status " + std::to_string(WEXITSTATUS(status));
    if (!ending_)
      say("host " + host.name + ": its agent ended (" + how + ") before its " + std::to_string(host.left) +
          (host.left == 1 ? " rank" : " ranks") +
          ": can this host be reached without a password, and has it Kasane at the same path?");
    host.left = 0;
    fail(1);
  }

  void take_signals() {
    signalfd_siginfo info;
    while (::read(signals_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
      const int signal = static_cast<int>(info.ssi_signo);
      if (signal == SIGCHLD) continue;
      if (hosts_[0].agent) hosts_[0].agent->send(kSignal, 0, std::to_string(signal));
      if (signal == SIGUSR1 || signal == SIGUSR2 || signal == SIGQUIT) continue;
      if (signalled_ != 0) return fail(128 + signal);
      signalled_ = signal;
      status_ = 128 + signal;
      end_at_ = now_ns() + kSignalled_ns;
    }
  }

  void pass_input() {
    char part[1 << 14];
    const ssize_t n = ::read(0, part, sizeof part);
    if (n < 0 && errno == EINTR) return;
    input_ = n > 0;
    if (hosts_[0].agent)
      hosts_[0].agent->send(kInput, 0, {part, static_cast<std::size_t>(std::max<ssize_t>(n, 0))});
  }

  void fail(int status) {
    if (!ending_) status_ = status;
    end();
  }
  void end() {
    if (std::exchange(ending_, true)) return;
    for (Host& host : hosts_)
      if (host.agent) host.agent->send(kEnd, 0, {});
  }

  const runtime::Options& options_;
  const bool attaching_;
  std::vector<Host> hosts_;
  std::uint32_t ranks_ = 0, come_ = 0;
  std::vector<std::optional<std::string>> mine_;
  std::vector<bool> joined_;  ///< ranks that have met, and have not left
  std::vector<Lines> lines_;
  sigset_t mask_{};
  OwnedFd signals_;
  bool input_ = true, main_ended_ = false, ending_ = false;
  int status_ = 0, signalled_ = 0;
  std::uint64_t end_at_ = 0;
};

int run_job(const runtime::Options& options, const std::vector<HostRanks>& hosts, const std::string& agent,
            std::vector<std::string> command, bool attaching) {
  const std::string program = find_program(command[0]);
  if (::access(program.c_str(), X_OK) != 0) return execute(std::move(command));
  command[0] = std::filesystem::absolute(program);
  set_job_key();
  for (const char* name : {"KASANE_RANKS", "KASANE_HOSTS", "KASANE_AGENT", "KASANE_TAG_OUTPUT"})
    ::unsetenv(name);
  return HostsJob(options, hosts, attaching).run(agent, command);
}

}  // namespace

Result<std::vector<HostRanks>> hosts_of(const std::string& list, std::uint64_t ranks) {
  std::vector<HostRanks> hosts;
  std::uint64_t sum = 0;
  bool any_number = false;
  for (std::size_t at = 0; at <= list.size();) {
    const std::size_t end = std::min(list.find(',', at), list.size());
    const std::string word = list.substr(at, end - at);
    const std::size_t colon = word.find(':');
    HostRanks h{.host = word.substr(0, colon), .ranks = 1};
    if (colon != std::string::npos) {
      const char* const last = word.data() + word.size();
      const auto read = std::from_chars(word.data() + colon + 1, last, h.ranks);
      if (read.ec != std::errc() || read.ptr != last) h.ranks = 0;
      any_number = true;
    }
    if (h.host.empty() || h.host[0] == '-' || h.ranks == 0 || h.ranks > 1024)
      return fail(Errc::invalid_argument, "--hosts (KASANE_HOSTS): '" + word +
                                              "' is no host with a number of ranks: write host:2,other:2");
    sum += h.ranks;
    hosts.push_back(std::move(h));
    at = end + 1;
  }
  if (ranks != 0 && !any_number) {
    if (ranks % hosts.size() != 0)
      return fail(Errc::invalid_argument, "-n " + std::to_string(ranks) +
                                              " with --hosts: " + std::to_string(hosts.size()) +
                                              " hosts cannot have equal parts of it: write host:2,other:3");
    for (HostRanks& h : hosts) h.ranks = static_cast<std::uint32_t>(ranks / hosts.size());
  } else if (ranks != 0 && ranks != sum) {
    return fail(Errc::invalid_argument, "-n " + std::to_string(ranks) + ", but --hosts has " +
                                            std::to_string(sum) + " ranks: leave -n out");
  }
  return hosts;
}

int run_on_hosts(const runtime::Options& options, const std::vector<HostRanks>& hosts,
                 const std::string& agent, std::vector<std::string> command) {
  return run_job(options, hosts, agent, std::move(command), false);
}

int run_attaching_here(const runtime::Options& options, std::vector<std::string> command) {
  const HostRanks here{.host = "this host", .ranks = static_cast<std::uint32_t>(options.ranks)};
  return run_job(options, {here}, "", std::move(command), true);
}

}  // namespace kasane::tools
