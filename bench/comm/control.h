// SPDX-License-Identifier: Apache-2.0
// A player's connection to the harness: an abstract Unix socket, one connection a rank, named by the
// environment so that it also passes through mpirun. Between requests both ranks sleep in next(): an idle
// player costs no cycle of the core on which another one is timed.
//
// Thread safety: one thread (the player's first); fd() may be watched for the harness's end.
#pragma once

#include <optional>
#include <string>

namespace kasane::bench {

class Control {
 public:
  static constexpr const char* kSocketVariable = "KASANE_BENCH_SOCKET";
  /// for systems without a launcher of their own
  static constexpr const char* kRankVariable = "KASANE_BENCH_RANK";
  /// how many threads will be asked for at most
  static constexpr const char* kLanesVariable = "KASANE_BENCH_LANES";
  static constexpr const char* kBytesVariable = "KASANE_BENCH_BYTES";  ///< and what size

  /// Connects as rank and says so. Throws std::system_error if there is no harness.
  explicit Control(unsigned rank);
  ~Control();
  Control(const Control&) = delete;
  Control& operator=(const Control&) = delete;

  /// The other rank's bytes for ours, through the harness: addresses and keys of systems that have no
  /// bootstrap. Both ranks call it equally often.
  [[nodiscard]] std::string exchange(const std::string& mine);
  /// The harness's next line; nothing: it has gone.
  [[nodiscard]] std::optional<std::string> next();
  void answer(const std::string& line) const;
  [[nodiscard]] int fd() const noexcept { return fd_; }

  /// A number of the environment, or otherwise.
  [[nodiscard]] static unsigned long number(const char* variable, unsigned long otherwise);

 private:
  int fd_;
  std::string pending_;  ///< read, not yet a whole line
};

}  // namespace kasane::bench
