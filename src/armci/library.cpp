// SPDX-License-Identifier: Apache-2.0
// Start, end, errors and waiting.
#include "armci/library.h"

#include <dlfcn.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <initializer_list>

#include "armci/pending.h"

namespace kasane::armci {

Library library;

namespace {

/// Another ARMCI in the process would take some of the calls. Returns the file that has it, or null.
const char* other_armci() noexcept {
  Dl_info mine = {}, other = {};
  ::dladdr(reinterpret_cast<void*>(&describe_group), &mine);
  for (const char* name : {"PARMCI_Init", "PARMCI_PutS", "ARMCI_Malloc_group"}) {
    for (void* where : {::dlsym(RTLD_DEFAULT, name), ::dlsym(RTLD_NEXT, name)}) {
      if (where != nullptr && ::dladdr(where, &other) != 0 && other.dli_fbase != mine.dli_fbase)
        return other.dli_fname;
    }
  }
  return nullptr;
}

/// At load: where another ARMCI comes first, no call would reach this library.
[[gnu::constructor]] void refuse_other_armci() {
  const char* const other = other_armci();
  if (other == nullptr) return;
  std::fprintf(stderr,
               "Kasane's ARMCI: %s has an ARMCI, too. A program links one of them: build it again with the "
               "variables that `kasane info --ga` prints, or without this library\n",
               other);
  std::_Exit(1);
}

/// True: the process is in the job of exactly these ranks. A program may have attached by itself.
bool attach(MPI_Comm communicator) {
  const kasane_attach_options_t options = {KASANE_ARMCI_MPI, &communicator};
  const int code = kasane_attach(&options);
  library.attached = code == 0;
  if (code == 0) return true;
  if (code != EPERM) return false;
  int size = 0, me = 0;
  MPI_Comm_size(communicator, &size);
  MPI_Comm_rank(communicator, &me);
  return kasane_ranks() == static_cast<uint32_t>(size) && kasane_rank() == static_cast<uint32_t>(me) &&
         kasane_ranks_barrier() == 0;
}

/// The processes of this host are more than the processors that they may use, all together.
bool is_crowded() {
  MPI_Comm host = MPI_COMM_NULL;
  MPI_Comm_split_type(library.world.comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
  int processes = 0;
  MPI_Comm_size(host, &processes);
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  ::sched_getaffinity(0, sizeof allowed, &allowed);  // where there are more than 1024 it says nothing
  MPI_Allreduce(MPI_IN_PLACE, &allowed, sizeof allowed, MPI_BYTE, MPI_BOR, host);
  MPI_Comm_free(&host);
  return CPU_COUNT(&allowed) < processes;
}

int start(MPI_Comm communicator) {
  if (library.starts++ != 0) return 0;
  int initialised = 0, finalised = 0;
  MPI_Initialized(&initialised);
  MPI_Finalized(&finalised);
  if (initialised == 0 || finalised != 0) {
    std::fprintf(stderr, "ARMCI_Init: MPI_Init comes first\n");
    std::_Exit(1);
  }
  if (!attach(communicator)) {
    library.starts = 0;
    fatal("ARMCI_Init: %s", kasane_error_message());  // most programs do not look at its result
  }
  MPI_Comm_dup(communicator, &library.world.comm);
  MPI_Comm_rank(library.world.comm, &library.me);
  MPI_Comm_size(library.world.comm, &library.size);
  describe_group(library.world);
  library.default_group = library.world;
  library.crowded = is_crowded();
  if (!create_own_mutexes()) fatal("ARMCI_Init: %s", kasane_error_message());
  return 0;
}

}  // namespace

/// MPICH's process manager may end a job before it has read what a process wrote to stderr last. So: waits
/// until a pipe there is empty, at most a second.
static void abort_job(int code) {
  constexpr int kLooks = 1000;
  constexpr unsigned kLookUs = 1000;
  int unread = 0;
  for (int i = 0; i < kLooks && ::ioctl(STDERR_FILENO, FIONREAD, &unread) == 0 && unread > 0; ++i)
    ::usleep(kLookUs);
  MPI_Abort(library.starts != 0 ? library.world.comm : MPI_COMM_WORLD, code);
}

void fatal(const char* format, ...) {
  std::fflush(stdout);
  char text[1024];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  int me = library.me;
  if (library.starts == 0) MPI_Comm_rank(MPI_COMM_WORLD, &me);
  std::fprintf(stderr, "[%d] ARMCI Error: %s\n", me, text);
  std::fflush(stderr);
  abort_job(1);
  std::_Exit(1);
}

void fatal_at(const char* call, int process, const void* address, int code) {
  if (code == EPERM) need_started(call);
  fatal("%s with process %d at %p: %s", call, process, address, kasane_error_message());
}

void need_started(const char* call) {
  if (library.starts == 0) fatal("%s before ARMCI_Init or after ARMCI_Finalize", call);
}

bool Patience::is_young() noexcept {
  const std::uint64_t now = kasane_clock_ns();
  if (began_ns_ == 0) began_ns_ = now;
  return now - began_ns_ < kSpinNs;
}

void Patience::wait() noexcept {
  const unsigned naps = kSpins + yields_;
  if (turns_ == kSpins - 1 && !library.crowded && is_young()) return __builtin_ia32_pause();
  if (++turns_ < kSpins) return __builtin_ia32_pause();
  if (turns_ < naps) {
    ::sched_yield();
    return;
  }
  const unsigned step = turns_ - naps < longest_ ? turns_ - naps + 1 : longest_;
  const timespec nap = {0, static_cast<long>(step) * 10000};
  ::nanosleep(&nap, nullptr);
}

}  // namespace kasane::armci

using kasane::armci::fatal, kasane::armci::library;

extern "C" {

int PARMCI_Init_thread_comm(int, MPI_Comm comm) { return kasane::armci::start(comm); }
int PARMCI_Init_thread(int) { return kasane::armci::start(MPI_COMM_WORLD); }
int PARMCI_Init() { return kasane::armci::start(MPI_COMM_WORLD); }
int PARMCI_Init_args(int*, char***) { return kasane::armci::start(MPI_COMM_WORLD); }
int PARMCI_Init_mpi_comm(MPI_Comm comm) { return kasane::armci::start(comm); }
int PARMCI_Initialized() { return library.starts != 0 ? 1 : 0; }

int PARMCI_Finalize() {
  if (library.starts == 0) return 1;
  if (--library.starts != 0) return 0;
  int finalised = 0;
  MPI_Finalized(&finalised);
  if (finalised != 0) return 0;  // which has detached
  library.starts = 1;            // for what is left to do
  kasane::armci::wait_all("ARMCI_Finalize");
  kasane::armci::group_barrier(library.world);
  kasane::armci::destroy_mutexes();
  MPI_Comm_free(&library.world.comm);
  library.starts = 0;
  if (library.attached) kasane_detach();
  library.attached = false;
  return 0;
}

void ARMCI_Cleanup() {}

void ARMCI_Error(const char* msg, int code) {
  std::fflush(stdout);
  std::fprintf(stderr, "[%d] ARMCI Error: %s\n", library.me, msg == nullptr ? "" : msg);
  std::fflush(stderr);
  kasane::armci::abort_job(code);
}

void PARMCI_Barrier() {
  kasane::armci::need_started("ARMCI_Barrier");
  kasane::armci::wait_all("ARMCI_Barrier");
  kasane::armci::group_barrier(library.world);
}

}  // extern "C"

KASANE_WEAK_ALIAS(ARMCI_Init_thread_comm, PARMCI_Init_thread_comm);
KASANE_WEAK_ALIAS(ARMCI_Init_thread, PARMCI_Init_thread);
KASANE_WEAK_ALIAS(ARMCI_Init, PARMCI_Init);
KASANE_WEAK_ALIAS(ARMCI_Init_args, PARMCI_Init_args);
KASANE_WEAK_ALIAS(ARMCI_Init_mpi_comm, PARMCI_Init_mpi_comm);
KASANE_WEAK_ALIAS(ARMCI_Initialized, PARMCI_Initialized);
KASANE_WEAK_ALIAS(ARMCI_Finalize, PARMCI_Finalize);
KASANE_WEAK_ALIAS(ARMCI_Barrier, PARMCI_Barrier);
