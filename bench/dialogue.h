// SPDX-License-Identifier: Apache-2.0
// A program that answers each line with a line: two of them can take turns within milliseconds, which two
// that are started anew each time cannot.
//
//   Dialogue player("'…/player-stream'");
//   const double seconds = std::stod(player.ask("run ordinary 10"));
//
// Thread safety: one thread. The program ends with its input, when the Dialogue goes.
#pragma once

#include <sys/types.h>

#include <string>

namespace kasane::bench {

class Dialogue {
 public:
  /// Starts the shell command; its standard error is the suite's. Throws std::runtime_error if that fails.
  explicit Dialogue(const std::string& command);
  Dialogue(const Dialogue&) = delete;
  Dialogue& operator=(const Dialogue&) = delete;
  ~Dialogue();

  /// The answer, without the end of its line. Throws std::runtime_error: the program has ended, or has not
  /// answered for five minutes, or its answer begins with "error", with what follows.
  std::string ask(const std::string& request);

 private:
  std::string command_;
  std::string unread_;
  int to_ = -1, from_ = -1;
  pid_t program_ = -1;
};

}  // namespace kasane::bench
