// SPDX-License-Identifier: Apache-2.0
// kasane bench scale: where programs stop scaling, on a simulated cluster (docs/design/scaling.md). Each
// program runs as a script over the protocols that ship; times are those of the network that --network names.
// Rows: the parallel efficiency, with the time's parts, messages and bytes as figures beside.
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "command_line.h"
#include "gas/regions.h"
#include "rows.h"
#include "scale/cluster.h"
#include "scale/programs.h"

namespace {

using namespace kasane;
using bench::Row;
using comm::sim::Timing;

Timing network(const std::string& name) {
  if (name == "rdma") return Timing::rdma();
  if (name == "tcp") return Timing::tcp();
  std::ifstream in(name);
  if (!in) throw std::runtime_error("--network: no file " + name + ", and neither rdma nor tcp");
  Timing t;
  try {
    const auto json = nlohmann::json::parse(in);
    t = json.value("one_sided", true) ? Timing::rdma() : Timing::tcp();
    const auto link = [&](const char* key, comm::sim::Link& l) {
      if (!json.contains(key)) return;
      const auto& given = json.at(key);
      l.latency_ns = given.value("latency_ns", l.latency_ns);
      l.overhead_ns = given.value("overhead_ns", l.overhead_ns);
      l.message_overhead_ns = given.value("message_overhead_ns", l.message_overhead_ns);
      l.gap_ns = given.value("gap_ns", l.gap_ns);
      l.ns_per_byte = given.value("ns_per_byte", l.ns_per_byte);
    };
    link("in_host", t.in_host);
    link("between_hosts", t.between_hosts);
    t.ranks_per_host = std::max(1u, json.value("ranks_per_host", t.ranks_per_host));
    t.hosts_per_rack = std::max(1u, json.value("hosts_per_rack", t.hosts_per_rack));
    t.between_racks_ns = json.value("between_racks_ns", t.between_racks_ns);
    t.uplink_ns_per_byte = json.value("uplink_ns_per_byte", t.uplink_ns_per_byte);
    t.cores = json.value("cores", t.cores);
    t.wake_ns = json.value("wake_ns", t.wake_ns);
    t.fault_ns = json.value("fault_ns", t.fault_ns);
  } catch (const nlohmann::json::exception& e) {
    throw std::runtime_error("--network " + name + ": " + e.what());
  }
  return t;
}

struct Spread {
  double least, median, most;
};
Spread spread(std::vector<double> values) {
  std::ranges::sort(values);
  return {values.front(), values[values.size() / 2], values.back()};
}

Row run(const scale::Script& script, const std::string& name, const Timing& timing, std::uint32_t ranks,
        bool quick, std::FILE* table) {
  scale::Cluster cluster({.ranks = ranks,
                          .timing = timing,
                          .heap_bytes = std::max(script.together, script.heap_each * ranks) + (2 << 20),
                          .page_bytes = script.page_bytes});
  const auto ran = script.run(cluster, quick);
  if (!ran) throw std::runtime_error(std::string(script.name) + ": " + ran.error().message);
  const auto elapsed = static_cast<double>(cluster.elapsed_ns());
  const double efficiency = static_cast<double>(*ran) / elapsed / ranks;
  Row row{"scale", script.name, name, ranks, ranks, 0, efficiency, "efficiency", 1};
  row.more.push_back({"ms", elapsed / 1e6});
  const std::vector<std::pair<const char*, std::uint64_t scale::Parts::*>> kParts{
      {"compute", &scale::Parts::compute},
      {"misses", &scale::Parts::misses},
      {"transfers", &scale::Parts::transfers},
      {"fences", &scale::Parts::fences},
      {"steals", &scale::Parts::steals},
      {"locks", &scale::Parts::locks},
      {"idle", &scale::Parts::idle}};
  std::string line;
  for (const auto& [part, field] : kParts) {
    std::vector<double> values;
    for (std::uint32_t r = 0; r < ranks; ++r)
      values.push_back(static_cast<double>(cluster.member(r).parts().*field) / 1e6);
    const Spread s = spread(values);
    row.more.push_back({std::string("ms_") + part + "_least", s.least});
    row.more.push_back({std::string("ms_") + part, s.median});
    row.more.push_back({std::string("ms_") + part + "_most", s.most});
    char text[32];
    std::snprintf(text, sizeof text, " %9.3f", s.median);
    line += text;
  }
  std::vector<double> messages, bytes, directory;
  std::uint32_t busiest = 0;
  for (std::uint32_t r = 0; r < ranks; ++r) {
    const auto t = cluster.traffic(r);
    messages.push_back(static_cast<double>(t.messages_in + t.messages_out));
    bytes.push_back(static_cast<double>(t.bytes_in + t.bytes_out));
    directory.push_back(static_cast<double>(t.operations_in[raw(gas::kDirectory)]));
    if (messages[r] > messages[busiest]) busiest = r;
  }
  const Spread m = spread(messages), b = spread(bytes);
  row.more.push_back({"messages", m.median});
  row.more.push_back({"messages_most", m.most});
  row.more.push_back({"traffic_bytes", b.median});
  row.more.push_back({"traffic_bytes_most", b.most});
  row.more.push_back({"busiest", std::uint64_t{busiest}});
  const Spread d = spread(directory);
  row.more.push_back({"directory", d.median});
  row.more.push_back({"directory_most", d.most});
  if (const scale::LockLoad lock = cluster.most_waited_for(); lock.taken != 0) {
    row.more.push_back({"lock_rank", std::uint64_t{raw(lock.name.rank)}});
    row.more.push_back({"lock_taken", lock.taken});
    row.more.push_back({"lock_wait_ms", static_cast<double>(lock.wait_ns) / 1e6});
  }
  row.more.push_back({"chain", std::uint64_t{cluster.longest_chain()}});
  std::fprintf(table, "%-12s %5u %7.3f %10.3f%s %9.0f %9.0f (rank %4u) %6u\n", script.name, ranks, efficiency,
               elapsed / 1e6, line.c_str(), m.median, m.most, busiest, cluster.longest_chain());
  std::fflush(table);
  return row;
}

}  // namespace

