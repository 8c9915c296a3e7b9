// SPDX-License-Identifier: Apache-2.0
#include "base/process.h"

#include <unistd.h>

#include <atomic>
#include <charconv>
#include <cstring>

namespace kasane {
namespace {

std::atomic<std::uint32_t> rank_of_process{raw(kNoRank)};
// Read and written only in this file's functions, in which no context switch happens (rule 13). initial-exec:
// no allocation at the first access, which may be in a signal handler.
[[gnu::tls_model("initial-exec")]] thread_local char role_of_thread[16] = {};

struct TextWriter {
  char* at;
  char* end;
  void put(const char* text) noexcept {
    while (*text != '\0' && at < end) *at++ = *text++;
  }
  void put(std::uint64_t number) noexcept {
    char digits[21] = {};
    std::to_chars(digits, digits + sizeof digits - 1, number);
    put(digits);
  }
};

}  // namespace

void set_process_rank(Rank rank) noexcept {
  // relaxed: a name for messages; it orders nothing else.
  rank_of_process.store(raw(rank), std::memory_order_relaxed);
}

// relaxed: as above.
Rank process_rank() noexcept { return Rank{rank_of_process.load(std::memory_order_relaxed)}; }

void set_thread_role(const char* role) noexcept {
  std::strncpy(role_of_thread, role, sizeof role_of_thread - 1);
  role_of_thread[sizeof role_of_thread - 1] = '\0';
}

std::size_t describe_self(char* text, std::size_t bytes) noexcept {
  if (bytes == 0) return 0;
  TextWriter out{text, text + bytes - 1};
  if (const Rank rank = process_rank(); rank != kNoRank) {
    out.put("rank ");
    out.put(std::uint64_t{raw(rank)});
  } else {
    out.put("pid ");
    out.put(static_cast<std::uint64_t>(::getpid()));
  }
  out.put(" ");
  if (role_of_thread[0] != '\0') {
    out.put(role_of_thread);
  } else {
    out.put("thread ");
    out.put(static_cast<std::uint64_t>(::gettid()));
  }
  *out.at = '\0';
  return static_cast<std::size_t>(out.at - text);
}

}  // namespace kasane
