// SPDX-License-Identifier: Apache-2.0
#include "dsm/race_check.h"

#include <array>

#include "base/counters.h"
#include "comm/batch.h"
#include "dsm/word_at.h"
#include "mem/block_table.h"

namespace kasane::dsm {
namespace {

constexpr std::size_t kWord = sizeof(std::uint64_t);

void tell(Counters* counters, RaceListener& listener, std::uint64_t offset, std::uint64_t before,
          std::uint64_t mine, std::uint64_t theirs) noexcept {
  const std::uint64_t bytes = raced_bytes(before, mine, theirs);
  if (bytes == 0) return;
  if (counters != nullptr) count(counters->data_races);
  listener.race({offset, bytes, before, mine, theirs});
}

}  // namespace

std::size_t put_checked(comm::Blocking& io, RaceListener& listener, comm::RemoteAddr to, const std::byte* now,
                        const std::byte* base) {
  struct Change {
    std::uint64_t at, before, mine, found;
  };
  std::array<Change, 64> changes;  // outstanding at once
  std::size_t total = 0;
  for (std::size_t i = 0; i < mem::kBlockBytes;) {
    std::size_t n = 0;
    {
      comm::Batch batch(io);
      for (; i < mem::kBlockBytes && n < changes.size(); i += kWord) {
        const std::uint64_t before = word_at(base + i), mine = word_at(now + i);
        if (before == mine) continue;
        Change& change = changes[n++] = {to.offset + i, before, mine, 0};
        batch.atomic(comm::AtomicOp::compare_swap, {to.rank, to.region, change.at}, mine, before,
                     &change.found);
      }
    }
    for (const Change& c : std::span(changes).first(n)) {
      total += bytes_in(differing_bytes(c.before, c.mine));
      if (c.found == c.before) continue;
      tell(io.counters(), listener, c.at, c.before, c.mine, c.found);
      for (std::uint64_t theirs = c.found;;) {  // other ranks may change their bytes of the word meanwhile
        const std::uint64_t found =
            io.compare_swap({to.rank, to.region, c.at}, theirs, merged(c.before, c.mine, theirs));
        if (found == theirs) break;
        theirs = found;
      }
    }
  }
  return total;
}

void tell_races(Counters* counters, RaceListener& listener, std::uint64_t offset, std::size_t bytes,
                const std::byte* base, const std::byte* mine, const std::byte* theirs) noexcept {
  for (std::size_t i = 0; i < bytes; i += kWord)
    tell(counters, listener, offset + i, word_at(base + i), word_at(mine + i), word_at(theirs + i));
}

}  // namespace kasane::dsm
