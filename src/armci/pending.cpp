// SPDX-License-Identifier: Apache-2.0
#include "armci/pending.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

#include "armci/library.h"

namespace kasane::armci {
namespace {

/// When ARMCI_Test looks whether deferred transfers can be made.
class Looks {
 public:
  /// Not yet: the pages were sent for, or looked at, just now.
  [[nodiscard]] bool too_early() noexcept {
    const auto now = Clock::now();
    if (now < next_) return true;
    next_ = now + std::chrono::microseconds(200);
    return false;
  }
  /// It has looked often enough in vain.
  [[nodiscard]] bool enough() noexcept { return ++count_ > 32; }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point next_{};
  int count_ = 0;
};

struct Record {
  int generation = 0;  ///< 0: not in use
  std::vector<kasane_pending_t> operations;
  std::vector<Deferred> deferred;  ///< in the order of the calls
  Looks looks;
};

struct Records {
  std::mutex guard;
  std::vector<Record> all = std::vector<Record>(1);
  std::vector<int> free;
  std::uint32_t generations = 0;
  /// Operations of all records. Most calls complete at once, so that nothing is looked up.
  std::atomic<std::size_t> pending{0};
};

Records& records() noexcept {
  static Records r;
  return r;
}

/// The index of the record that the handle names, or -1. The lock is held.
int named(const Records& r, const armci_hdl_t* handle) noexcept {
  if (handle == nullptr) return 0;
  const int index = handle->target;
  if (index <= 0 || static_cast<std::size_t>(index) >= r.all.size()) return -1;
  const int generation = r.all[static_cast<std::size_t>(index)].generation;
  return generation != 0 && generation == handle->aggregate ? index : -1;
}

/// A record that the handle names from now on. The lock is held.
int take(Records& r, armci_hdl_t* handle) {
  int index = static_cast<int>(r.all.size());
  if (r.free.empty()) {
    r.all.emplace_back();
  } else {
    index = r.free.back();
    r.free.pop_back();
  }
  // Odd multiples of it are no small numbers, which a handle may hold by chance.
  const std::uint32_t generation = (2 * ++r.generations + 1) * 0x9e3779b1u;
  r.all[static_cast<std::size_t>(index)].generation = static_cast<int>(generation);
  *handle = {index, static_cast<int>(generation)};
  return index;
}

/// Are the pages of the deferred transfers here, or has it been tested often enough?
bool can_be_made(Record& record) {
  if (record.deferred.empty()) return true;
  if (record.looks.too_early()) return false;
  for (const Deferred& t : record.deferred)
    if (sent_for(t)) return record.looks.enough();
  return true;
}

/// Waits, and frees the record (but 0). The lock is held.
void complete(Records& r, int index, const char* call) {
  Record& record = r.all[static_cast<std::size_t>(index)];
  for (const Deferred& t : record.deferred) transfer(t, nullptr);
  for (kasane_pending_t& operation : record.operations) {
    const int code = kasane_wait(&operation);
    if (code != 0) fatal_at(call, -1, nullptr, code);
  }
  // relaxed: the lock orders
  r.pending.fetch_sub(record.operations.size() + record.deferred.size(), std::memory_order_relaxed);
  record.operations.clear();
  record.deferred.clear();
  record.looks = {};
  if (index != 0 && record.generation != 0) {
    record.generation = 0;
    r.free.push_back(index);
  }
}

}  // namespace

void note_pending(armci_hdl_t* handle, kasane_pending_t pending) {
  Records& r = records();
  // relaxed: operations of this handle were noted by this thread, or by one that synchronised with it
  if (pending.id == 0 && (handle == nullptr || r.pending.load(std::memory_order_relaxed) == 0)) {
    if (handle != nullptr) *handle = {0, 0};
    return;
  }
  const std::lock_guard lock(r.guard);
  int index = named(r, handle);
  if (pending.id == 0) {
    if (index < 0) *handle = {0, 0};
    return;
  }
  if (index < 0) index = take(r, handle);
  r.all[static_cast<std::size_t>(index)].operations.push_back(pending);
  r.pending.fetch_add(1, std::memory_order_relaxed);
}

void note_deferred(armci_hdl_t* handle, Deferred&& transfer) {
  keep_source(transfer);
  Records& r = records();
  const std::lock_guard lock(r.guard);
  int index = named(r, handle);
  if (index < 0) index = take(r, handle);
  r.all[static_cast<std::size_t>(index)].deferred.push_back(std::move(transfer));
  r.pending.fetch_add(1, std::memory_order_relaxed);  // relaxed: as in note_pending()
}

void wait_for(armci_hdl_t* handle, const char* call) {
  Records& r = records();
  if (handle == nullptr || r.pending.load(std::memory_order_relaxed) == 0) return;  // relaxed: as above
  const std::lock_guard lock(r.guard);
  const int index = named(r, handle);
  if (index > 0) complete(r, index, call);
}

bool test_for(armci_hdl_t* handle, const char* call) {
  Records& r = records();
  if (handle == nullptr || r.pending.load(std::memory_order_relaxed) == 0) return true;  // relaxed: as above
  const std::lock_guard lock(r.guard);
  const int index = named(r, handle);
  if (index <= 0) return true;
  Record& record = r.all[static_cast<std::size_t>(index)];
  if (!can_be_made(record)) return false;
  for (kasane_pending_t& operation : record.operations) {
    int done = 1;
    const int code = kasane_test(&operation, &done);
    if (code != 0) fatal_at(call, -1, nullptr, code);
    if (done == 0) return false;
  }
  complete(r, index, call);
  return true;
}

void wait_all(const char* call) {
  Records& r = records();
  if (r.pending.load(std::memory_order_relaxed) == 0) return;  // relaxed: this thread's own are counted
  const std::lock_guard lock(r.guard);
  for (std::size_t i = 0; i < r.all.size(); ++i) complete(r, static_cast<int>(i), call);
}

}  // namespace kasane::armci