int main(int argc, char** argv) {
  // No --repetitions: a simulation does not vary.
  bench::CommandLine line("scale", "smaller programs, on 2 and 4 ranks unless --ranks says otherwise");
  std::vector<std::string> names;
  for (const scale::Script& s : scale::scripts()) names.emplace_back(s.name);
  line.names("programs", names);
  std::vector<std::uint32_t> numbers{2, 4, 16, 64, 256, 1024};
  std::string name = "rdma";
  line.own().numbers("--ranks", numbers, "numbers of ranks", 2, 4096);
  line.own().text("--network", name, "rdma, tcp, or a file of parameters (docs/design/scaling.md)");
  if (const auto status = line.parse(argc, argv)) return *status;
  if (line.quick() && numbers.size() == 6) numbers = {2, 4};
  return bench::or_told("kasane bench scale", [&] {
    const Timing timing = network(name);
    std::FILE* const table = bench::table_file(line.json());
    std::fprintf(table, "%-12s %5s %7s %10s %9s %9s %9s %9s %9s %9s %9s %9s %9s %11s %6s\n", "program",
                 "ranks", "eff.", "ms", "compute", "misses", "transfers", "fences", "steals", "locks", "idle",
                 "messages", "most", "", "chain");
    std::vector<Row> rows;
    for (const scale::Script& script : scale::scripts()) {
      if (!line.wants(script.name)) continue;
      for (const std::uint32_t ranks : numbers)
        rows.push_back(run(script, name, timing, ranks, line.quick(), table));
    }
    write(line.json(), rows);
    return 0;
  });
}
