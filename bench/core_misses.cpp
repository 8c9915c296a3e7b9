// SPDX-License-Identifier: Apache-2.0
#include "core_misses.h"

#include <array>
#include <stdexcept>

#include "comm/systems.h"
#include "comm/window.h"
#include "median.h"
#include "run_app.h"

namespace kasane::bench {
namespace {

constexpr std::uint64_t kBytes = 4096;
constexpr std::array<unsigned, 2> kTogether = {1, Window::kWindow};

struct Network {
  const char* name;
  Over over;
  const char* environment;
};
constexpr Network kNetworks[] = {{"load-miss", Over::memory, "UCX_TLS=sm,self"},
                                 {"load-miss-tcp", Over::tcp, "UCX_TLS=tcp,self UCX_NET_DEVICES=lo"}};

/// Microseconds a block, by kTogether.
using Samples = std::array<std::vector<double>, kTogether.size()>;

void play_kasane(const Network& network, const std::string& command, const std::string& players,
                 std::size_t blocks, Samples& samples) {
  std::string line = std::string(network.environment) + " timeout 120 " + command +
                     " run -n 2 --workers 1 --transport ucx --debug relocate=off -- " + players +
                     "/player-misses " + std::to_string(blocks) + " 3";
  std::vector<std::string> figures;
  for (const unsigned n : kTogether) {
    line += " " + std::to_string(n);
    figures.push_back("/threads-" + std::to_string(n));
  }
  const auto values = run_app(line, figures);
  const std::size_t each = values.size() / kTogether.size();
  for (std::size_t i = 0; i < values.size(); ++i) samples[i / each].push_back(values[i]);
}

void play_ucx(const Network& network, const std::string& players, std::size_t blocks, Samples& samples) {
  const auto system = choose(installed_systems(players + "/", network.over), {"ucx-own"}).at(0);
  Pair pair(system.name, system.launch, 1, Window::kWindow * kBytes);
  for (std::size_t i = 0; i < kTogether.size(); ++i) {
    Order order;
    order.task = Task::operate;
    order.measure = kTogether[i] == 1 ? Measure::latency : Measure::rate;
    order.bytes = kBytes;
    order.iterations = blocks;
    for (int r = 0; r < 3; ++r) {
      const Answer answer = pair.alone(order, true, Pair::Seconds(60));
      if (!answer.ok()) throw std::runtime_error("ucx-own: " + answer.text);
      samples[i].push_back(answer.seconds * 1e6);
    }
  }
}

}  // namespace

std::vector<Row> core_misses(bool quick, std::optional<unsigned> asked, const std::string& command,
                             const std::string& players) {
  const unsigned rounds = asked.value_or(quick ? 1 : 5);
  const std::size_t blocks = quick ? 512 : 4096;
  std::vector<Row> rows;
  for (const Network& network : kNetworks) {
    Samples kasane, ucx;
    for (unsigned round = 0; round < rounds; ++round) {
      play_kasane(network, command, players, blocks, kasane);
      play_ucx(network, players, blocks, ucx);
    }
    for (std::size_t i = 0; i < kTogether.size(); ++i) {
      const auto row = [&](const char* system, const std::vector<double>& values) {
        return Row{"core",
                   network.name,
                   system,
                   2,
                   kTogether[i],
                   kBytes,
                   median(values),
                   "us",
                   static_cast<unsigned>(values.size())};
      };
      rows.push_back(row("kasane", kasane[i]));
      rows.back().more.push_back({"ratio", median(ucx[i]) / median(kasane[i])});
      rows.push_back(row("ucx-own", ucx[i]));
    }
  }
  return rows;
}

}  // namespace kasane::bench
