// SPDX-License-Identifier: Apache-2.0
// The two ranks of one system, as the harness sees them: started once, given one order at a time, asleep in
// between, ended in all cases.
//
//   starting ──both ranks say ready──▶ idle ──ask──▶ playing ──answers──▶ idle ──quit──▶ ended
//      └──────────── deadline, hang-up, a process that ends ───────────┴──▶ lost (killed; answers are "lost")
//
// A system that hangs costs one deadline. Closing the sockets ends its ranks (player_threads.h), mpirun's
// too; signals come after that.
//
// Thread safety: one thread. Invariant: a lost pair has no processes.
#pragma once

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "order.h"

namespace kasane::bench {

struct Launch {
  std::vector<std::string> command;
  /// The command starts both ranks (mpirun, kasane run); else it is started twice, with its rank in the
  /// environment.
  bool starts_both = false;
  std::vector<std::pair<std::string, std::string>> environment;
};

struct Answer {
  enum class Kind { ok, broken, unsupported, lost };
  Kind kind = Kind::lost;
  double seconds = 0;
  std::string text;  ///< why not
  [[nodiscard]] bool ok() const noexcept { return kind == Kind::ok; }
};

class Pair {
 public:
  using Seconds = std::chrono::seconds;

  /// Starts both ranks, for up to lanes threads and messages of max_bytes. If that fails the pair is lost,
  /// and why() says why.
  Pair(std::string name, const Launch& launch, unsigned lanes, std::uint64_t max_bytes,
       Seconds limit = Seconds(30));
  ~Pair();
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] bool lost() const noexcept { return lost_; }
  [[nodiscard]] const std::string& why() const noexcept { return why_; }

  /// Both ranks do it; the answer is rank 0's, or what either complains of.
  Answer together(const Order&, Seconds limit);
  /// Rank 0 does it. attended: rank 1 makes progress meanwhile; else rank 1 sleeps, and if there is no answer
  /// in grace, it is woken to serve and *helped is set.
  Answer alone(Order, bool attended, Seconds limit,
               std::chrono::milliseconds grace = std::chrono::milliseconds(500), bool* helped = nullptr);

 private:
  using Clock = std::chrono::steady_clock;
  struct Line {
    int fd = -1;
    std::string pending;
  };

  void start(const Launch&, unsigned lanes, std::uint64_t max_bytes);
  [[nodiscard]] bool meet(int listener, Clock::time_point deadline);
  [[nodiscard]] bool introduce(Clock::time_point deadline);
  void say(unsigned rank, const std::string& line);
  /// The rank whose next line is there first; 0 if none comes in time.
  [[nodiscard]] unsigned first_to_speak(Clock::time_point deadline);
  /// Empty: the deadline passed, or the rank hung up (then the pair is lost).
  [[nodiscard]] std::string hear(unsigned rank, Clock::time_point deadline);
  [[nodiscard]] Answer understand(const std::string& line);
  Answer lose(const std::string& why);
  void quit();     ///< asks both to end, and sees that they do
  void hang_up();  ///< closes both lines and gives the processes time to end
  void kill_who_stays();
  [[nodiscard]] bool ended_early() const;
  [[nodiscard]] std::string last_words() const;  ///< the end of what the ranks printed

  std::string name_, why_;
  std::string socket_name_;
  bool lost_ = false;
  Line ranks_[2];
  std::vector<int> processes_;
  int output_ = -1;  ///< memfd: what the ranks print, for last_words()
};

}  // namespace kasane::bench
