// SPDX-License-Identifier: Apache-2.0
// ARMCI's mutexes: drives mutex_protocol.h by direct access. The words of a process's mutexes lie at it, each
// mutex in a cache line of its own.
#include <cstring>
#include <utility>
#include <vector>

#include "armci/barrier_protocol.h"
#include "armci/library.h"
#include "armci/mutex_protocol.h"
#include "armci/pending.h"

namespace kasane::armci {
namespace {

struct alignas(64) Words {
  std::uint64_t next;
  std::uint64_t serving;
};

/// The mutexes of ARMCI_Create_mutexes; null: there are none.
armcix_mutex_hdl_t of_the_process = nullptr;
/// The library's own, two at each process: number 0 guards it, and of number 1 at process 0 a word counts
/// arrivals at barriers.
armcix_mutex_hdl_t own = nullptr;
barrier::State met;  ///< this process's barriers

struct Mutex {
  const char* call;
  int process;
  Words* words;
};

std::uint64_t change(const Mutex& m, kasane_atomic_op_t op, std::uint64_t* word, std::uint64_t operand,
                     std::uint64_t compare) {
  std::uint64_t old = 0;
  const int code = kasane_atomic(op, sizeof *word, word, operand, compare, &old, nullptr);
  if (code != 0) fatal_at(m.call, m.process, word, code);
  return old;
}

/// Does what the step says; the answer.
std::uint64_t act(const Mutex& m, const mutex::Step& step, Patience& patience) {
  switch (step.action) {
    case mutex::Action::take_ticket: return change(m, KASANE_FETCH_ADD, &m.words->next, 1, 0);
    case mutex::Action::take_if_served:
      return change(m, KASANE_COMPARE_SWAP, &m.words->next, step.state.ticket + 1, step.state.ticket);
    case mutex::Action::advance: return change(m, KASANE_FETCH_ADD, &m.words->serving, 1, 0);
    default: break;
  }
  if (step.action == mutex::Action::read_again) patience.wait();
  std::uint64_t serving = 0;
  const int code = kasane_get(&serving, &m.words->serving, sizeof serving);
  if (code != 0) fatal_at(m.call, m.process, &m.words->serving, code);
  return serving;
}

/// From the event on, until the call returns. True: the mutex is held.
bool run(const Mutex& m, mutex::State state, mutex::Event event) {
  Patience patience;
  mutex::Step step = mutex::next(state, event);
  while (step.action != mutex::Action::entered && step.action != mutex::Action::refused &&
         step.action != mutex::Action::left) {
    const std::uint64_t answer = act(m, step, patience);
    step = mutex::next(step.state, mutex::Event::answer, answer);
  }
  return step.action == mutex::Action::entered;
}

Mutex find(const char* call, armcix_mutex_hdl_t hdl, int number, int process) {
  need_started(call);
  if (hdl == nullptr) fatal("%s: no mutexes were created", call);
  const int at = number_in(hdl->grp, process);
  if (at < 0) fatal("%s: process %d is not in the group of the mutexes", call, process);
  const auto* const head = reinterpret_cast<const std::uint64_t*>(hdl->bases);
  const auto count = head[2 * at + 1];
  if (number < 0 || static_cast<std::uint64_t>(number) >= count)
    fatal("%s: process %d has %llu mutexes, none of number %d", call, process,
          static_cast<unsigned long long>(count), number);
  return {call, process, reinterpret_cast<Words*>(head[2 * at]) + number};
}

void lock(const char* call, armcix_mutex_hdl_t hdl, int number, int process) {
  run(find(call, hdl, number, process), {}, mutex::Event::lock);
}

/// Only the holder unlocks, so what the process knew of its ticket is not needed.
void release(const Mutex& m) { run(m, {mutex::Phase::holding, 0}, mutex::Event::unlock); }

void unlock(const char* call, armcix_mutex_hdl_t hdl, int number, int process) {
  const Mutex m = find(call, hdl, number, process);
  wait_all(call);  // what the process did while it held the mutex is at its targets
  release(m);
}

std::size_t bytes_of(std::uint64_t count) { return static_cast<std::size_t>(count) * sizeof(Words); }

/// Zeros for so many mutexes, which stay in DRAM: other processes look at them all the time, by accesses that
/// do not make a page more used. Null: there is no room.
Words* make_words(int count) {
  const auto n = static_cast<std::uint64_t>(count);
  auto* const words = static_cast<Words*>(kasane_aligned_alloc(alignof(Words), bytes_of(n + 1)));
  if (words == nullptr || n == 0) return words;
  std::memset(static_cast<void*>(words), 0, bytes_of(n));
  kasane_pin(words, bytes_of(n));  // if it fails they are only slower
  return words;
}

void free_words(Words* words, std::uint64_t count) {
  if (words != nullptr && count != 0) kasane_end_pin(words, bytes_of(count));
  kasane_free(words);
}

/// The handle, or null where a process has no room. bases: address and number of mutexes of each process.
armcix_mutex_hdl_t create(const char* call, int count, const ARMCI_Group& group) {
  need_started(call);
  if (count < 0) fatal("%s: %d mutexes", call, count);
  Words* const words = make_words(count);
  const std::uint64_t mine[2] = {reinterpret_cast<std::uintptr_t>(words), static_cast<std::uint64_t>(count)};
  auto* const all = new std::uint64_t[2 * static_cast<std::size_t>(group.size)];
  group_gather(group, mine, all, sizeof mine);
  bool failed = false;
  for (int p = 0; p < group.size; ++p) failed |= all[2 * p] == 0;
  if (failed) {
    free_words(words, mine[1]);
    delete[] all;
    return nullptr;
  }
  auto* const hdl = new armcix_mutex_hdl_s{};
  *hdl = {count, count, group, nullptr, reinterpret_cast<uint8_t**>(all)};
  return hdl;
}

int destroy(const char* call, armcix_mutex_hdl_t hdl) {
  need_started(call);
  if (hdl == nullptr) return 1;
  auto* const all = reinterpret_cast<std::uint64_t*>(hdl->bases);
  group_barrier(hdl->grp);
  const std::uint64_t* const mine = all + 2 * hdl->grp.rank;
  free_words(reinterpret_cast<Words*>(mine[0]), mine[1]);
  delete[] all;
  delete hdl;
  return 0;
}

}  // namespace

bool create_own_mutexes() {
  met = {};
  own = create("ARMCI_Init", 2, library.world);
  return own != nullptr;
}

bool meet_all() {
  if (own == nullptr) return false;
  const Mutex m = find("barrier", own, 1, 0);  // its first word counts
  Patience patience(500, 5);
  barrier::Step step = barrier::arrive(met);
  for (std::uint64_t value = 0; step.action != barrier::Action::through;) {
    if (step.action == barrier::Action::add) {
      value = change(m, KASANE_FETCH_ADD, &m.words->next, 1, 0);
    } else {
      int any = 0;  // whatever it is: the MPI makes progress
      if (!patience.spins())
        MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, library.world.comm, &any, MPI_STATUS_IGNORE);
      if (step.action == barrier::Action::read_again) patience.wait();
      const int code = kasane_get(&value, &m.words->next, sizeof value);
      if (code != 0) fatal_at(m.call, m.process, &m.words->next, code);
    }
    step = barrier::answered(step.state, value, static_cast<std::uint64_t>(library.size));
  }
  met = step.state;
  return true;
}

