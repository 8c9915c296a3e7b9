// SPDX-License-Identifier: Apache-2.0
#include "pair.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <system_error>
#include <thread>

#include "control.h"

namespace kasane::bench {
namespace {

int listen_at(const std::string& name) {
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  name.copy(address.sun_path + 1, sizeof(address.sun_path) - 2);  // abstract: the first byte stays zero
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (fd < 0 || ::bind(fd, reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
      ::listen(fd, 2) != 0) {
    throw std::system_error(errno, std::generic_category(), "kasane bench: a socket for the players");
  }
  return fd;
}

/// Becomes command; only what is allowed between fork and exec happens here.
[[noreturn]] void become(char** arguments, char** environment, int output) {
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);  // mpirun ends its ranks on it
  const int null = ::open("/dev/null", O_RDONLY);
  ::dup2(null, STDIN_FILENO);
  ::dup2(output, STDOUT_FILENO);
  ::dup2(output, STDERR_FILENO);
  ::execvpe(arguments[0], arguments, environment);
  const char text[] = "cannot be executed\n";
  if (::write(STDERR_FILENO, text, sizeof text - 1) < 0) ::_exit(126);
  ::_exit(127);
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> list;
  for (auto& s : strings) list.push_back(s.data());
  list.push_back(nullptr);
  return list;
}

int spawn(std::vector<std::string> command, const std::vector<std::pair<std::string, std::string>>& variables,
          int output) {
  std::vector<std::string> environment;
  for (char** e = ::environ; *e != nullptr; ++e) environment.emplace_back(*e);
  // A variable given twice: the later one must win, but the first is found.
  for (const auto& [name, value] : variables) {
    const std::string prefix = name + "=";
    environment.erase(std::remove_if(environment.begin(), environment.end(),
                                     [&](const auto& e) { return e.rfind(prefix, 0) == 0; }),
                      environment.end());
    environment.push_back(prefix + value);
  }
  const std::vector<char*> arguments = pointers(command), settings = pointers(environment);
  const pid_t pid = ::fork();
  if (pid == 0) become(const_cast<char**>(arguments.data()), const_cast<char**>(settings.data()), output);
  if (pid < 0) throw std::system_error(errno, std::generic_category(), "kasane bench: fork");
  return pid;
}

/// Waits for the child until deadline; true when it has ended.
bool reap(int pid, std::chrono::steady_clock::time_point deadline) {
  for (;;) {
    if (::waitpid(pid, nullptr, WNOHANG) != 0) return true;
    if (std::chrono::steady_clock::now() >= deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

int left_ms(std::chrono::steady_clock::time_point deadline) {
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  return static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 1'000'000));
}

}  // namespace

Pair::Pair(std::string name, const Launch& launch, unsigned lanes, std::uint64_t max_bytes, Seconds limit)
    : name_(std::move(name)),
      socket_name_("kasane-bench-" + std::to_string(::getpid()) + "-" + name_),
      output_(::memfd_create("players", MFD_CLOEXEC)) {
  const int listener = listen_at(socket_name_);
  const auto deadline = Clock::now() + limit;
  start(launch, lanes, max_bytes);
  if (!meet(listener, deadline) || !introduce(deadline)) lose("did not start");
  ::close(listener);
}

Pair::~Pair() {
  if (!lost_) quit();
  ::close(output_);
}

void Pair::start(const Launch& launch, unsigned lanes, std::uint64_t max_bytes) {
  auto variables = launch.environment;
  variables.emplace_back(Control::kSocketVariable, socket_name_);
  variables.emplace_back(Control::kLanesVariable, std::to_string(lanes));
  variables.emplace_back(Control::kBytesVariable, std::to_string(max_bytes));
  for (const char* rank : {"0", "1"}) {
    auto mine = variables;
    if (!launch.starts_both) mine.emplace_back(Control::kRankVariable, rank);
    processes_.push_back(spawn(launch.command, mine, output_));
    if (launch.starts_both) return;
  }
}

bool Pair::ended_early() const {
  return std::any_of(processes_.begin(), processes_.end(), [](int pid) {
    siginfo_t info{};
    // WNOWAIT: hang_up() reaps it
    return ::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
           info.si_pid != 0;
  });
}

bool Pair::meet(int listener, Clock::time_point deadline) {
  for (unsigned met = 0; met < 2;) {
    pollfd waiting{.fd = listener, .events = POLLIN, .revents = 0};
    if (::poll(&waiting, 1, std::min(left_ms(deadline), 50)) <= 0) {
      if (ended_early() || Clock::now() >= deadline) return false;
      continue;
    }
    Line fresh{::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC), {}};
    // Its first line says which rank it is; borrow a place to hear it.
    Line& place = ranks_[0].fd < 0 ? ranks_[0] : ranks_[1];
    place = fresh;
    const std::string hello = hear(static_cast<unsigned>(&place - ranks_), deadline);
    if (hello != "hello 0" && hello != "hello 1") return false;
    const auto rank = static_cast<unsigned>(hello.back() - '0');
    if (&place != &ranks_[rank]) std::swap(ranks_[0], ranks_[1]);
    ++met;
  }
  return ranks_[0].fd >= 0 && ranks_[1].fd >= 0;
}

bool Pair::introduce(Clock::time_point deadline) {
  for (;;) {
    // Of two that share, neither waits for one that has ended.
    std::string lines[2];
    const unsigned first = first_to_speak(deadline);
    lines[first] = hear(first, deadline);
    if (lost_) return false;
    lines[1 - first] = hear(1 - first, deadline);
    const auto& [zero, one] = lines;
    if (zero == "ready" && one == "ready") return true;
    if (zero.rfind("share ", 0) != 0 || one.rfind("share ", 0) != 0) return false;
    say(0, one.substr(6));
    say(1, zero.substr(6));
  }
}

void Pair::say(unsigned rank, const std::string& line) {
  const std::string text = line + "\n";
  // A rank that has gone is noticed by hear().
  for (std::size_t sent = 0; sent < text.size();) {
    const ssize_t n = ::send(ranks_[rank].fd, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
    if (n <= 0) return;
    sent += static_cast<std::size_t>(n);
  }
}

unsigned Pair::first_to_speak(Clock::time_point deadline) {
  for (const unsigned rank : {0u, 1u}) {
    if (ranks_[rank].pending.find('\n') != std::string::npos) return rank;
  }
  pollfd waiting[2] = {{.fd = ranks_[0].fd, .events = POLLIN, .revents = 0},
                       {.fd = ranks_[1].fd, .events = POLLIN, .revents = 0}};
  while (::poll(waiting, 2, left_ms(deadline)) < 0 && errno == EINTR) {
  }
  return waiting[0].revents == 0 && waiting[1].revents != 0 ? 1 : 0;
}

std::string Pair::hear(unsigned rank, Clock::time_point deadline) {
  Line& line = ranks_[rank];
  for (;;) {
    if (const auto end = line.pending.find('\n'); end != std::string::npos) {
      std::string text = line.pending.substr(0, end);
      line.pending.erase(0, end + 1);
      return text;
    }
    pollfd waiting{.fd = line.fd, .events = POLLIN, .revents = 0};
    const int ready = ::poll(&waiting, 1, left_ms(deadline));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return {};
    char buffer[4096];
    const ssize_t n = ::read(line.fd, buffer, sizeof buffer);
    if (n <= 0) {
      lose("rank " + std::to_string(rank) + " ended");
      return {};
    }
    line.pending.append(buffer, static_cast<std::size_t>(n));
  }
}

Answer Pair::understand(const std::string& line) {
  if (lost_) return {Answer::Kind::lost, 0, why_};
  if (line.rfind("ok ", 0) == 0) return {Answer::Kind::ok, std::strtod(line.c_str() + 3, nullptr), {}};
  if (line.rfind("broken ", 0) == 0) return {Answer::Kind::broken, 0, line.substr(7)};
  if (line.rfind("unsupported ", 0) == 0) return {Answer::Kind::unsupported, 0, line.substr(12)};
  return lose(line.empty() ? "no answer in time" : "said: " + line);
}

Answer Pair::together(const Order& order, Seconds limit) {
  if (lost_) return {Answer::Kind::lost, 0, why_};
  const auto deadline = Clock::now() + limit;
  say(1, to_text(order));
  say(0, to_text(order));
  // The rank that is ready first serves the other, whose last operations may need it.
  const unsigned first = first_to_speak(deadline);
  Answer answers[2];
  answers[first] = understand(hear(first, deadline));
  if (lost_) return answers[first];
  Order serve, stop;
  serve.task = Task::serve;
  stop.task = Task::stop;
  say(first, to_text(serve));
  answers[1 - first] = understand(hear(1 - first, deadline));
  if (lost_) return answers[1 - first];
  say(first, to_text(stop));
  const Answer served = understand(hear(first, deadline + Seconds(1)));
  for (const Answer& answer : {answers[1], served}) {
    if (!answer.ok()) return answer;
  }
  return answers[0];
}

Answer Pair::alone(Order order, bool attended, Seconds limit, std::chrono::milliseconds grace, bool* helped) {
  if (lost_) return {Answer::Kind::lost, 0, why_};
  const auto deadline = Clock::now() + limit;
  Order serve, stop;
  serve.task = Task::serve;
  stop.task = Task::stop;
  order.attended = attended;
  if (attended) say(1, to_text(serve));
  say(0, to_text(order));
  std::string line = hear(0, attended ? deadline : std::min(deadline, Clock::now() + grace));
  bool serving = attended;
  if (line.empty() && !lost_ && !attended) {
    if (helped != nullptr) *helped = true;
    say(1, to_text(serve));
    serving = true;
    line = hear(0, deadline);
  }
  Answer answer = understand(line);
  if (lost_ || !serving) return answer;
  say(1, to_text(stop));
  const Answer one = understand(hear(1, deadline + Seconds(1)));
  return one.ok() ? answer : one;
}

Answer Pair::lose(const std::string& why) {
  if (!lost_) {
    lost_ = true;
    // Its line closes before it has printed why: what it printed is whole once it has ended.
    hang_up();
    why_ = why + last_words();
    kill_who_stays();
  }
  return {Answer::Kind::lost, 0, why_};
}

void Pair::quit() {
  Order quit;
  quit.task = Task::quit;
  say(0, to_text(quit));
  say(1, to_text(quit));
  for (const int pid : processes_) reap(pid, Clock::now() + Seconds(3));
  hang_up();
  kill_who_stays();
}

void Pair::hang_up() {
  for (Line& line : ranks_) {
    if (line.fd >= 0) ::close(line.fd);
    line.fd = -1;
  }
  for (const int pid : processes_) reap(pid, Clock::now() + Seconds(3));
}

void Pair::kill_who_stays() {
  // Gone already: waitpid says so (ECHILD), and no signal is sent to a number that may be another process's
  // by now.
  for (const int pid : processes_) {
    if (reap(pid, Clock::now())) continue;
    ::kill(pid, SIGTERM);
    if (reap(pid, Clock::now() + Seconds(2))) continue;
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  }
  processes_.clear();
}

std::string Pair::last_words() const {
  std::string text(600, '\0');
  const off_t size = ::lseek(output_, 0, SEEK_END);
  const ssize_t n =
      ::pread(output_, text.data(), text.size(), std::max<off_t>(0, size - static_cast<off_t>(text.size())));
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
  while (!text.empty() && text.back() == '\n') text.pop_back();
  std::replace(text.begin(), text.end(), '\n', '|');
  return text.empty() ? "" : "; it printed: " + text;
}

}  // namespace kasane::bench
