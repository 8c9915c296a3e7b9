// SPDX-License-Identifier: Apache-2.0
// The public interface (include/kasane/kasane.h): the job, threads, memory and counters. It checks where a
// call is made, forwards it to the pool or the runtime, and turns their results into codes and texts.
// Synchronisation is in api_sync.cpp, errors in api_error.cpp.
//
// Thread safety: as the header says. Invariant: a call that is made where it makes no sense reports that and
// changes nothing.
#include <kasane/kasane.h>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <optional>
#include <stdexcept>
#include <string_view>

#include "base/assert.h"
#include "runtime/api/api_error.h"
#include "runtime/api/numa_api.h"
#include "runtime/language/held_mutexes.h"
#include "runtime/language/program_memory.h"
#include "runtime/process/bound_threads.h"
#include "runtime/process/stream_formats.h"
#include "runtime/rank/job_counters.h"
#include "runtime/rank/process_state.h"
#include "runtime/rank/runtime.h"
#include "ult/fairness.h"
#include "ult/pool.h"
#include "ult/runtime_section.h"

namespace {

using kasane::Rank;
using kasane::Result;
using kasane::runtime::answer;
using kasane::runtime::api_fail;
using kasane::runtime::api_fail_no_rank;
using kasane::runtime::BoundThreads;
using kasane::runtime::InitialBytes;
using kasane::runtime::NumaRequest;
using kasane::runtime::Placement;
using kasane::runtime::require_thread;
using kasane::runtime::Runtime;
using kasane::ult::Pool;
using kasane::ult::ThreadId;

static_assert(static_cast<int>(Placement::Kind::local) == KASANE_PLACEMENT_LOCAL);
static_assert(static_cast<int>(Placement::Kind::block) == KASANE_PLACEMENT_BLOCK);
static_assert(static_cast<int>(Placement::Kind::cyclic) == KASANE_PLACEMENT_CYCLIC);
static_assert(static_cast<int>(Placement::Kind::first_touch) == KASANE_PLACEMENT_FIRST_TOUCH);

/// The runtime; or null, and the failure is noted.
Runtime* runtime_for(const char* call) noexcept {
  Runtime* r = Runtime::current();
  if (r == nullptr) [[unlikely]]
    kasane::runtime::api_fail_not_running(call);
  return r;
}

/// For calls that return no code: reports why and ends the program.
[[noreturn, gnu::cold]] void die() {
  std::fprintf(stderr, "kasane: %s\n", kasane_error_message());
  std::abort();
}

/// A program that was linked without libkasane_start.a has no ranks, and never will: it ends, since C
/// programs hardly look at what kasane_run returns.
[[gnu::cold]] void end_where_never_started() {
  if (kasane::runtime::process().rank != kasane::kNoRank || kasane::runtime::runtime_of_parent() != nullptr)
    return;  // it has ended, or this is a child of fork()
  std::fputs(
      "kasane: kasane::run: this program was linked without libkasane_start.a, so Kasane has not started: "
      "compile and link it with $(pkg-config --cflags --libs kasane), or with CMake's target "
      "kasane::kasane\n",
      stderr);
  std::exit(EXIT_FAILURE);
}

constexpr const char* kAllocate = "kasane::allocate";
/// Where the program called the function in whose body this stands.
#define KASANE_CALL_SITE __builtin_return_address(0)

void* allocate(std::size_t bytes, std::size_t alignment, Placement placement, const void* site,
               InitialBytes initial = InitialBytes::unspecified) noexcept {
  Runtime* r = runtime_for(kAllocate);
  if (r == nullptr) return nullptr;
  auto p = kasane::runtime::program_allocate(*r, bytes != 0 ? bytes : 1, alignment, placement, site, initial);
  if (p) [[likely]]
    return *p;
  api_fail(p.error(), kAllocate);
  return nullptr;
}

/// Empty: there is none such, and the failure is noted. NUMA memory: numa_request_of().
std::optional<Placement> placement_of(kasane_placement_t placement, std::uint64_t argument,
                                      std::size_t page_bytes) noexcept {
  constexpr unsigned fixed = KASANE_PLACEMENT_FIXED;
  const auto kind = static_cast<kasane_placement_t>(static_cast<unsigned>(placement) & ~fixed);
  const auto number = static_cast<std::uint32_t>(std::min<std::uint64_t>(argument, ~std::uint32_t{0}));
  Placement where{.kind = static_cast<Placement::Kind>(kind),
                  .fixed = (static_cast<unsigned>(placement) & fixed) != 0,
                  .page_bytes = page_bytes};
  switch (kind) {
    case KASANE_PLACEMENT_LOCAL:
    case KASANE_PLACEMENT_BLOCK:
    case KASANE_PLACEMENT_CYCLIC:
    case KASANE_PLACEMENT_FIRST_TOUCH: break;
    case KASANE_PLACEMENT_BLOCK_CYCLIC: where.block_bytes = argument; break;
    case KASANE_PLACEMENT_ONE_RANK: where.rank = Rank{number}; break;
    default: api_fail(EINVAL, kAllocate, "no such placement"); return std::nullopt;
  }
  return where;
}

/// What a call of kasane_allocate_placed names.
struct Asked {
  std::size_t bytes, alignment;
  kasane_placement_t placement;
  std::uint64_t argument;
  std::size_t page_bytes;
};

/// Memory of NUMA nodes: from their pool, and, if it is strict, checked.
void* allocate_on_nodes(const Asked& asked, NumaRequest request, const void* site,
                        InitialBytes initial) noexcept {
  Runtime* r = runtime_for(kAllocate);
  if (r == nullptr) return nullptr;
  if (asked.page_bytes != kasane::mem::kPageBytes) {
    api_fail(EINVAL, kAllocate, "memory of NUMA nodes has pages of 65536 bytes");
    return nullptr;
  }
  if (request.kind == NumaRequest::Kind::blocks && asked.bytes < kasane::mem::kPageBytes) {
    api_fail(EINVAL, kAllocate, "numa_blocks: a page of 65536 bytes is needed at least");
    return nullptr;
  }
  const auto pool = r->numa_pool(request);
  if (!pool) {
    api_fail(pool.error(), kAllocate);
    return nullptr;
  }
  const Placement where{.fixed = (static_cast<unsigned>(asked.placement) & KASANE_PLACEMENT_FIXED) != 0,
                        .pool = *pool};
  void* const p = allocate(asked.bytes, asked.alignment, where, site, initial);
  if (p == nullptr) return nullptr;
  Result<void> placed;
  if (*pool != 0 && request.kind == NumaRequest::Kind::blocks)
    placed = r->numa_blocks(p, asked.bytes, request.nodes);
  if (placed && request.strict) placed = kasane::runtime::check_on_nodes(*r, p, asked.bytes, request.nodes);
  if (placed) return p;
  kasane::runtime::program_free(*r, p, site);
  api_fail(placed.error(), kAllocate);
  return nullptr;
}

void* allocate_placed(const Asked& asked, const void* site, InitialBytes initial) noexcept {
  const auto request = kasane::runtime::numa_request_of(asked.placement, asked.argument);
  if (request.kind != NumaRequest::Kind::none) return allocate_on_nodes(asked, request, site, initial);
  const auto where = placement_of(asked.placement, asked.argument, asked.page_bytes);
  return where ? allocate(asked.bytes, asked.alignment, *where, site, initial) : nullptr;
}

}  // namespace