extern "C" {

void ARMCI_INIT_HANDLE(armci_hdl_t* handle) { *handle = {0, 0}; }
// A handle takes any number of operations until it is waited for, with or without these.
void ARMCI_SET_AGGREGATE_HANDLE(armci_hdl_t*) {}
void ARMCI_UNSET_AGGREGATE_HANDLE(armci_hdl_t*) {}

int PARMCI_Wait(armci_hdl_t* handle) { return kasane::armci::wait_for(handle, "ARMCI_Wait"), 0; }
int PARMCI_Test(armci_hdl_t* handle) { return kasane::armci::test_for(handle, "ARMCI_Test") ? 0 : 1; }
int PARMCI_WaitProc(int) { return kasane::armci::wait_all("ARMCI_WaitProc"), 0; }
int PARMCI_WaitAll() { return kasane::armci::wait_all("ARMCI_WaitAll"), 0; }
void PARMCI_Fence(int) { kasane::armci::wait_all("ARMCI_Fence"); }
void PARMCI_AllFence() { kasane::armci::wait_all("ARMCI_AllFence"); }
void PARMCI_GroupFence(ARMCI_Group*) { kasane::armci::wait_all("ARMCI_GroupFence"); }
void ARMCIX_Progress() {}

}  // extern "C"

KASANE_WEAK_ALIAS(ARMCI_Wait, PARMCI_Wait);
KASANE_WEAK_ALIAS(ARMCI_Test, PARMCI_Test);
KASANE_WEAK_ALIAS(ARMCI_WaitProc, PARMCI_WaitProc);
KASANE_WEAK_ALIAS(ARMCI_WaitAll, PARMCI_WaitAll);
KASANE_WEAK_ALIAS(ARMCI_Fence, PARMCI_Fence);
KASANE_WEAK_ALIAS(ARMCI_AllFence, PARMCI_AllFence);
KASANE_WEAK_ALIAS(ARMCI_GroupFence, PARMCI_GroupFence);
