// SPDX-License-Identifier: Apache-2.0
// What the harness tells a player to do: one line of name=value words, so that it can be read in a trace, and
// the answer, one line too.
//
//   harness → player   do=pingpong threads=2 bytes=8 iterations=1000 together=0 verify=0
//   player → harness   ok 5.3e-08          (seconds; of what, says the measure)
//                      broken thread 1: …  (the system delivered wrong bytes)
//                      unsupported …       (the system has no such operation)
//
// Thread safety: values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace kasane::bench {

/// pingpong: both ranks. operate: rank 0 only, on rank 1's memory. serve: rank 1 makes progress until stop.
/// quit: leave in good order.
enum class Task : std::uint8_t { pingpong, operate, serve, stop, quit };
/// send is a message without an answer; every kSendsPerAnswer-th is a request, so that no sender runs ahead
/// of the target without limit.
enum class Op : std::uint8_t { read, write, atomic, request, send };
/// latency: issue to completion of one. overhead: the calls that issue, by the wall's clock; cpu: by the
/// thread's. rate: one after the other, a window of them.
enum class Measure : std::uint8_t { latency, overhead, cpu, rate };

struct Order {
  Task task = Task::pingpong;
  Op op = Op::read;
  Measure measure = Measure::latency;
  unsigned threads = 1;
  std::uint64_t bytes = 8;
  std::uint64_t iterations = 1;  ///< by each thread
  /// pingpong: data and flag in one line (bytes <= kTogetherBytes), else in lines of their own
  bool together = false;
  bool verify = false;    ///< pingpong: check every payload, do not time
  bool attended = false;  ///< operate: rank 1 serves meanwhile, so one more thread runs
};

inline constexpr unsigned kMaxThreads = 16;
inline constexpr std::uint64_t kTogetherBytes = 56;
inline constexpr unsigned kSendsPerAnswer = 64;

[[nodiscard]] std::string to_text(const Order&);
/// Throws std::runtime_error with the word that it does not know.
[[nodiscard]] Order parse_order(const std::string& line);

[[nodiscard]] std::string_view name_of(Op) noexcept;
[[nodiscard]] std::string_view name_of(Measure) noexcept;

}  // namespace kasane::bench
