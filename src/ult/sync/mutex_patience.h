// SPDX-License-Identifier: Apache-2.0
// What a thread does between its first try for a mutex and the queue (mutex_record.h), pure. To take a mutex
// over from another rank costs tens of microseconds, and a thread that was suspended is woken as late. So
// threads of one rank take it several times in a row, and others look for it a while before they queue:
//
//   since    a word of the record: when its rank took the mutex over from another one. Until kLeaseNs later
//            the mutex is that rank's (`last`) while it is free, and threads of other ranks let it be
//   look     at most kLookNs without a pause, then naps of kNapNs, with looks between
//   take     where it is free: at once if this rank had it last, or the lease is over, or it was seen free
//            for kUnusedNs: its rank does not use its lease
//   queue    after kPatienceNs: the holder hands it over, in the order of arrival, whatever leases there are
//
// Bounds: a thread is passed by for kPatienceNs and a nap at most, then it is served first come first served.
// A lease delays the first thread that finds the mutex free and unused by kUnusedNs, else by kLeaseNs.
//
// Thread safety: pure.
#pragma once

#include <cstdint>

namespace kasane::ult {

struct MutexSeen {
  bool free = false;            ///< the word is 0
  bool last_elsewhere = false;  ///< another rank had it last
  std::uint64_t since_ns = 0;   ///< the record's word
};

enum class MutexWish : std::uint8_t { take, look, nap, queue };

class MutexPatience {
 public:
  static constexpr std::uint64_t kLookNs = 12'000, kUnusedNs = 8'000, kNapNs = 20'000, kLeaseNs = 150'000,
                                 kPatienceNs = 1'000'000;

  constexpr explicit MutexPatience(std::uint64_t now_ns) noexcept : begin_ns_(now_ns), looks_ns_(now_ns) {}

  /// After a look at the record. nap: sleep kNapNs, then look again.
  [[nodiscard]] constexpr MutexWish next(const MutexSeen& seen, std::uint64_t now_ns) noexcept {
    if (napped_ != 0) {  // what happened meanwhile is not known
      napped_ = 0;
      looks_ns_ = now_ns;
      free_ns_ = kNever;
    }
    if (!seen.free)
      free_ns_ = kNever;
    else if (free_ns_ == kNever)
      free_ns_ = now_ns;
    if (seen.free &&
        (!seen.last_elsewhere || now_ns - seen.since_ns >= kLeaseNs || now_ns - free_ns_ >= kUnusedNs))
      return MutexWish::take;
    if (now_ns - begin_ns_ >= kPatienceNs) return MutexWish::queue;
    if (now_ns - looks_ns_ < kLookNs) return MutexWish::look;
    napped_ = 1;
    return MutexWish::nap;
  }

 private:
  static constexpr std::uint64_t kNever = ~std::uint64_t{0};
  std::uint64_t begin_ns_, looks_ns_;  ///< of all, and of the looks without a pause
  std::uint64_t free_ns_ = kNever;     ///< since when it was seen free
  std::uint64_t napped_ = 0;           ///< a word: without padding equal values have equal bytes
};

}  // namespace kasane::ult
