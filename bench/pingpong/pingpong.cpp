// SPDX-License-Identifier: Apache-2.0
// kasane bench pingpong: the multi-threaded PingPong of Odajima, Lee and Sato ("Performance comparison of
// communication libraries in multi-threaded programs", 2019): each thread of rank 0 writes data, then a flag,
// into rank 1's memory; the partner thread there polls the flag and answers alike.
//   latency: half of a round trip, up to 4 KiB.   bandwidth: what all threads moved, both directions, in the
//            time.
#include <algorithm>
#include <string>
#include <vector>

#include "comm/comparison.h"
#include "comm/suite.h"

namespace {

using namespace kasane::bench;

struct Options : SuiteOptions {
  Options() { threads = {1, 2, 4, 8}; }
  bool together = false;
};

std::vector<std::uint64_t> paper_sizes() {
  std::vector<std::uint64_t> sizes{kTogetherBytes};
  for (std::uint64_t bytes = 8; bytes <= 4 << 20; bytes *= 2) sizes.push_back(bytes);
  std::sort(sizes.begin(), sizes.end());
  return sizes;
}

void add(CommandLine& line, Options& options) {
  add_suite_options(line, options,
                    {.threads = "threads of each rank",
                     .sizes = "bytes of a message (default: 8 B to 4 MiB by powers of two, and 56)",
                     .over = "memory, tcp (the loopback network; fewer threads and sizes), or both"});
  line.own().toggle("--one-line", options.together,
                    "let the peers too put data and flag into one cache line where they fit (56 B), as "
                    "Kasane always does: a case of its own");
}

Order order_of(Point point, bool together) {
  Order order;
  order.task = Task::pingpong;
  order.threads = point.threads;
  order.bytes = point.bytes;
  order.together = together;
  return order;
}

/// Whether this system puts data and flag into one line at this point.
bool in_one_line(const System& system, Point point, bool all_do) {
  return point.bytes <= kTogetherBytes && system.one_sided && (all_do || system.ours);
}

void play_point(Comparison& comparison, Report& report, Point point, const std::string& suffix,
                bool all_in_one_line) {
  const std::string what = "pingpong" + suffix + ", " + std::to_string(point.threads) + " threads, " +
                           std::to_string(point.bytes) + " bytes";
  const auto limit = comparison.effort().limit;
  const auto check = [&](Comparison::Entry& entry) {
    if (all_in_one_line && !entry.system.one_sided)
      return Answer{Answer::Kind::unsupported, 0, "has no flag"};
    Order order = order_of(point, in_one_line(entry.system, point, all_in_one_line));
    order.verify = true;
    order.iterations = std::clamp<std::uint64_t>((1 << 20) / point.bytes, 4, 100);
    return entry.pair->together(order, limit);
  };
  const auto ask = [&](Comparison::Entry& entry, std::uint64_t iterations) {
    Order order = order_of(point, in_one_line(entry.system, point, all_in_one_line));
    order.iterations = iterations;
    return entry.pair->together(order, limit);
  };
  comparison.sample(what, check, ask, [&](const System& system, double seconds) {
    if (point.bytes <= 4096)
      report.add("pingpong-latency" + suffix, "us", system.name, point, 1e6 * seconds / 2);
    if (!all_in_one_line) {
      report.add("pingpong-bandwidth" + suffix, "MB/s", system.name, point,
                 1e-6 * 2 * static_cast<double>(point.bytes) * point.threads / seconds);
    }
  });
}

void play_over(const CommandLine& line, const Options& options, Over over, const std::vector<System>& systems,
               Report& report) {
  const bool memory = over == Over::memory;
  std::vector<unsigned> threads = options.threads;
  std::vector<std::uint64_t> sizes = options.sizes;
  if (sizes.empty())
    sizes = line.quick() ? std::vector<std::uint64_t>{8, 56, 1024, 65536, 1 << 20} : paper_sizes();
  if (line.quick()) std::erase_if(threads, [](unsigned n) { return n > 2; });
  if (!memory) {
    // A round trip takes a hundred times as long; the host's scheduler is most of it as soon as threads share
    // cores.
    std::erase_if(threads, [](unsigned n) { return n > 2; });
    if (options.sizes.empty())
      sizes = line.quick() ? std::vector<std::uint64_t>{8, 4096}
                           : std::vector<std::uint64_t>{8, 64, 1024, 4096, 65536, 1 << 20};
  }
  if (threads.empty()) return;
  Effort effort;
  effort.repetitions = line.repetitions();
  effort.sample_seconds = line.quick() ? 0.005 : memory ? 0.015 : 0.03;
  Comparison comparison(systems, *std::max_element(threads.begin(), threads.end()),
                        *std::max_element(sizes.begin(), sizes.end()), effort, report);
  for (const unsigned n : threads) {
    for (const std::uint64_t bytes : sizes)
      play_point(comparison, report, {n, bytes}, memory ? "" : "-tcp", false);
    if (!options.together || !memory) continue;
    for (const std::uint64_t bytes : sizes) {
      if (bytes <= kTogetherBytes) play_point(comparison, report, {n, bytes}, "-one-line", true);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine line("pingpong", "fewer threads, sizes and repetitions: about a minute");
  Options options;
  add(line, options);
  if (const auto status = line.parse(argc, argv)) return *status;
  return run_suite("pingpong", line, options,
                   [&](Over over, const std::vector<System>& systems, Report& report) {
                     play_over(line, options, over, systems, report);
                   });
}