extern "C" {

// ---- the job ----------------------------------------------------------------------------------------------

int kasane_run(void (*entry)(void*), void* argument) {
  constexpr const char* call = "kasane::run";
  Runtime* r = runtime_for(call);
  if (r == nullptr) {
    end_where_never_started();
    return EPERM;
  }
  if (r->attached()) return kasane::runtime::api_fail_outside(call);
  if (Pool::self() != kasane::kNoSlot)
    return api_fail(EPERM, call,
                    "called on a user-level thread; there fork threads (kasane::thread, "
                    "kasane::parallel_invoke) instead");
  if (r->rank() != Rank{0} && BoundThreads::here() != nullptr) {
    struct Root {
      void (*entry)(void*);
      void* argument;
    } root{entry, argument};
    const auto run = [](void* p) {
      const Root asked = *static_cast<Root*>(p);
      kasane_run(asked.entry, asked.argument);
    };
    BoundThreads::call_at(Rank{0}, run, &root);
    return 0;
  }
  if (r->rank() != Rank{0})
    return api_fail(
        EPERM, call,
        "called on a rank other than 0; the root thread starts on rank 0, and others take part by stealing");
  kasane::runtime::tell_stream_formats();
  r->run_root(entry, argument);
  return 0;
}

uint32_t kasane_rank(void) { return raw(Runtime::here()); }
#define KASANE_TEXT(x) #x
#define KASANE_DOTTED(a, b, c) KASANE_TEXT(a) "." KASANE_TEXT(b) "." KASANE_TEXT(c)
const char* kasane_version(void) {
  return KASANE_DOTTED(KASANE_VERSION_MAJOR, KASANE_VERSION_MINOR, KASANE_VERSION_PATCH);
}

uint32_t kasane_ranks(void) {
  const Runtime* r = Runtime::current();
  return r != nullptr ? r->ranks() : 1;
}
uint32_t kasane_workers(void) {
  const Runtime* r = Runtime::current();
  return r != nullptr ? r->workers() : 1;
}
uint64_t kasane_dram(void) {
  const Runtime* r = Runtime::current();
  return r != nullptr ? r->dram_share() : UINT64_MAX;
}

// ---- threads ----------------------------------------------------------------------------------------------

kasane_allocated_t kasane_thread_allocate(size_t alignment, size_t size) {
  constexpr const char* call = "kasane::thread";
  if (require_thread(call) != 0) [[unlikely]]
    return {0, nullptr};
  try {
    const Pool::Allocated a = Pool::allocate(alignment, size);
    return {a.id.value, a.argument};
  } catch (const std::logic_error& e) {  // the argument's size
    api_fail(EINVAL, call, e.what());
  } catch (const std::exception& e) {
    api_fail(EAGAIN, call, e.what());
  }
  return {0, nullptr};
}

void kasane_thread_fork(kasane_allocated_t t, void (*function)(void*)) {
  kasane::runtime::check_no_mutex_held("fork");
  Pool::fork({ThreadId{t.id}, t.argument}, function);
}

static_assert(sizeof(kasane_lazy_t) == sizeof(kasane::ult::LazyRecord) &&
              offsetof(kasane_lazy_t, thread) == offsetof(kasane::ult::LazyRecord, thread) &&
              sizeof(kasane_lazy_kind_t) == sizeof(kasane::ult::LazyKind) &&
              offsetof(kasane_lazy_kind_t, bytes) == offsetof(kasane::ult::LazyKind, bytes) &&
              offsetof(kasane_lazy_worker_t, newest) == offsetof(kasane::ult::LazyWorker, newest) &&
              offsetof(kasane_lazy_worker_t, stack_limit) == offsetof(kasane::ult::LazyWorker, stack_limit));

kasane_lazy_worker_t* kasane_lazy_begin_slowly(kasane_lazy_t* record) {
  kasane::runtime::check_no_mutex_held("fork");
  if (!Pool::begin_lazy(*reinterpret_cast<kasane::ult::LazyRecord*>(record))) return nullptr;
  return reinterpret_cast<kasane_lazy_worker_t*>(::kasane_lazy_worker);
}
int kasane_lazy_end_slowly(kasane_lazy_t* record) {
  return Pool::end_lazy(*reinterpret_cast<kasane::ult::LazyRecord*>(record)) ? 1 : 0;
}
int kasane_lazy_exits(void) { return Pool::exits() ? 1 : 0; }

extern const kasane_lazy_kind_t kasane_lazy_call_kind;
const kasane_lazy_kind_t kasane_lazy_call_kind{[](void* p) {
                                                 const auto [function, argument] =
                                                     *static_cast<kasane_lazy_call_t*>(p);
                                                 function(argument);
                                               },
                                               sizeof(kasane_lazy_call_t)};

int kasane_invoke_with_fork(void (*f)(void*), void* a, void (*g)(void*), void* b) {
  struct Calls {
    void (*f)(void*);
    void* a;
    void (*g)(void*);
    void* b;
  };
  const kasane_allocated_t t = kasane_thread_allocate(alignof(Calls), sizeof(Calls));
  if (t.id == 0) {
    if (kasane_error_code() != EAGAIN) return kasane_error_code();
    f(a);
    g(b);
    return 0;
  }
  new (t.argument) Calls{f, a, g, b};
  kasane_thread_fork(t, [](void* p) {
    const Calls calls = *static_cast<Calls*>(p);
    kasane_invoke(calls.f, calls.a, calls.g, calls.b);
  });
  return kasane_thread_join(t.id);
}

void kasane_thread_abandon(kasane_allocated_t t) { Pool::abandon({ThreadId{t.id}, t.argument}); }

int kasane_thread_join(kasane_thread_t id) {
  constexpr const char* call = "kasane::thread::join";
  if (const int code = require_thread(call)) [[unlikely]]
    return code;
  if (id == 0) [[unlikely]]
    return api_fail(EINVAL, call, "the thread is not joinable: empty, moved from, joined or detached before");
  kasane::runtime::check_no_mutex_held("join");
  // The exception of the thread passes through. It may be a std::system_error, so the pool's own is not
  // caught here.
  Pool::join(ThreadId{id});
  return 0;
}

int kasane_thread_detach(kasane_thread_t id) {
  constexpr const char* call = "kasane::thread::detach";
  if (const int code = require_thread(call)) [[unlikely]]
    return code;
  if (id == 0) [[unlikely]]
    return api_fail(EINVAL, call, "the thread is not joinable: empty, moved from, joined or detached before");
  Pool::detach(ThreadId{id});
  return 0;
}

int kasane_thread_move_near(const void* address) {
  constexpr const char* call = "kasane::this_thread::move_near";
  if (const int code = require_thread(call)) [[unlikely]]
    return code;
  kasane::runtime::check_no_mutex_held("move");
  Rank owner;
  {
    const kasane::ult::RuntimeSection section;
    const auto found = Runtime::current()->where(address);
    if (!found) return api_fail(found.error(), call);
    owner = *found;
  }
  Pool::move_to(owner);
  return 0;
}

int kasane_thread_move_to(uint32_t rank) {
  constexpr const char* call = "kasane::this_thread::move_to";
  if (const int code = require_thread(call)) [[unlikely]]
    return code;
  kasane::runtime::check_no_mutex_held("move");
  if (rank >= Runtime::current()->ranks()) return api_fail_no_rank(call, rank);
  Pool::go_to(Rank{rank});
  return 0;
}

void kasane_polling_begin(void) { Pool::begin_polling(); }
void kasane_polling_end(void) { Pool::end_polling(); }

void kasane_thread_yield(void) {
  if (Pool::self() != kasane::kNoSlot) Pool::yield();
}

void kasane_thread_exit(void) {
  if (require_thread("kasane::this_thread::exit") != 0) die();
  Pool::exit();
}

kasane_thread_t kasane_thread_self(void) { return Pool::self() == kasane::kNoSlot ? 0 : Pool::id().value; }

// ---- memory -----------------------------------------------------------------------------------------------

void* kasane_allocate_placed(size_t bytes, size_t alignment, kasane_placement_t placement, uint64_t argument,
                             size_t page_bytes) {
  return allocate_placed({bytes, alignment, placement, argument, page_bytes}, KASANE_CALL_SITE,
                         InitialBytes::unspecified);
}
void* kasane_allocate_zeroed(size_t bytes, size_t alignment, kasane_placement_t placement, uint64_t argument,
                             size_t page_bytes) {
  return allocate_placed({bytes, alignment, placement, argument, page_bytes}, KASANE_CALL_SITE,
                         InitialBytes::zero);
}
void* kasane_allocate(size_t bytes, size_t alignment, kasane_placement_t placement) {
  switch (placement) {
    case KASANE_PLACEMENT_LOCAL:
    case KASANE_PLACEMENT_BLOCK:
    case KASANE_PLACEMENT_CYCLIC:
    case KASANE_PLACEMENT_FIRST_TOUCH: break;
    case KASANE_PLACEMENT_BLOCK_CYCLIC:
    case KASANE_PLACEMENT_ONE_RANK:
    case KASANE_PLACEMENT_NUMA:
    case KASANE_PLACEMENT_NUMA_INTERLEAVE:
    case KASANE_PLACEMENT_NUMA_WEIGHTED:
    case KASANE_PLACEMENT_NUMA_BLOCKS:
    case KASANE_PLACEMENT_FIXED:
    case KASANE_PLACEMENT_STRICT:
      api_fail(EINVAL, kAllocate, "this placement needs kasane_allocate_placed");
      return nullptr;
    default: api_fail(EINVAL, kAllocate, "no such placement"); return nullptr;
  }
  return allocate(bytes, alignment, Placement{.kind = static_cast<Placement::Kind>(placement)},
                  KASANE_CALL_SITE);
}
void* kasane_aligned_alloc(size_t alignment, size_t bytes) {
  return allocate(bytes, alignment, Placement::local, KASANE_CALL_SITE);
}
void* kasane_malloc(size_t bytes) { return allocate(bytes, 16, Placement::local, KASANE_CALL_SITE); }
void* kasane_allocate_at(size_t bytes, size_t alignment, uint32_t rank) {
  return allocate(bytes, alignment, Placement::on(Rank{rank}), KASANE_CALL_SITE);
}

void* kasane_calloc(size_t count, size_t bytes) {
  size_t all = 0;
  if (__builtin_mul_overflow(count, bytes, &all)) {
    api_fail(ENOMEM, "kasane_calloc", "count * bytes is more than there can be");
    return nullptr;
  }
  void* p = allocate(all, 16, Placement::local, KASANE_CALL_SITE);
  return p != nullptr ? std::memset(p, 0, all) : nullptr;
}

void* kasane_realloc(void* pointer, size_t bytes) {
  constexpr const char* call = "kasane::reallocate";
  Runtime* r = runtime_for(call);
  if (r == nullptr) return nullptr;
  if (pointer == nullptr) return allocate(bytes, 16, Placement::local, KASANE_CALL_SITE);
  if (bytes == 0) {
    kasane::runtime::program_free(*r, pointer, KASANE_CALL_SITE);
    return nullptr;
  }
  if (!r->in_heap(pointer)) {
    api_fail(EINVAL, call, "the pointer is not from the global heap");
    return nullptr;
  }
  auto p = kasane::runtime::program_reallocate(*r, pointer, bytes, KASANE_CALL_SITE);
  if (p) [[likely]]
    return *p;
  api_fail(p.error(), call);
  return nullptr;
}

size_t kasane_usable_size(const void* pointer) {
  Runtime* r = Runtime::current();
  return pointer == nullptr || r == nullptr || !r->in_heap(pointer)
             ? 0
             : kasane::runtime::program_usable_size(*r, pointer);
}

void kasane_free(void* pointer) {
  if (pointer == nullptr) return;
  // After main the memory is gone with the job, so destructors of static objects need not free it.
  if (Runtime* r = Runtime::current()) kasane::runtime::program_free(*r, pointer, KASANE_CALL_SITE);
}

void kasane_release_all(void) {
  if (Runtime* r = Runtime::current()) r->release_all();
}
void kasane_acquire_all(void) {
  if (Runtime* r = Runtime::current()) r->acquire_all();
}

int kasane_own(const void* pointer, size_t bytes) {
  constexpr const char* call = "kasane::own";
  Runtime* r = runtime_for(call);
  return r == nullptr ? EPERM : answer(r->own(pointer, bytes), call);
}

int kasane_give(const void* pointer, size_t bytes, uint32_t rank) {
  constexpr const char* call = "kasane::give";
  Runtime* r = runtime_for(call);
  return r == nullptr ? EPERM : answer(r->give(pointer, bytes, Rank{rank}), call);
}

int kasane_where(const void* pointer, uint32_t* rank) {
  constexpr const char* call = "kasane::where";
  Runtime* r = runtime_for(call);
  if (r == nullptr) return EPERM;
  const auto owner = r->where(pointer);
  if (!owner) return api_fail(owner.error(), call);
  *rank = raw(*owner);
  return 0;
}

int kasane_view(const void* pointer, size_t bytes, int access) {
  constexpr const char* call = "kasane::view";
  Runtime* r = runtime_for(call);
  if (r == nullptr) return EPERM;
  if (access < KASANE_READ || access > KASANE_WRITE_ONLY)
    return api_fail(EINVAL, call, "there is no such access");
  if (bytes == 0 || !r->contains(pointer)) return 0;  // private memory is always present
  return answer(r->pin(pointer, bytes, static_cast<kasane::dsm::Use>(access)), call);
}

int kasane_end_view(const void* pointer, size_t bytes) {
  Runtime* r = runtime_for("kasane_end_view");
  if (r == nullptr) return EPERM;
  if (bytes != 0 && r->contains(pointer)) r->unpin(pointer, bytes);
  return 0;
}

int kasane_prefetch(const void* pointer, size_t bytes, int access) {
  constexpr const char* call = "kasane::prefetch";
  Runtime* r = runtime_for(call);
  if (r == nullptr) return EPERM;
  if (access < KASANE_READ || access > KASANE_WRITE_ONLY)
    return api_fail(EINVAL, call, "there is no such access");
  if (r->ranks() == 1 && !r->has_tiers()) return 0;  // all pages are here
  if (bytes != 0 && r->contains(pointer)) r->prefetch(pointer, bytes, static_cast<kasane::dsm::Use>(access));
  return 0;
}

int kasane_discard(void* pointer, size_t bytes) {
  constexpr const char* call = "kasane::discard";
  Runtime* r = runtime_for(call);
  if (r == nullptr) return EPERM;
  if (bytes == 0 || !r->contains(pointer)) return 0;
  return answer(r->discard(pointer, bytes), call);
}

// ---- advice on memory that may leave DRAM ----------------------------------------------------------------

namespace {

int tell(const void* pointer, size_t bytes, kasane::gas::Advisor::What what, const char* call) {
  Runtime* r = runtime_for(call);
  if (r == nullptr) return EPERM;
  if (bytes == 0 || !r->contains(pointer)) return 0;
  return answer(r->tell(pointer, bytes, what, call), call);
}

}  // namespace

int kasane_advise(const void* pointer, size_t bytes, int usage) {
  constexpr const char* call = "kasane::advise";
  using What = kasane::gas::Advisor::What;
  static_assert(static_cast<int>(What::normal) == KASANE_NORMAL &&
                static_cast<int>(What::sequential) == KASANE_SEQUENTIAL);
  static_assert(static_cast<int>(What::random) == KASANE_RANDOM &&
                static_cast<int>(What::once) == KASANE_ONCE);
  if (usage < KASANE_NORMAL || usage > KASANE_ONCE) return api_fail(EINVAL, call, "there is no such usage");
  return tell(pointer, bytes, static_cast<What>(usage), call);
}

int kasane_evict(const void* pointer, size_t bytes) {
  return tell(pointer, bytes, kasane::gas::Advisor::What::leave, "kasane::evict");
}
int kasane_pin(const void* pointer, size_t bytes) {
  return tell(pointer, bytes, kasane::gas::Advisor::What::hold, "kasane::pin");
}
int kasane_end_pin(const void* pointer, size_t bytes) {
  return tell(pointer, bytes, kasane::gas::Advisor::What::end_hold, "kasane_end_pin");
}

// ---- counters ---------------------------------------------------------------------------------------------

int kasane_counter(uint32_t index, uint32_t rank, const char** name, uint64_t* value) {
  constexpr const char* call = "kasane::counter";
  kasane::ult::let_others_run(kasane::runtime::holds_mutex_of_libc);  // programs poll counters
  const Runtime* r = runtime_for(call);
  if (r == nullptr) return EPERM;
  if (index >= kasane::runtime::kCounterRows) return api_fail(EINVAL, call, "there is no such counter");
  if (rank != KASANE_ALL_RANKS && rank >= r->ranks()) return api_fail_no_rank(call, rank);
  if (name != nullptr) *name = kasane::runtime::kCounterNames[index].data();  // literals
  if (value == nullptr) return 0;
  const uint32_t first = rank == KASANE_ALL_RANKS ? 0 : rank,
                 end = rank == KASANE_ALL_RANKS ? r->ranks() : rank + 1;
  *value = 0;
  for (uint32_t of = first; of < end; ++of) *value += r->counters(Rank{of})[index];
  return 0;
}

int kasane_counter_by_name(const char* name, uint32_t rank, uint64_t* value) {
  const auto& names = kasane::runtime::kCounterNames;
  const auto found = std::ranges::find(names, std::string_view(name));
  return kasane_counter(static_cast<uint32_t>(found - names.begin()), rank, nullptr, value);
}

}  // extern "C"
