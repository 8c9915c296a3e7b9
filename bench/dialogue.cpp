// SPDX-License-Identifier: Apache-2.0
#include "dialogue.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <stdexcept>
#include <system_error>

namespace kasane::bench {
namespace {

constexpr int kPatienceMs = 300'000, kFarewellMs = 10'000;

}  // namespace

Dialogue::Dialogue(const std::string& command) : command_(command) {
  int in[2], out[2];
  if (::pipe2(in, O_CLOEXEC) != 0) throw std::system_error(errno, std::generic_category(), "pipe");
  if (::pipe2(out, O_CLOEXEC) != 0) {
    ::close(in[0]), ::close(in[1]);
    throw std::system_error(errno, std::generic_category(), "pipe");
  }
  const std::string line = "exec " + command_;
  program_ = ::fork();
  if (program_ == 0) {  // only what is allowed between fork and exec
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    ::dup2(in[0], STDIN_FILENO);
    ::dup2(out[1], STDOUT_FILENO);
    ::execl("/bin/sh", "sh", "-c", line.c_str(), static_cast<char*>(nullptr));
    ::_exit(127);
  }
  ::close(in[0]), ::close(out[1]);
  to_ = in[1], from_ = out[0];
  if (program_ < 0) {
    ::close(to_), ::close(from_);
    throw std::system_error(errno, std::generic_category(), "fork");
  }
  ::signal(SIGPIPE, SIG_IGN);  // a program that has ended is told by its missing answer
}

Dialogue::~Dialogue() {
  ::close(to_);
  pollfd end{from_, POLLIN, 0};
  char rest[256];
  while (::poll(&end, 1, kFarewellMs) > 0 && ::read(from_, rest, sizeof rest) > 0) {
  }
  ::close(from_);
  if (::waitpid(program_, nullptr, WNOHANG) != 0) return;
  // Its output is at its end, or it does not listen.
  ::kill(program_, SIGTERM);
  ::waitpid(program_, nullptr, 0);
}

std::string Dialogue::ask(const std::string& request) {
  const std::string line = request + "\n";
  // A write that fails is a program that has ended: its missing answer tells.
  [[maybe_unused]] const ssize_t written = ::write(to_, line.data(), line.size());
  std::size_t end;
  while ((end = unread_.find('\n')) == std::string::npos) {
    pollfd answer{from_, POLLIN, 0};
    if (::poll(&answer, 1, kPatienceMs) <= 0)
      throw std::runtime_error(command_ + ": no answer to " + request);
    char part[4096];
    const ssize_t n = ::read(from_, part, sizeof part);
    if (n <= 0) throw std::runtime_error(command_ + ": ended at " + request);
    unread_.append(part, static_cast<std::size_t>(n));
  }
  const std::string answer = unread_.substr(0, end);
  unread_.erase(0, end + 1);
  if (answer.starts_with("error"))
    throw std::runtime_error(command_ + ": " + request + ":" + answer.substr(5));
  return answer;
}

}  // namespace kasane::bench
