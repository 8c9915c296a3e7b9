// SPDX-License-Identifier: Apache-2.0
#include "comparison.h"

#include <signal.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace kasane::bench {
namespace {

volatile sig_atomic_t stopped = 0;

/// Spinning pollers that share their cores with strangers measure the strangers.
void note_load(Report& report) {
  double load = 0;
  if (::getloadavg(&load, 1) != 1 || load < 0.5) return;
  char line[120];
  std::snprintf(line, sizeof line,
                "the machine was busy when this began (load average %.1f): do not trust these numbers", load);
  report.note(line);
  std::fprintf(stderr, "%s\n", line);
}

}  // namespace

void stop_on_signals() {
  struct sigaction action{};
  action.sa_handler = [](int) { stopped = 1; };
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
}

std::map<std::string, Role> roles_of(const std::vector<System>& systems) {
  std::map<std::string, Role> roles;
  for (const System& s : systems) roles[s.name] = s.ours ? Role::ours : s.limit ? Role::limit : Role::peer;
  return roles;
}

Comparison::Comparison(std::vector<System> systems, unsigned lanes, std::uint64_t max_bytes, Effort effort,
                       Report& report)
    : effort_(effort), report_(report) {
  note_load(report_);
  for (System& system : systems) {
    if (stopped != 0) return;
    std::fprintf(stderr, "starting %s …\n", system.name.c_str());
    auto pair = std::make_unique<Pair>(system.name, system.launch, lanes, max_bytes);
    if (pair->lost()) {
      report_.note(system.name + " left out: " + pair->why());
      std::fprintf(stderr, "%s left out: %s\n", system.name.c_str(), pair->why().c_str());
    } else {
      entries_.push_back({std::move(system), std::move(pair)});
    }
  }
}

Comparison::~Comparison() = default;

bool Comparison::keep(Entry& entry, const Answer& answer, const std::string& what) {
  if (answer.ok()) return true;
  if (answer.kind == Answer::Kind::unsupported) return false;  // as expected, not worth a note
  const char* kind = answer.kind == Answer::Kind::broken ? "delivers wrong data" : "given up";
  const std::string line = entry.system.name + ", " + what + ": " + kind + ": " + answer.text;
  report_.note(line);
  std::fprintf(stderr, "%s\n", line.c_str());
  return false;
}

std::uint64_t Comparison::calibrate(Entry& entry, const Ask& ask, const std::string& what) {
  std::uint64_t iterations = 16;
  // The first guess is cold, and each may be a hundred times too small: three steps reach what the fastest
  // system needs.
  for (int step = 0; step < 3; ++step) {
    const Answer answer = ask(entry, iterations);
    if (!keep(entry, answer, what)) return 0;
    const double each = std::max(answer.seconds, 1e-10);
    const auto wanted = static_cast<std::uint64_t>(effort_.sample_seconds / each);
    const std::uint64_t next = std::clamp<std::uint64_t>(wanted, 8, 200 * iterations);
    if (next <= 2 * iterations && 2 * next >= iterations) return next;
    iterations = next;
  }
  return iterations;
}

void Comparison::sample(const std::string& what, const std::function<Answer(Entry&)>& check, const Ask& ask,
                        const Take& take) {
  if (stopped != 0) return report_.note("stopped by a signal: what came later is missing");
  std::fprintf(stderr, "%s …\n", what.c_str());
  struct Player {
    Entry* entry;
    std::uint64_t iterations;
  };
  std::vector<Player> players;
  for (Entry& entry : entries_) {
    if (entry.pair->lost() || stopped != 0) continue;
    if (check && !keep(entry, check(entry), what)) continue;
    if (const std::uint64_t iterations = calibrate(entry, ask, what); iterations != 0)
      players.push_back({&entry, iterations});
  }
  for (unsigned r = 0; r < effort_.repetitions; ++r) {
    // Each repetition begins with another system: none always follows the same neighbour's cache.
    if (!players.empty()) std::rotate(players.begin(), players.begin() + 1, players.end());
    for (Player& player : players) {
      if (player.entry->pair->lost() || stopped != 0) continue;
      const Answer answer = ask(*player.entry, player.iterations);
      if (keep(*player.entry, answer, what)) take(player.entry->system, answer.seconds);
    }
  }
}

}  // namespace kasane::bench
