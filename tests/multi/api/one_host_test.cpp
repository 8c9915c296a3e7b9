// SPDX-License-Identifier: Apache-2.0
// Between ranks of one host every transfer is a copy between mappings: over shared memory nothing is sent for
// the bytes of a fetch, a release, a get, a put or an atomic, nor for a page that moves. By the counters,
// which say what the machine's load does not change.
#include <gtest/gtest.h>
#include <kasane/kasane.hpp>

#include <sys/syscall.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "support/counts.h"
#include "support/system_call_log.h"

namespace {

constexpr std::size_t kPages = 32, kPageWords = kasane::page_default / 8;

void expect_nothing_sent() {
  const kasane::test::Counts all;
  EXPECT_EQ(all["remote_operations"], 0u);
  EXPECT_EQ(all["messages_put"], 0u);
  EXPECT_EQ(all["move_requests"], 0u);
}

TEST(OneHost, FetchReleasePutGetAtomicsAndMovesSendNothing) {
  if (kasane::ranks() == 1) GTEST_SKIP() << "one rank has nobody to send to";
  kasane::run([] {
    const std::uint32_t me = kasane::rank(), other = (me + 1) % kasane::ranks();
    auto* const words = static_cast<std::uint64_t*>(
        kasane::allocate(kPages * kasane::page_default, kasane::page_default, kasane::placement::on(other)));
    const kasane::test::Counts before;
    std::uint64_t sum = 0;
    for (std::size_t p = 0; p < kPages; ++p) sum += words[p * kPageWords];         // fetches
    for (std::size_t p = 0; p < kPages; ++p) words[p * kPageWords] = sum + p + 1;  // twins
    kasane::release_all();                                                         // diffs
    for (std::size_t p = 0; p < kPages; ++p) {
      std::uint64_t value = 0;
      const kasane::global_ptr<std::uint64_t> word(words + p * kPageWords);
      kasane::get(&value, word);
      EXPECT_EQ(value, p + 1);
      value = 7;
      kasane::put(word, &value);
      EXPECT_EQ(kasane::fetch_add(word, 1), 7u);
    }
    const kasane::test::Counts after;
    EXPECT_GE(after["blocks_fetched"] - before["blocks_fetched"], kPages);
    EXPECT_GE(after["bytes_fetched"] - before["bytes_fetched"], kPages * 8);
    EXPECT_EQ(after["diffs"] - before["diffs"], kPages);
    EXPECT_GE(after["bytes_put"] - before["bytes_put"], kPages);
    kasane::own(words, kPages * kPageWords);
    EXPECT_EQ(kasane::counter("pages_moved") - after["pages_moved"], kPages);
    kasane::deallocate(words);
  });
  expect_nothing_sent();
}

// Threads that are stolen, and the edges at their joins.
TEST(OneHost, NorDoStealsAndJoins) {
  kasane::run([] {
    const std::size_t n = 20'000;
    const auto cells = kasane::make_array<std::uint64_t>(n);
    kasane::parallel_for(std::size_t{0}, n, [p = cells.get()](std::size_t i) { p[i] = i; });
    for (std::size_t i = 0; i < n; ++i) ASSERT_EQ(cells[i], i);
  });
  expect_nothing_sent();
}

bool maps(const kasane::test::SystemCall& call) {
  constexpr std::uint64_t kUserfaultfd = 0xAA;  // the type of its requests
  return call.number == SYS_mprotect || call.number == SYS_madvise ||
         (call.number == SYS_ioctl && (call.arguments[1] >> 8 & 0xFF) == kUserfaultfd);
}

// Nor does the kernel carry them: it is asked to map, where the memory is not mapped here, and for nothing
// else.
TEST(OneHost, TransfersCallTheKernelOnlyToMap) {
  if (kasane::ranks() == 1) GTEST_SKIP() << "one rank has nobody to send to";
  if (!kasane::test::system_calls_can_be_logged()) GTEST_SKIP() << "no filter of system calls here";
  using kasane::test::SystemCall, kasane::test::system_calls_during;
  kasane::run([] {
    const std::uint32_t me = kasane::rank(), other = (me + 1) % kasane::ranks();
    constexpr std::size_t words = kPages * kPageWords;
    auto* const memory = static_cast<std::uint64_t*>(
        kasane::allocate(words * 8, kasane::page_default, kasane::placement::on(other)));
    std::uint64_t sum = 0;
    const auto look = [&] {
      const kasane::view<const std::uint64_t> v(memory, words);
      for (std::size_t i = 0; i < words; i += kPageWords) sum += v[i];
    };
    const auto change = [&] {
      {
        const kasane::view v(memory, words, kasane::read_write);
        for (std::size_t i = 0; i < words; i += kPageWords) v[i] = i;
      }
      kasane::release_all();
    };
    const auto directly = [&] {
      for (std::size_t i = 0; i < words; i += kPageWords) {
        std::uint64_t value = 0;
        const kasane::global_ptr<std::uint64_t> word(memory + i);
        kasane::get(&value, word);
        kasane::put(word, &value);
        sum += kasane::fetch_add(word, 1);
      }
    };
    const auto fetched = [] { return kasane::counter("blocks_fetched", kasane::rank()); };

    directly();  // the first use of a page asks its owner for room
    const std::uint64_t before = fetched();
    const std::vector<SystemCall> first = system_calls_during([&] {
      look();
      change();
    });
    EXPECT_GE(fetched() - before, kPages);
    EXPECT_FALSE(first.empty());
    for (const SystemCall& call : first) EXPECT_TRUE(maps(call)) << to_string(call);
    EXPECT_LE(first.size(), 8 * kPages);

    // Once it is mapped: nothing at all.
    for (const SystemCall& call : system_calls_during(look))
      ADD_FAILURE() << "reads again: " << to_string(call);
    for (const SystemCall& call : system_calls_during(directly))
      ADD_FAILURE() << "direct access: " << to_string(call);
    kasane::deallocate(memory);
  });
}

}  // namespace
