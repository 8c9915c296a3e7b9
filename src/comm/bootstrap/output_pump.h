// SPDX-License-Identifier: Apache-2.0
// Tagged output: a rank's standard output and error come here through pipes and are written in whole lines,
// each after "[rank] ", so that lines of several ranks never mix.
//
//   rank r ─ pipe ─▶ Source (an unfinished line) ─ whole lines ─▶ Sink (not yet written) ─▶ fd 1 or 2
//
// A slow reader of the job's output must not block the supervisor: a sink is written only as far as poll(2)
// allows, and while much waits there its sources are not read, so that the ranks block, as they would without
// the pump.
//
// Thread safety: one thread, the supervisor's.
// Invariant: bytes leave in the order in which they came from one pipe, and as they were taken from several;
// nothing is dropped unless the sink's reader has closed it.
#pragma once

#include <poll.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "diagnostics/job_status.h"

namespace kasane::comm {

class OutputPump {
 public:
  /// Two pipes a rank, close-on-exec. What is taken of a rank's standard output is counted in its status.
  static Result<OutputPump> create(std::uint32_t ranks, const diagnostics::JobStatus& status);

  /// In the rank's process: connects its standard output and error to its pipes and closes all other ends.
  void become_writer(Rank rank);
  /// In the supervisor: closes the writing ends, so that the pipes end with their ranks.
  void become_reader();

  /// Appends what poll(2) should watch.
  void watch(std::vector<pollfd>& fds) const;
  /// Moves what can be moved without waiting.
  void pump();
  /// Moves everything, waiting for the reader; to be called when no rank is left to write.
  void drain();
  /// Why output was lost, if not because its reader has closed it; empty: nothing was.
  [[nodiscard]] const std::string& lost() const noexcept { return lost_; }

 private:
  struct Source {
    Rank rank;
    std::size_t sink;
    int in = -1, out = -1;
    std::string line;                             ///< the beginning of an unfinished line
    std::atomic<std::uint64_t>* taken = nullptr;  ///< null for standard error, which is not counted
  };
  struct Sink {
    int fd;
    std::string waiting;
    bool gone = false;  ///< the reader closed it
  };

  OutputPump() = default;
  bool read_once(Source& source);
  void take(Source& source, const char* data, std::size_t bytes);
  void finish(Source& source);
  void emit(Sink& sink, Rank rank, std::string_view line);
  static bool writable(const Sink& sink, int timeout_ms);
  void write_once(Sink& sink);

  std::vector<Source> sources_;
  std::string lost_;
  Sink sinks_[2] = {{1, {}, false}, {2, {}, false}};
};

}  // namespace kasane::comm
