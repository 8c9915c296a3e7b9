// SPDX-License-Identifier: Apache-2.0
#include "multi/launch/job.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <thread>

namespace kasane::launch_test {
namespace {

using Clock = std::chrono::steady_clock;

std::string new_id() {
  static std::atomic<int> count{0};
  return "LAUNCH_TEST_FAMILY=" + std::to_string(::getpid()) + "." + std::to_string(count++);
}

std::string read_file(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

std::vector<pid_t> processes_with(const std::string& variable) {
  std::vector<pid_t> found;
  DIR* proc = ::opendir("/proc");
  while (const dirent* entry = ::readdir(proc)) {
    const pid_t pid = std::atoi(entry->d_name);
    if (pid <= 0) continue;
    if (read_file("/proc/" + std::string(entry->d_name) + "/environ").find(variable + '\0') !=
        std::string::npos)
      found.push_back(pid);
  }
  ::closedir(proc);
  return found;
}

/// A pipe whose near end no other process inherits.
void make_pipe(int& near, int& far, bool near_reads) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) std::abort();
  near = ends[near_reads ? 0 : 1];
  far = ends[near_reads ? 1 : 0];
}

/// Without reaping it.
bool has_ended(pid_t pid) {
  siginfo_t info = {};
  return ::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         info.si_pid == pid;
}

bool drain(int fd, std::string& text) {
  char buffer[4096];
  const ssize_t n = ::read(fd, buffer, sizeof buffer);
  if (n > 0) text.append(buffer, static_cast<std::size_t>(n));
  return n > 0;
}

}  // namespace

Job::Job(std::vector<std::string> command, std::vector<std::string> environment, std::string input)
    : id_(new_id()) {
  int in = -1, child_in = -1, child_out = -1, child_err = -1;
  make_pipe(in, child_in, false);
  make_pipe(out_, child_out, true);
  make_pipe(err_, child_err, true);
  std::vector<char*> argv;
  for (auto& word : command) argv.push_back(word.data());
  argv.push_back(nullptr);
  pid_ = ::fork();
  if (pid_ == 0) {
    ::setpgid(0, 0);  // our terminal's signals are not for it
    ::dup2(child_in, 0);
    ::dup2(child_out, 1);
    ::dup2(child_err, 2);
    ::putenv(id_.data());
    for (auto& variable : environment) ::putenv(variable.data());
    ::execvp(argv[0], argv.data());
    ::_exit(120);
  }
  for (const int fd : {child_in, child_out, child_err}) ::close(fd);
  // fits the pipe
  if (::write(in, input.data(), input.size()) != static_cast<ssize_t>(input.size())) std::abort();
  ::close(in);
}

Job::~Job() {
  for (const pid_t pid : family()) ::kill(pid, SIGKILL);
  if (!reaped_) ::waitpid(pid_, nullptr, 0);
  ::close(out_);
  ::close(err_);
}

/// False when both ends are closed or nothing came in time.
bool Job::read_some(int timeout_ms) {
  pollfd fds[2] = {{out_, POLLIN, 0}, {err_, POLLIN, 0}};
  if (::poll(fds, 2, timeout_ms) <= 0) return false;
  bool any = false;
  if (fds[0].revents != 0) any |= drain(out_, out_text_);
  if (fds[1].revents != 0) any |= drain(err_, err_text_);
  return any;
}

bool Job::wait_for_output(const std::string& text, int count) {
  const auto deadline = Clock::now() + kUsualLimit;
  while (count_of(out_text_, text) < count) {
    if (Clock::now() > deadline) return false;
    if (!read_some(100) && has_ended(pid_)) return false;
  }
  return true;
}

std::vector<pid_t> Job::family() const { return processes_with(id_); }

Outcome Job::wait(std::chrono::seconds limit) {
  Outcome result;
  const auto deadline = Clock::now() + limit;
  int status = 0;
  while (!result.ended && Clock::now() < deadline) {
    while (read_some(10)) {
    }
    result.ended = ::waitpid(pid_, &status, WNOHANG) == pid_;
  }
  if (!result.ended) {
    for (const pid_t pid : family()) ::kill(pid, SIGKILL);
    ::waitpid(pid_, &status, 0);
  }
  reaped_ = true;
  result.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  result.left = family();
  // A process that was killed may still be on its way out.
  for (int i = 0; i < 200 && !result.left.empty(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    result.left = family();
  }
  while (read_some(0)) {
  }
  result.out = out_text_;
  result.err = err_text_;
  return result;
}

std::vector<std::string> kasane_run_command(std::vector<std::string> arguments) {
  std::vector<std::string> command{KASANE_COMMAND, "run"};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return command;
}

Outcome kasane_run(std::vector<std::string> arguments, std::vector<std::string> environment,
                   std::string input) {
  return Job(kasane_run_command(std::move(arguments)), std::move(environment), std::move(input)).wait();
}

int kasane_files_in_dev_shm() {
  int n = 0;
  DIR* dir = ::opendir("/dev/shm");
  if (dir == nullptr) return 0;
  while (const dirent* entry = ::readdir(dir)) {
    const std::string name = entry->d_name;
    n += name.find("kasane") != std::string::npos && name.rfind("kasane-ucx-", 0) != 0;
  }
  ::closedir(dir);
  return n;
}

int count_of(const std::string& text, const std::string& part) {
  int n = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++n;
  return n;
}

std::string without_sanitizer(const std::string& text) {
  std::string kept;
  for (const auto& line : lines_of(text)) {
    const bool theirs = line.rfind("==", 0) == 0 || line.rfind("False positive error", 0) == 0 ||
                        line.rfind("For details see", 0) == 0;
    if (!theirs) kept += line + "\n";
  }
  return kept;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

}  // namespace kasane::launch_test
