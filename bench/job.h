// SPDX-License-Identifier: Apache-2.0
// The jobs in which a suite measures: --jobs 1x1,1x2,2x1.
#pragma once

#include <cstdio>
#include <optional>
#include <string>
#include <vector>

namespace kasane::bench {

struct Job {
  unsigned ranks, workers;  ///< workers: of a rank
  [[nodiscard]] unsigned threads() const { return ranks * workers; }
};

/// Empty: the first text that is none was told on standard error, as `suite` ("kasane bench bfs") tells what
/// it refuses.
inline std::optional<std::vector<Job>> parse_jobs(const std::vector<std::string>& texts, const char* suite) {
  std::vector<Job> jobs;
  for (const std::string& text : texts) {
    unsigned ranks = 0, workers = 0;
    int used = 0;
    if (std::sscanf(text.c_str(), "%4ux%4u%n", &ranks, &workers, &used) != 2 ||
        used != static_cast<int>(text.size()) || ranks == 0 || workers == 0 || ranks > 1024 ||
        workers > 1024) {
      std::fprintf(stderr, "kasane: --jobs: %s is not RANKSxWORKERS, such as 2x1\nkasane: see %s --help\n",
                   text.c_str(), suite);
      return std::nullopt;
    }
    jobs.push_back({ranks, workers});
  }
  return jobs;
}

}  // namespace kasane::bench
