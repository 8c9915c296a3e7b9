// SPDX-License-Identifier: Apache-2.0
#include "ult/sync/once.h"

namespace kasane::ult {
namespace {

// data0: kDone | 1 << rank for each rank that has acquired since it was done; changed under the mutex only.
// Ranks beyond the bits take the mutex each time.
constexpr Word kDone = Word{1} << 63;

Word bit_of(Rank rank) noexcept { return raw(rank) < 63 ? Word{1} << raw(rank) : 0; }

}  // namespace

bool Once::begin() {
  {
    Pool& pool = pool_of_thread("call_once");
    if ((SyncRecords(pool).load(mutex_.record(), SyncField::data0) & bit_of(pool.config().rank)) != 0)
      return false;
  }
  mutex_.lock();
  // Perhaps on another rank than it began on, with a pool of its own.
  Pool& pool = pool_of_thread("call_once");
  const SyncRecords records(pool);
  const Word seen = records.load(mutex_.record(), SyncField::data0);
  if (seen == 0) return true;
  records.store(mutex_.record(), SyncField::data0, seen | bit_of(pool.config().rank));
  mutex_.unlock();
  return false;
}

void Once::end(bool done) {
  if (done) {
    Pool& pool = pool_of_thread("call_once");
    SyncRecords(pool).store(mutex_.record(), SyncField::data0, kDone | bit_of(pool.config().rank));
  }
  mutex_.unlock();
}

}  // namespace kasane::ult
