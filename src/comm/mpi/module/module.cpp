// SPDX-License-Identifier: Apache-2.0
// The table of comm/mpi/module.h over one MPI. It contains nothing but MPI calls: no other part of Kasane is
// linked in.
#include "comm/mpi/module.h"

#include <mpi.h>

#include <cstdio>
#include <cstring>
#include <type_traits>

#if defined(OMPI_MAJOR_VERSION)
/// Open MPI's own (opal/runtime/opal_progress.h): sets whether a call that finds nothing to do yields the
/// core, and returns the old setting. Weak: without it nothing is changed.
extern "C" [[gnu::weak]] bool opal_progress_set_yield_when_idle(bool);
#endif

namespace kasane::comm::mpi {
namespace {

// Where there are more ranks than cores, Open MPI yields the core in every call that finds nothing. Kasane
// calls it under a lock, for which the thread that runs instead would wait. So it must not yield; Kasane's
// waiters yield by themselves, without the lock. Calls that wait for other ranks should yield.

/// True: the launcher or the user told Open MPI to yield.
bool g_may_yield = false;  // written before the table is used, under the library's lock

/// The old setting.
bool set_yield([[maybe_unused]] bool to) noexcept {
#if defined(OMPI_MAJOR_VERSION)
  if (&opal_progress_set_yield_when_idle != nullptr) return opal_progress_set_yield_when_idle(to);
#endif
  return false;
}

/// Around calls that wait for other ranks.
struct Yielding {
  Yielding() noexcept {
    if (g_may_yield) set_yield(true);
  }
  ~Yielding() {
    if (g_may_yield) set_yield(false);
  }
  Yielding(const Yielding&) = delete;
  Yielding& operator=(const Yielding&) = delete;
};

// Handles are pointers in one MPI and integers in another; both fit 64 bits.
template <class Native, class Ours>
Native native(Ours handle) noexcept {
  static_assert(sizeof(Native) <= sizeof(handle.bits) && std::is_trivially_copyable_v<Native>);
  Native out;
  std::memcpy(&out, &handle.bits, sizeof(out));
  return out;
}

template <class Ours, class Native>
Ours ours(Native handle) noexcept {
  Ours out{0};
  std::memcpy(&out.bits, &handle, sizeof(handle));
  return out;
}

MPI_Comm of(Communicator c) noexcept { return native<MPI_Comm>(c); }
MPI_Win of(Window w) noexcept { return native<MPI_Win>(w); }
int count_of(std::uint32_t bytes) noexcept { return static_cast<int>(bytes); }
int rank_of(std::uint32_t rank) noexcept { return static_cast<int>(rank); }
MPI_Aint place_of(std::uint64_t offset) noexcept { return static_cast<MPI_Aint>(offset); }

/// Stores the request that call(MPI_Request*) starts.
template <class Call>
int start(Request* request, const Call& call) noexcept {
  MPI_Request native_request = MPI_REQUEST_NULL;
  const int code = call(&native_request);
  *request = ours<Request>(native_request);
  return code;
}

Arrival arrival(const MPI_Status& status) noexcept {
  int bytes = 0;
  MPI_Get_count(&status, MPI_BYTE, &bytes);
  return {.source = static_cast<std::uint32_t>(status.MPI_SOURCE),
          .bytes = bytes > 0 ? static_cast<std::uint32_t>(bytes) : 0};
}

int init(int* argc, char*** argv, bool* ours_to_end, bool* level_ok) {
  int initialised = 0, level = MPI_THREAD_SINGLE;
  MPI_Initialized(&initialised);
  *ours_to_end = initialised == 0;
  const int code = initialised == 0 ? MPI_Init_thread(argc, argv, MPI_THREAD_SERIALIZED, &level)
                                    : MPI_Query_thread(&level);
  *level_ok = level >= MPI_THREAD_SERIALIZED;
  // not if the program initialised the MPI: then it calls it, too
  if (*ours_to_end) g_may_yield = set_yield(false);
  return code;
}

bool running() {
  int initialised = 0, finalized = 0;
  MPI_Initialized(&initialised);
  MPI_Finalized(&finalized);
  return initialised != 0 && finalized == 0;
}

int call_stored(MPI_Comm, int, void* function, void*) {
  reinterpret_cast<void (*)()>(function)();
  return MPI_SUCCESS;
}

/// MPI_Finalize begins with the attributes of MPI_COMM_SELF (MPI 3.1, 8.7.1).
int before_finalize(void (*function)()) {
  int key = MPI_KEYVAL_INVALID;
  int code = MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, call_stored, &key, nullptr);
  if (code == MPI_SUCCESS) code = MPI_Comm_set_attr(MPI_COMM_SELF, key, reinterpret_cast<void*>(function));
  if (code == MPI_SUCCESS) code = MPI_Comm_free_keyval(&key);
  return code;
}

int finalize() {
  const Yielding yielding;
  int finalized = 0;
  MPI_Finalized(&finalized);
  return finalized != 0 ? MPI_SUCCESS : MPI_Finalize();
}

void version(char* text, std::size_t bytes) {
#if defined(OMPI_MAJOR_VERSION)
  std::snprintf(text, bytes, "%d.%d.%d", OMPI_MAJOR_VERSION, OMPI_MINOR_VERSION, OMPI_RELEASE_VERSION);
#elif defined(MPICH_VERSION)
  std::snprintf(text, bytes, "%s", MPICH_VERSION);
#else
  std::snprintf(text, bytes, "MPI-%d.%d", MPI_VERSION, MPI_SUBVERSION);
#endif
}

void error_text(int code, char* text, std::size_t bytes) {
  char whole[MPI_MAX_ERROR_STRING];
  int length = 0;
  if (MPI_Error_string(code, whole, &length) != MPI_SUCCESS) length = 0;
  std::snprintf(text, bytes, "%.*s", length, whole);
}

[[noreturn]] void abort_job(int status) {
  MPI_Abort(MPI_COMM_WORLD, status);
  __builtin_trap();  // MPI_Abort does not return
}

int communicator(const void* of, Communicator* out, std::uint32_t* rank, std::uint32_t* ranks) {
  const Yielding yielding;
  MPI_Comm comm = MPI_COMM_NULL;
  int me = 0, size = 0;
  int code = MPI_Comm_dup(of != nullptr ? *static_cast<const MPI_Comm*>(of) : MPI_COMM_WORLD, &comm);
  if (code == MPI_SUCCESS) code = MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  if (code == MPI_SUCCESS) code = MPI_Comm_rank(comm, &me);
  if (code == MPI_SUCCESS) code = MPI_Comm_size(comm, &size);
  *out = ours<Communicator>(comm);
  *rank = static_cast<std::uint32_t>(me);
  *ranks = static_cast<std::uint32_t>(size);
  return code;
}

int free_communicator(Communicator* c) {
  const Yielding yielding;
  MPI_Comm comm = of(*c);
  const int code = MPI_Comm_free(&comm);
  *c = ours<Communicator>(comm);
  return code;
}

int send(Communicator c, const void* from, std::uint32_t bytes, std::uint32_t to, int tag, Request* request) {
  return start(request, [&](MPI_Request* r) {
    return MPI_Isend(from, count_of(bytes), MPI_BYTE, rank_of(to), tag, of(c), r);
  });
}

int receive(Communicator c, void* to, std::uint32_t bytes, int from, int tag, Request* request) {
  const int source = from == kAnySource ? MPI_ANY_SOURCE : from;
  return start(request, [&](MPI_Request* r) {
    return MPI_Irecv(to, count_of(bytes), MPI_BYTE, source, tag, of(c), r);
  });
}

int test(Request* request, bool* done, Arrival* what) {
  auto r = native<MPI_Request>(*request);
  MPI_Status status;
  int flag = 0;
  const int code = MPI_Test(&r, &flag, &status);
  *request = ours<Request>(r);
  *done = flag != 0;
  if (flag != 0 && what != nullptr) *what = arrival(status);
  return code;
}

int test_any(Request* requests, int count, int* index, Arrival* what) {
  MPI_Request all[kMostTested];
  for (int i = 0; i < count; ++i) all[i] = native<MPI_Request>(requests[i]);
  MPI_Status status;
  int flag = 0, which = MPI_UNDEFINED;
  const int code = MPI_Testany(count, all, &which, &flag, &status);
  *index = flag != 0 && which != MPI_UNDEFINED ? which : kNothing;
  if (*index == kNothing) return code;
  requests[which] = ours<Request>(all[which]);
  *what = arrival(status);
  return code;
}

int cancel(Request* request) {
  auto r = native<MPI_Request>(*request);
  return r == MPI_REQUEST_NULL ? MPI_SUCCESS : MPI_Cancel(&r);
}

int barrier(Communicator c, Request* request) {
  return start(request, [&](MPI_Request* r) { return MPI_Ibarrier(of(c), r); });
}

int allgather(Communicator c, const void* mine, int bytes, void* all, const int* counts, const int* offsets,
              Request* request) {
  return start(request, [&](MPI_Request* r) {
    return MPI_Iallgatherv(mine, bytes, MPI_BYTE, all, counts, offsets, MPI_BYTE, of(c), r);
  });
}

int window(Communicator c, void* base, std::uint64_t bytes, Window* out) {
  const Yielding yielding;
  MPI_Win win = MPI_WIN_NULL;
  int code = MPI_Win_create(base, place_of(bytes), 1, MPI_INFO_NULL, of(c), &win);
  if (code == MPI_SUCCESS) code = MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
  // No other origin ever locks it, so there is no conflict to check for.
  if (code == MPI_SUCCESS) code = MPI_Win_lock_all(MPI_MODE_NOCHECK, win);
  *out = ours<Window>(win);
  return code;
}

int free_window(Window* w) {
  const Yielding yielding;
  MPI_Win win = of(*w);
  int code = MPI_Win_unlock_all(win);
  if (code == MPI_SUCCESS) code = MPI_Win_free(&win);
  *w = ours<Window>(win);
  return code;
}

int put(Window w, const void* from, std::uint32_t bytes, std::uint32_t to, std::uint64_t offset) {
  return MPI_Put(from, count_of(bytes), MPI_BYTE, rank_of(to), place_of(offset), count_of(bytes), MPI_BYTE,
                 of(w));
}

int get(Window w, void* to, std::uint32_t bytes, std::uint32_t from, std::uint64_t offset) {
  return MPI_Get(to, count_of(bytes), MPI_BYTE, rank_of(from), place_of(offset), count_of(bytes), MPI_BYTE,
                 of(w));
}

int request_put(Window w, const void* from, std::uint32_t bytes, std::uint32_t to, std::uint64_t offset,
                Request* request) {
  return start(request, [&](MPI_Request* r) {
    return MPI_Rput(from, count_of(bytes), MPI_BYTE, rank_of(to), place_of(offset), count_of(bytes), MPI_BYTE,
                    of(w), r);
  });
}

int request_get(Window w, void* to, std::uint32_t bytes, std::uint32_t from, std::uint64_t offset,
                Request* request) {
  return start(request, [&](MPI_Request* r) {
    return MPI_Rget(to, count_of(bytes), MPI_BYTE, rank_of(from), place_of(offset), count_of(bytes), MPI_BYTE,
                    of(w), r);
  });
}

int flush(Window w, std::uint32_t target) { return MPI_Win_flush(rank_of(target), of(w)); }

#if defined(OMPI_MAJOR_VERSION)
constexpr const char* kName = "Open MPI";
#elif defined(MPICH_VERSION)
constexpr const char* kName = "MPICH";
#else
constexpr const char* kName = "MPI";
#endif

}  // namespace

extern "C" {
// A constant has internal linkage otherwise.
[[gnu::visibility("default")]] extern const Module kasane_mpi_module;
const Module kasane_mpi_module = {
    .abi = kModuleAbi,
    .bytes = sizeof(Module),
    .name = kName,
    .init = &init,
    .running = &running,
    .before_finalize = &before_finalize,
    .finalize = &finalize,
    .version = &version,
    .error_text = &error_text,
    .abort = &abort_job,
    .communicator = &communicator,
    .free_communicator = &free_communicator,
    .send = &send,
    .receive = &receive,
    .test = &test,
    .test_any = &test_any,
    .cancel = &cancel,
    .barrier = &barrier,
    .allgather = &allgather,
    .window = &window,
    .free_window = &free_window,
    .put = &put,
    .get = &get,
    .request_put = &request_put,
    .request_get = &request_get,
    .flush = &flush,
};
}  // extern "C"

}  // namespace kasane::comm::mpi
