// SPDX-License-Identifier: Apache-2.0
#include "order.h"

#include <array>
#include <sstream>
#include <stdexcept>

namespace kasane::bench {
namespace {

constexpr std::array<std::string_view, 5> kTasks{"pingpong", "operate", "serve", "stop", "quit"};
constexpr std::array<std::string_view, 5> kOps{"read", "write", "atomic", "request", "send"};
constexpr std::array<std::string_view, 4> kMeasures{"latency", "overhead", "cpu", "rate"};

template <class Enum, std::size_t N>
Enum parse_enum(const std::array<std::string_view, N>& names, const std::string& word) {
  for (std::size_t i = 0; i < N; ++i) {
    if (names[i] == word) return static_cast<Enum>(i);
  }
  throw std::runtime_error("no such name: " + word);
}

}  // namespace

std::string_view name_of(Op op) noexcept { return kOps[static_cast<std::size_t>(op)]; }
std::string_view name_of(Measure measure) noexcept { return kMeasures[static_cast<std::size_t>(measure)]; }

std::string to_text(const Order& order) {
  std::ostringstream text;
  text << "do=" << kTasks[static_cast<std::size_t>(order.task)] << " op=" << name_of(order.op)
       << " measure=" << name_of(order.measure) << " threads=" << order.threads << " bytes=" << order.bytes
       << " iterations=" << order.iterations << " together=" << order.together << " verify=" << order.verify
       << " attended=" << order.attended;
  return text.str();
}

Order parse_order(const std::string& line) {
  Order order;
  std::istringstream words(line);
  for (std::string word; words >> word;) {
    const auto equals = word.find('=');
    if (equals == std::string::npos) throw std::runtime_error("not name=value: " + word);
    const std::string name = word.substr(0, equals), value = word.substr(equals + 1);
    if (name == "do")
      order.task = parse_enum<Task>(kTasks, value);
    else if (name == "op")
      order.op = parse_enum<Op>(kOps, value);
    else if (name == "measure")
      order.measure = parse_enum<Measure>(kMeasures, value);
    else if (name == "threads")
      order.threads = static_cast<unsigned>(std::stoul(value));
    else if (name == "bytes")
      order.bytes = std::stoull(value);
    else if (name == "iterations")
      order.iterations = std::stoull(value);
    else if (name == "together")
      order.together = value == "1";
    else if (name == "verify")
      order.verify = value == "1";
    else if (name == "attended")
      order.attended = value == "1";
    else
      throw std::runtime_error("no such word: " + name);
  }
  if (order.threads == 0 || order.threads > kMaxThreads) throw std::runtime_error("threads out of range");
  return order;
}

}  // namespace kasane::bench
