// SPDX-License-Identifier: Apache-2.0
#include "diagnostics/thread_reports.h"

#include <time.h>

#include <algorithm>

#include "base/clock.h"

namespace kasane::diagnostics {

bool ThreadReports::runs(std::uint32_t rank) const {
  return status_.of(Rank{rank}).phase.load(std::memory_order_acquire) == Phase::running;
}

std::uint64_t ThreadReports::quiet_since() const {
  std::uint64_t last = 0;
  for (std::uint32_t r = 0; r < ranks_; ++r) {
    // acquire: a rank that is quiet stored that after it had looked
    const std::uint64_t since = status_.threads(Rank{r}).quiet_since_ns.load(std::memory_order_acquire);
    if (since == 0 || !runs(r)) return 0;
    last = std::max(last, since);
  }
  return last;
}

void ThreadReports::step(std::uint32_t which, std::vector<bool>& answers) {
  const std::uint32_t asked = 4 * round_ + which;
  for (std::uint32_t r = 0; r < ranks_; ++r)
    // release: the answers to the step before are complete
    if (answers[r]) status_.threads(Rank{r}).asked.store(asked, std::memory_order_release);
  const std::uint64_t deadline = now_ns() + kAnswerNs;
  const auto missing = [&](std::uint32_t r) {
    // acquire: the rank's answer is complete before `done`
    return answers[r] && status_.threads(Rank{r}).done.load(std::memory_order_acquire) != asked;
  };
  for (std::uint32_t r = 0; r < ranks_; ++r) {
    while (missing(r) && runs(r) && now_ns() < deadline) {
      const timespec moment{0, 2'000'000};
      ::nanosleep(&moment, nullptr);
    }
    if (missing(r)) answers[r] = false;
  }
}

std::string ThreadReports::ask(std::uint32_t& doubt, bool& all) {
  std::vector<bool> answers(ranks_);
  for (std::uint32_t r = 0; r < ranks_; ++r) answers[r] = runs(r);
  ++round_;
  step(1, answers);
  step(2, answers);
  std::string text;
  for (std::uint32_t r = 0; r < ranks_; ++r) {
    text += "rank " + std::to_string(r);
    if (!answers[r]) {
      all = all && !runs(r);
      text += runs(r) ? " does not answer\n" : " does not run threads now\n";
      continue;
    }
    const ThreadReport& report = status_.threads(Rank{r});
    doubt |= report.doubt.load(std::memory_order_relaxed);  // relaxed: ordered by done
    const std::size_t bytes = std::min<std::size_t>(report.text_bytes, sizeof report.text);
    text += bytes == 0 ? ": no threads\n" : ":\n";
    text.append(report.text, bytes);
  }
  return text;
}

ThreadReports::Blocked ThreadReports::look() {
  const std::uint64_t since = quiet_since();
  if (since == 0 || since == reported_since_ns_ ||
      now_ns() - std::max(since, stopped_until_ns_) < blocked_ns_)
    return {};
  Blocked blocked;
  bool all = true;
  blocked.report = ask(blocked.doubt, all);
  // A thread has run meanwhile, or a rank is stopped, or has no time: it is asked again.
  if (!all || quiet_since() != since) return {};
  reported_since_ns_ = since;
  return blocked;
}

std::string doubt_text(std::uint32_t doubt) {
  std::string text;
  const auto add = [&](std::uint32_t bit, const char* what) {
    if ((doubt & bit) == 0) return;
    text.append(text.empty() ? "" : ", ").append(what);
  };
  add(kDoubtOsThreads, "has OS threads of its own");
  add(kDoubtHandlers, "handles signals");
  add(kDoubtTimer, "has set a timer");
  add(kDoubtMain, "runs main on other ranks");
  return text;
}

}  // namespace kasane::diagnostics