ProcessLock::ProcessLock(const char* call, int process) : call_(call), process_(process) {
  lock(call, own, 0, process);
}
/// Waits for nothing: the thread may hold the lock of the pending transfers, one of which is what it made.
ProcessLock::~ProcessLock() { release(find(call_, own, 0, process_)); }

/// By then the barrier is the MPI's: another process may still look at the word of the one before.
void destroy_mutexes() {
  destroy("ARMCI_Finalize", std::exchange(own, nullptr));
  if (of_the_process != nullptr) destroy("ARMCI_Finalize", of_the_process);
  of_the_process = nullptr;
}

}  // namespace kasane::armci

using kasane::armci::library, kasane::armci::of_the_process;
namespace armci = kasane::armci;

extern "C" {

int PARMCI_Create_mutexes(int count) {
  if (of_the_process != nullptr)
    armci::fatal("ARMCI_Create_mutexes: there are mutexes, which come first to an end");
  of_the_process = armci::create("ARMCI_Create_mutexes", count, library.world);
  return of_the_process == nullptr ? 1 : 0;
}
int PARMCI_Destroy_mutexes() {
  const int result = armci::destroy("ARMCI_Destroy_mutexes", of_the_process);
  of_the_process = nullptr;
  return result;
}
void PARMCI_Lock(int mutex, int proc) { armci::lock("ARMCI_Lock", of_the_process, mutex, proc); }
void PARMCI_Unlock(int mutex, int proc) { armci::unlock("ARMCI_Unlock", of_the_process, mutex, proc); }

armcix_mutex_hdl_t ARMCIX_Create_mutexes_hdl(int count, ARMCI_Group* pgroup) {
  return armci::create("ARMCIX_Create_mutexes_hdl", count, *pgroup);
}
int ARMCIX_Destroy_mutexes_hdl(armcix_mutex_hdl_t hdl) {
  return armci::destroy("ARMCIX_Destroy_mutexes_hdl", hdl);
}
void ARMCIX_Lock_hdl(armcix_mutex_hdl_t hdl, int mutex, int proc) {
  armci::lock("ARMCIX_Lock_hdl", hdl, mutex, proc);
}
int ARMCIX_Trylock_hdl(armcix_mutex_hdl_t hdl, int mutex, int proc) {
  return armci::run(armci::find("ARMCIX_Trylock_hdl", hdl, mutex, proc), {}, armci::mutex::Event::try_lock)
             ? 0
             : 1;
}
void ARMCIX_Unlock_hdl(armcix_mutex_hdl_t hdl, int mutex, int proc) {
  armci::unlock("ARMCIX_Unlock_hdl", hdl, mutex, proc);
}

}  // extern "C"

KASANE_WEAK_ALIAS(ARMCI_Create_mutexes, PARMCI_Create_mutexes);
KASANE_WEAK_ALIAS(ARMCI_Destroy_mutexes, PARMCI_Destroy_mutexes);
KASANE_WEAK_ALIAS(ARMCI_Lock, PARMCI_Lock);
KASANE_WEAK_ALIAS(ARMCI_Unlock, PARMCI_Unlock);
