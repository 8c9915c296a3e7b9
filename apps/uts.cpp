// SPDX-License-Identifier: Apache-2.0
// Unbalanced Tree Search: a thread for every node of a tree whose subtrees differ wildly in size. Measures
// work stealing.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/command_line.h"
#include "common/parallel.h"
#include "common/patterns.h"
#include "common/progress.h"
#include "common/report.h"
#include "uts/tree.h"

namespace {

std::string text_of(const apps::TreeCount& c) {
  return std::to_string(c.nodes) + " nodes, " + std::to_string(c.leaves) + " leaves, depth " +
         std::to_string(c.depth);
}

const apps::PublishedTree* published(const apps::TreeShape& shape) {
  const auto* const found = std::find_if(apps::kPublishedTrees.begin(), apps::kPublishedTrees.end(),
                                         [&](const auto& t) { return t.shape == shape; });
  return found != apps::kPublishedTrees.end() ? found : nullptr;
}

/// The tree that the command line asks for, by name or by its parameters. Empty and an exit status: it asks
/// for none.
std::optional<apps::TreeShape> shape_from(apps::CommandLine& line, int argc, char** argv, int& status) {
  std::string name, family = "geometric";
  std::vector<std::string> names;
  for (const auto& t : apps::kPublishedTrees) names.emplace_back(t.name);
  std::uint64_t b0 = 4, depth = 10, m = 8;
  double q = 0.12;
  line.choice("--tree", name, names, "A published tree; the options below and --seed describe others");
  line.choice("--family", family, {"geometric", "binomial"}, "How the numbers of children are distributed");
  line.number("-b,--b0", b0, "Mean number of children; binomial: the root's", 1, 1'000'000);
  line.number("-d,--depth", depth, "Geometric: depth limit", 1, 30);
  line.number("-m,--m", m, "Binomial: children of a node that has any", 1, 100);
  line.real("-q,--q", q, "Binomial: probability that a node has children; m q < 1", 0, 1);
  for (const char* other : {"--family", "--b0", "--depth", "--m", "--q", "--seed"})
    line.exclusive("--tree", other);
  if (const auto end = line.parse(argc, argv)) {
    status = *end;
    return std::nullopt;
  }
  for (const auto& t : apps::kPublishedTrees)
    if (t.name == name) return t.shape;
  const auto seed = static_cast<std::uint32_t>(line.common().seed);
  if (family == "geometric")
    return apps::TreeShape{apps::TreeFamily::geometric,       seed, static_cast<double>(b0),
                           static_cast<std::uint32_t>(depth), 0,    0};
  if (static_cast<double>(m) * q >= 1)
    throw std::invalid_argument("m q must be less than 1, or the tree has no end");
  return apps::TreeShape{apps::TreeFamily::binomial,    seed, static_cast<double>(b0), 0,
                         static_cast<std::uint32_t>(m), q};
}

void describe(apps::Report& report, const apps::TreeShape& shape, const apps::PublishedTree* known) {
  if (known != nullptr) report.parameter("tree", std::string(known->name));
  report.parameter("b0", static_cast<std::uint64_t>(shape.b0));
  report.parameter("seed", shape.seed);
  if (shape.family == apps::TreeFamily::geometric) {
    report.parameter("depth", shape.depth);
  } else {
    report.parameter("m", shape.m);
    report.parameter("q", shape.q);
  }
}

int run(int argc, char** argv) {
  apps::CommandLine line("uts",
                         "Unbalanced Tree Search, a thread for every child of a node; the default is tree T1 "
                         "(geometric, 4 130 071 nodes)");
  int status = 0;
  const auto wanted = shape_from(line, argc, argv, status);
  if (!wanted) return status;
  const apps::TreeShape shape = *wanted;
  const apps::PublishedTree* const known = published(shape);
  apps::Report report(line);
  describe(report, shape, known);

  // A tree without a published count: the sequential search gives it.
  apps::TreeCount expected, count;
  if (known != nullptr) expected = known->count;
  if (known == nullptr || line.common().serial) {
    report.measure_serial([&] { count = apps::search<apps::Serial>(shape, apps::root_of(shape)); });
    if (known != nullptr)
      report.verify(count == expected, "the sequential elision found " + text_of(count));
    else
      expected = count;
  }
  {
    apps::Progress progress("uts", line.common().repeat * (expected.leaves - 1), line.common().quiet);
    for (std::uint64_t r = 0; r < line.common().repeat; ++r) {
      report.measure([&] {
        count = kasane::run([shape] { return apps::search<apps::Parallel>(shape, apps::root_of(shape)); });
      });
      report.verify(count == expected, "found " + text_of(count) + "; there are " + text_of(expected));
    }
  }
  report.result("nodes", count.nodes);
  report.result("leaves", count.leaves);
  report.result("depth", count.depth);
  return report.finish();
}

}  // namespace

int main(int argc, char** argv) {
  return apps::guarded("uts", [&] { return run(argc, argv); });
}
