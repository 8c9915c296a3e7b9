// SPDX-License-Identifier: Apache-2.0
// Starts a program as a user would, talks to it, and sees what is left of it. Every process of a job is known
// by an environment variable of its own, which the whole family inherits: so "nothing is left" can be tested
// whatever became of parents and groups.
// Thread safety: one thread. The destructor kills what is left, so that a failing test leaves nothing either.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

namespace kasane::launch_test {

struct Outcome {
  bool ended = false;  ///< false: the deadline passed, and it was killed
  int code = -1;       ///< exit code, or 128 + signal
  std::string out, err;
  std::vector<pid_t> left;  ///< processes of the job that were alive a moment after its end
};

inline constexpr std::chrono::seconds kUsualLimit{60};  ///< catches hangs; few jobs here take long

class Job {
 public:
  /// environment: NAME=VALUE, added to ours.
  explicit Job(std::vector<std::string> command, std::vector<std::string> environment = {},
               std::string input = {});
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;
  ~Job();

  [[nodiscard]] pid_t pid() const { return pid_; }
  /// Reads until the standard output has `count` lines that contain `text`; false at the deadline or when it
  /// ends before.
  bool wait_for_output(const std::string& text, int count = 1);
  /// All processes of the job that are alive now.
  [[nodiscard]] std::vector<pid_t> family() const;
  Outcome wait(std::chrono::seconds limit = kUsualLimit);

 private:
  bool read_some(int timeout_ms);
  std::string id_;
  pid_t pid_ = 0;
  int out_ = -1, err_ = -1;
  std::string out_text_, err_text_;
  bool reaped_ = false;
};

/// `kasane run` with these arguments, to its end.
Outcome kasane_run(std::vector<std::string> arguments, std::vector<std::string> environment = {},
                   std::string input = {});
/// The same, still running.
std::vector<std::string> kasane_run_command(std::vector<std::string> arguments);

/// Files of Kasane in /dev/shm, without the folders of UCX: those are of other tests' jobs, too.
int kasane_files_in_dev_shm();

/// How often part occurs in text.
int count_of(const std::string& text, const std::string& part);
/// text without what AddressSanitizer says of itself (that main's stack is not one it knows).
std::string without_sanitizer(const std::string& text);
std::vector<std::string> lines_of(const std::string& text);

}  // namespace kasane::launch_test
