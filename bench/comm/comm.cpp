// SPDX-License-Identifier: Apache-2.0
// kasane bench comm: the parameters of LogGP (Culler et al.; Alexandrov et al.) as Endo's thesis (2017, §4.6)
// measures them, for read, write, atomics and messages.
//   latency    issue to completion of one operation, the remote memory's change included (2 L + o at both
//              ends)
//   overhead   what the calls that issue take (o);  -cpu: the thread's own CPU time of it
//   rate       operations a second of 1 … 16 requesters with a window each (1/g);  bandwidth: with large ones
//              (1/G)
//   -asleep    the target's process sleeps in the kernel all the while
#include <algorithm>
#include <string>
#include <vector>

#include "comparison.h"
#include "suite.h"

namespace {

using namespace kasane::bench;

struct Options : SuiteOptions {
  Options() {
    threads = {1, 2, 4, 8, 16};
    sizes = {4096, 65536, 1 << 20};
  }
};

void add(CommandLine& line, Options& options) {
  line.names("operations", {"read", "write", "atomic", "request", "send"},
             "  read, write\n  atomic    fetch-and-add of 8 bytes\n  request   a message and its answer\n  "
             "send      messages\n");
  line.names("measures", {"latency", "overhead", "cpu", "rate", "bandwidth", "asleep"},
             "  latency    from issue to completion\n  overhead   of the calls that issue; cpu: in processor "
             "time\n  rate, bandwidth\n  asleep     latency while the target sleeps\n");
  add_suite_options(line, options,
                    {.threads = "requesters, for rates and overheads",
                     .sizes = "bytes of an operation, for bandwidths (all else is 8 B)",
                     .over = "memory, tcp (the loopback network; up to 2 requesters), or both"});
}

/// Everything that is measured between two ranks over one kind of connection.
class Suite {
 public:
  Suite(const CommandLine& line, const Options& options, Over over, const std::vector<System>& systems,
        Report& report)
      : line_(line),
        over_(over),
        report_(report),
        threads_(options.threads),
        sizes_(options.sizes),
        suffix_(over == Over::tcp ? "-tcp" : ""),
        comparison_(systems, lanes(), *std::max_element(sizes_.begin(), sizes_.end()), effort(line, over),
                    report) {}

  void run() {
    for (const Op op : {Op::read, Op::write, Op::atomic, Op::request, Op::send}) {
      if (!line_.wants(name_of(op))) continue;
      for (const unsigned n : threads_) run(op, n);
      if (op == Op::read || op == Op::write) {
        for (const std::uint64_t bytes : sizes_) bandwidth(op, bytes);
      }
      if (op == Op::read && line_.wants("asleep")) asleep(op);
    }
  }

 private:
  static Effort effort(const CommandLine& line, Over over) {
    Effort effort;
    effort.repetitions = line.repetitions();
    effort.sample_seconds = line.quick() ? 0.004 : over == Over::tcp ? 0.02 : 0.01;
    return effort;
  }

  unsigned lanes() {
    if (line_.quick() || over_ == Over::tcp) std::erase_if(threads_, [](unsigned n) { return n > 2; });
    if (line_.quick() && sizes_.size() > 1) sizes_ = {sizes_.back()};
    if (threads_.empty()) threads_ = {1};
    return *std::max_element(threads_.begin(), threads_.end());
  }

  void run(Op op, unsigned threads) {
    const std::string name(name_of(op));
    // A send has no completion of its own: only what issuing costs, and how many get through.
    if (threads == 1 && op != Op::send && line_.wants("latency"))
      sample(op, Measure::latency, {threads, 8}, name + "-latency", "us");
    if (line_.wants("overhead")) sample(op, Measure::overhead, {threads, 8}, name + "-overhead", "us");
    if (line_.wants("cpu") && (op == Op::read || op == Op::write))
      sample(op, Measure::cpu, {threads, 8}, name + "-overhead-cpu", "us");
    if (line_.wants("rate")) sample(op, Measure::rate, {threads, 8}, name + "-rate", "M/s");
  }

  void bandwidth(Op op, std::uint64_t bytes) {
    if (line_.wants("bandwidth"))
      sample(op, Measure::rate, {1, bytes}, std::string(name_of(op)) + "-bandwidth", "MB/s");
  }

  [[nodiscard]] bool target_works(const System& system, Op op) const {
    return system.target_works || op == Op::request || op == Op::send;
  }

  static double in_unit(const std::string& unit, double seconds, Point point) {
    if (unit == "us") return 1e6 * seconds;
    if (unit == "M/s") return 1e-6 * point.threads / seconds;
    return 1e-6 * point.threads * static_cast<double>(point.bytes) / seconds;
  }

  void sample(Op op, Measure measure, Point point, const std::string& case_name, const std::string& unit) {
    const std::string what = case_name + suffix_ + ", " + std::to_string(point.threads) + " requesters, " +
                             std::to_string(point.bytes) + " bytes";
    const auto ask = [&](Comparison::Entry& entry, std::uint64_t iterations) {
      // Issuing is timed, waiting is not, and may take a thousand times as long.
      if (measure == Measure::overhead || measure == Measure::cpu)
        iterations = std::min<std::uint64_t>(iterations, line_.quick() ? 1024 : 8192);
      // A target that need not work sleeps: its core is free for the requesters.
      return entry.pair->alone(order(op, measure, point, iterations), target_works(entry.system, op),
                               comparison_.effort().limit, std::chrono::seconds(5));
    };
    comparison_.sample(what, nullptr, ask, [&](const System& system, double seconds) {
      report_.add(case_name + suffix_, unit, system.name, point, in_unit(unit, seconds, point));
    });
  }

  /// This is also asked of systems whose targets have to work: their target is woken after half a second, and
  /// they get a note instead of a number.
  void asleep(Op op) {
    const std::string case_name = std::string(name_of(op)) + "-latency-asleep" + suffix_;
    const auto ask = [&](Comparison::Entry& entry, std::uint64_t iterations) {
      bool helped = false;
      const auto limit = comparison_.effort().limit;
      Answer answer = entry.pair->alone(order(op, Measure::latency, {1, 8}, iterations), false, limit,
                                        std::chrono::milliseconds(500), &helped);
      if (answer.ok() && helped) answer = {Answer::Kind::unsupported, 0, ""};
      if (helped)
        report_.note(entry.system.name + ": " + case_name + ": nothing arrives while the target sleeps");
      return answer;
    };
    comparison_.sample(case_name, nullptr, ask, [&](const System& system, double seconds) {
      report_.add(case_name, "us", system.name, {1, 8}, 1e6 * seconds);
    });
  }

  static Order order(Op op, Measure measure, Point point, std::uint64_t iterations) {
    Order order;
    order.task = Task::operate;
    order.op = op;
    order.measure = measure;
    order.threads = point.threads;
    order.bytes = point.bytes;
    order.iterations = iterations;
    return order;
  }

  const CommandLine& line_;
  Over over_;
  Report& report_;
  std::vector<unsigned> threads_;
  std::vector<std::uint64_t> sizes_;
  std::string suffix_;
  Comparison comparison_;
};

}  // namespace

int main(int argc, char** argv) {
  CommandLine line("comm", "fewer requesters, sizes and repetitions: about a minute");
  Options options;
  add(line, options);
  if (const auto status = line.parse(argc, argv)) return *status;
  return run_suite("comm", line, options, [&](Over over, const std::vector<System>& systems, Report& report) {
    Suite(line, options, over, systems, report).run();
  });
}
