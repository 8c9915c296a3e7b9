// SPDX-License-Identifier: Apache-2.0
#include "execute.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>

#include "base/clock.h"

namespace kasane::tools {
namespace {

/// a program that takes longer to answer is not asked further
constexpr std::int64_t kAnswerNs = 5'000'000'000;

/// The reading end of a pipe with the command's output; -1: it cannot be started.
int start(std::vector<std::string> command, pid_t& child) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return -1;
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
  ::posix_spawn_file_actions_adddup2(&actions, ends[1], 2);
  std::vector<char*> words;
  for (std::string& word : command) words.push_back(word.data());
  words.push_back(nullptr);
  const int error = ::posix_spawn(&child, words.front(), &actions, nullptr, words.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  if (error == 0) return ends[0];
  ::close(ends[0]);
  return -1;
}

}  // namespace

std::string output_of(std::vector<std::string> command) {
  pid_t child = 0;
  const int in = start(std::move(command), child);
  if (in < 0) return {};
  const std::uint64_t deadline = now_ns() + kAnswerNs;
  std::string text;
  char part[1024];
  while (text.size() < 64 * sizeof part) {
    const std::uint64_t now = now_ns();
    pollfd arrival{.fd = in, .events = POLLIN, .revents = 0};
    if (now >= deadline || ::poll(&arrival, 1, static_cast<int>((deadline - now) / 1'000'000) + 1) < 1) break;
    const ssize_t n = ::read(in, part, sizeof part);
    if (n <= 0) break;
    text.append(part, static_cast<std::size_t>(n));
  }
  ::close(in);
  ::kill(child, SIGKILL);  // its output is complete, or too late
  while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  return text;
}

// It follows all names, as at a start.
std::string loaded_by(const std::string& file) {
  return output_of({"/lib64/ld-linux-x86-64.so.2", "--list", file});
}

int execute(std::vector<std::string> command, const std::string& hint) {
  std::vector<char*> argv;
  for (auto& word : command) argv.push_back(word.data());
  argv.push_back(nullptr);
  ::execvp(argv[0], argv.data());
  const int number = errno;
  const bool missing = number == ENOENT || number == ENOTDIR;
  std::fprintf(stderr, "kasane: cannot execute %s: %s\n", argv[0],
               missing ? "no such program" : std::strerror(number));
  if (!hint.empty()) std::fprintf(stderr, "kasane: %s\n", hint.c_str());
  return missing ? 127 : 126;
}

}  // namespace kasane::tools
