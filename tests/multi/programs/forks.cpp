// SPDX-License-Identifier: Apache-2.0
// fork() in main, on threads of each rank and on OS threads: children that become another program, that
// compute on the program's variables and memory, and that end in each way.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <kasane/kasane.hpp>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "need.h"

namespace {

constexpr std::size_t kWord = 65536 / sizeof(int);
constexpr int kNumbers = 100'000;

std::vector<int> g_numbers;
std::string g_text = "a text that is too long to lie within the string itself";
int g_counter = 5;
int* g_words;

int status_of(pid_t child) {
  int status = -1;
  while (::waitpid(child, &status, 0) < 0) NEED(errno == EINTR);
  return status;
}

void computes() {
  int on_stack[100];
  std::iota(on_stack, on_stack + 100, 0);
  int pipe_ends[2];
  NEED(::pipe(pipe_ends) == 0);
  const pid_t child = ::fork();
  NEED(child >= 0);
  if (child == 0) {
    g_counter += 1000;  // the child's own
    std::vector<long> made(1000, 2);
    std::string copy = g_text + "!";
    long sum = std::accumulate(g_numbers.begin(), g_numbers.end(), 0L);
    sum += std::accumulate(on_stack, on_stack + 100, 0L) + std::accumulate(made.begin(), made.end(), 0L);
    for (int& word : on_stack) word = -1;
    if (::write(pipe_ends[1], &sum, sizeof sum) != sizeof sum) ::_exit(1);
    if (::write(pipe_ends[1], g_text.data(), 6) != 6) ::_exit(2);  // from absent memory
    ::_exit(copy.size() == g_text.size() + 1 && g_counter == 1005 ? 7 : 3);
  }
  long sum = 0;
  char text[6];
  NEED(::read(pipe_ends[0], &sum, sizeof sum) == sizeof sum);
  NEED(sum == 99L * 50 + 2000 + (kNumbers - 1L) * kNumbers / 2);
  NEED(::read(pipe_ends[0], text, 6) == 6 && std::memcmp(text, "a text", 6) == 0);
  const int status = status_of(child);
  NEED(WIFEXITED(status) && WEXITSTATUS(status) == 7);
  NEED(g_counter == 5 && on_stack[99] == 99);
  ::close(pipe_ends[0]);
  ::close(pipe_ends[1]);
}

void becomes_a_program() {
  // Memory that the parent gives back at once.
  std::vector<std::string> words{"/bin/sh", "-c", "test \"$0\" = \"" + g_text + "\" && exit 4", g_text};
  std::vector<char*> arguments;
  for (auto& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    ::execv(arguments[0], arguments.data());
    ::_exit(127);
  }
  for (auto& word : words) word.assign(word.size(), 'x');
  const int status = status_of(child);
  NEED(WIFEXITED(status) && WEXITSTATUS(status) == 4);
}

void ends_by_exit() {
  const pid_t child = ::fork();
  if (child == 0) std::exit(9);
  const int status = status_of(child);
  NEED(WIFEXITED(status) && WEXITSTATUS(status) == 9);
}

void accesses_what_is_free() {
  const pid_t child = ::fork();
  if (child == 0) {
    NEED(::freopen("/dev/null", "w", stderr) != nullptr);
    auto* const wild = reinterpret_cast<volatile int*>(g_words) + (std::size_t{1} << 33) / sizeof(int);
    ::_exit(*wild == 0 ? 0 : 1);
  }
  const int status = status_of(child);
  NEED(!WIFEXITED(status) || WEXITSTATUS(status) > 1);
}

/// A child of one function ends where that returns, whoever runs the other one in the parent.
void within_two_functions() {
  for (int i = 0; i < 50; ++i) {
    pid_t child = -1;
    int second = 0;
    kasane::parallel_invoke([&] { child = ::fork(); }, [&] { ++second; });
    if (child == 0) ::_exit(12);
    NEED(child > 0 && second == 1);
    const int status = status_of(child);
    NEED(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    int after = 0;
    kasane::parallel_invoke([&] { kasane::parallel_invoke([&] { after += 1; }, [] {}); }, [] {});
    NEED(after == 1);
  }
}

void all_ways() {
  computes();
  becomes_a_program();
  ends_by_exit();
}

}  // namespace

int main() {
  g_numbers.resize(kNumbers);
  std::iota(g_numbers.begin(), g_numbers.end(), 0);
  all_ways();
  kasane::run([] {
    const auto words = kasane::make_array<int>(kasane::ranks() * kWord, kasane::placement::block);
    g_words = words.get();
    all_ways();
    for (std::uint32_t r = 0; r < kasane::ranks(); ++r) {
      kasane::thread(kasane::near{g_words + r * kWord}, all_ways).join();
      kasane::thread(kasane::near{g_words + r * kWord}, [] { std::thread(all_ways).join(); }).join();
    }
    within_two_functions();
    accesses_what_is_free();
  });
  all_ways();
  std::puts("right");
}
