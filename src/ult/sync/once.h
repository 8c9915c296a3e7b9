// SPDX-License-Identifier: Apache-2.0
// A function that is called once in the job, by the first thread that comes; others wait for it. A mutex,
// whose record also notes which ranks have seen that it is done.
//
// Consistency: a thread that goes on sees what was done: the first caller of each rank crosses from the rank
// that was here last, as for the mutex (rule 1); later callers of that rank only read one word.
// Thread safety: every call on any thread of any rank.
#pragma once

#include "ult/sync/mutex.h"

namespace kasane::ult {

class Once {
 public:
  /// Takes a record of the calling thread's rank; throws std::runtime_error when the rank has none left.
  Once() = default;
  Once(const Once&) = delete;
  Once& operator=(const Once&) = delete;

  /// True: the caller is to do it now, and to call end(). False: it is done.
  [[nodiscard]] bool begin();
  /// done false: it failed, and another caller is to try.
  void end(bool done);

 private:
  Mutex mutex_;
};
static_assert(sizeof(Once) == 8);

}  // namespace kasane::ult
