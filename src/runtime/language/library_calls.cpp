// SPDX-License-Identifier: Apache-2.0
// What libstdc++.so does for one process, for all ranks: std::locale, the numbers of kinds of facets and of
// words in streams, the locks of std::atomic_load(shared_ptr*) and its like, and those of the iterators of a
// container that -D_GLIBCXX_DEBUG lists. libstdc++ and the program call these functions through their tables
// of addresses. Private memory is libstdc++'s matter.
//
// A locale that a thread makes lies in global memory:
//
//   its count                   by the program's atomics (runtime/language/atomics.h)
//   counts of its facets        changed under one lock of the job, by libstdc++'s functions. Facets in
//                               private memory, which each rank's libstdc++ has of its own, never come to
//                               their end: a locale may end on another rank than it began
//   caches (what num_put and    made with the locale, not at its first use: libstdc++ publishes them by a
//   money_put read of facets)   plain store, which another rank may see before it sees the cache
//
// Thread safety: as libstdc++'s functions.
#include "runtime/language/library_calls.h"

namespace kasane::runtime {
namespace {

constinit LibraryWords* g_words = nullptr;  ///< null: not a program of ours

}  // namespace

void share_library_words(LibraryWords& words) noexcept { g_words = &words; }

}  // namespace kasane::runtime

#if !defined(KASANE_SANITIZER_ADDRESS) && !defined(KASANE_SANITIZER_THREAD)

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

#include "runtime/language/atomics.h"
#include "runtime/rank/hidden.h"
#include "runtime/rank/process_state.h"
#include "runtime/rank/runtime.h"
#include "runtime/rank/warn.h"

namespace kasane::runtime {
namespace {

/// std::locale::facet, as libstdc++ has it.
struct Facet {
  const void* table;
  int count;
};
/// std::locale::_Impl.
struct Locale {
  int count;
  Facet** facets;
  std::size_t size;  ///< of facets, and of caches
  Facet** caches;
  char** names;
};
static_assert(sizeof(std::locale) == sizeof(Locale*));

constinit Hidden<void (*)(std::locale*)> g_default("_ZNSt6localeC1Ev");
constinit Hidden<void (*)(std::locale*, const std::locale&)> g_copy("_ZNSt6localeC1ERKS_");
constinit Hidden<void (*)(std::locale*)> g_end("_ZNSt6localeD1Ev");
constinit Hidden<void (*)(Locale*, const Locale&, std::size_t)> g_derive("_ZNSt6locale5_ImplC1ERKS0_m");
constinit Hidden<void (*)(Locale*)> g_destroy("_ZNSt6locale5_ImplD1Ev");
constinit Hidden<void (*)(Locale*, const std::locale::id*, const Facet*)> g_install(
    "_ZNSt6locale5_Impl16_M_install_facetEPKNS_2idEPKNS_5facetE");

Locale* body_of(const std::locale& locale) noexcept {
  Locale* body;
  std::memcpy(&body, &locale, sizeof body);
  return body;
}
/// The classic locale, which is not counted: nearly all copies are of it. relaxed: a number to compare with.
constinit std::atomic<const Locale*> g_classic{nullptr};
bool is_classic(const Locale* locale) noexcept { return locale == g_classic.load(std::memory_order_relaxed); }

bool is_shared(const Locale* locale) noexcept { return g_words != nullptr && is_shared_atomic(locale); }

/// The lock of the job.
class Lock {
 public:
  Lock() noexcept { ::pthread_mutex_lock(&g_words->lock); }
  ~Lock() { ::pthread_mutex_unlock(&g_words->lock); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;
};

/// Before libstdc++ counts facets down: those in private memory never come to their end.
void keep_private_facets(const Locale& locale) noexcept {
  constexpr int kFew = 1 << 29, kMany = 1 << 30;
  for (Facet** const facets : {locale.facets, locale.caches}) {
    for (std::size_t i = 0; facets != nullptr && i < locale.size; ++i) {
      if (facets[i] == nullptr || is_shared_atomic(facets[i])) continue;
      // relaxed: nobody else lowers it by so much
      const std::atomic_ref count(facets[i]->count);
      if (count.load(std::memory_order_relaxed) < kFew) count.store(kMany, std::memory_order_relaxed);
    }
  }
}

/// What libstdc++ would make at the first use, where the locale has all that it is made of.
template <class Char>
void make_caches(const std::locale& locale) {
  if (!std::has_facet<std::ctype<Char>>(locale)) return;
  if (std::has_facet<std::numpunct<Char>>(locale)) std::__use_cache<std::__numpunct_cache<Char>>{}(locale);
  if (std::has_facet<std::moneypunct<Char, false>>(locale))
    std::__use_cache<std::__moneypunct_cache<Char, false>>{}(locale);
  if (std::has_facet<std::moneypunct<Char, true>>(locale))
    std::__use_cache<std::__moneypunct_cache<Char, true>>{}(locale);
}
void make_all_caches(const Locale* body) {
  // an object without a reference of its own
  alignas(std::locale) std::byte place[sizeof(std::locale)];
  std::memcpy(place, &body, sizeof body);
  const std::locale& locale = *std::launder(reinterpret_cast<const std::locale*>(place));
  make_caches<char>(locale);
  make_caches<wchar_t>(locale);
}

/// The kind's place in LibraryWords::kinds.
std::size_t place_of(std::uint64_t kind) noexcept {
  for (std::size_t i = 0; i < g_words->kinds.size(); ++i) {
    std::uint64_t* const place = &g_words->kinds[i];
    std::uint64_t seen = load_atomic_word(place);
    if (seen == kind || (seen == 0 && swap_atomic_word(place, seen, kind)) || seen == kind) return i;
  }
  CrashText text;
  warn(text.add("kasane: the program has more than 64 kinds of std::locale::facet (std::locale::id)\n"));
  std::abort();
}

/// Numbers of one sequence that this process has given before its rank ran: equal on all ranks.
using Given = std::atomic<std::uint64_t>;
constinit Given g_kinds{0}, g_stream_words{0};

/// The first number, plus one, that the job gives; 0: this process is no rank.
std::uint64_t first_of_job(std::uint64_t LibraryWords::* first, const Given& given) noexcept {
  if (g_words == nullptr || (Runtime::current() == nullptr && runtime_of_parent() == nullptr)) return 0;
  std::uint64_t* const word = &(g_words->*first);
  std::uint64_t seen = load_atomic_word(word);
  const std::uint64_t wanted = given.load() + 1;
  return seen != 0 || !swap_atomic_word(word, seen, wanted) ? seen : wanted;
}

/// The number of a kind of facet, plus one.
std::uint64_t number_of(const std::uint64_t* id) noexcept {
  const std::uint64_t first = first_of_job(&LibraryWords::first_kind, g_kinds);
  if (first == 0) return g_kinds.fetch_add(1) + 1;
  return first + place_of(reinterpret_cast<std::uint64_t>(id));
}

/// std::_Sp_locker, as libstdc++ has it.
struct PointerLock {
  unsigned char first, second;
};
constexpr PointerLock kOfJob{0xFF, 0xFF};  ///< libstdc++ has 16 locks
constinit Hidden<void (*)(PointerLock*, const void*)> g_lock_one("_ZNSt10_Sp_lockerC1EPKv");
constinit Hidden<void (*)(PointerLock*, const void*, const void*)> g_lock_two("_ZNSt10_Sp_lockerC1EPKvS1_");
constinit Hidden<void (*)(PointerLock*)> g_unlock("_ZNSt10_Sp_lockerD1Ev");

/// __gnu_debug::_Safe_iterator_base, as libstdc++ has it.
struct DebugIterator {
  const void* container;
};
using Detach = Hidden<void (*)(DebugIterator*)>;
using AttachSingle = Hidden<void (*)(DebugIterator*, const void* container, bool)>;
constinit Detach g_detach("_ZN11__gnu_debug19_Safe_iterator_base9_M_detachEv"),
    g_detach_local("_ZN11__gnu_debug25_Safe_local_iterator_base9_M_detachEv");
constinit AttachSingle g_attach_single(
    "_ZN11__gnu_debug19_Safe_iterator_base16_M_attach_singleEPNS_19_Safe_sequence_baseEb"),
    g_attach_single_local(
        "_ZN11__gnu_debug25_Safe_local_iterator_base16_M_attach_singleEPNS_19_Safe_sequence_baseEb");
constinit Hidden<pthread_mutex_t* (*)(const void*)> g_lock_of_iterators(
    "_ZN11__gnu_debug19_Safe_sequence_base12_M_get_mutexEv");

/// Of a container's lists of iterators; null: libstdc++'s serves.
pthread_mutex_t* lock_of_iterators(const void* container) noexcept {
  if (g_words == nullptr || !is_shared_atomic(container)) return nullptr;
  // The upper bits of the product depend on all bits of the address.
  const std::uint64_t mixed = reinterpret_cast<std::uintptr_t>(container) * 0x9E3779B97F4A7C15;
  return &g_words->iterator_locks[mixed >> 32 & (g_words->iterator_locks.size() - 1)];
}

/// Takes an iterator out of its container's list.
void detach_iterator(DebugIterator* self, Detach& libstdcxx, AttachSingle& attach_single) {
  if (self->container == nullptr) return;
  pthread_mutex_t* const lock = lock_of_iterators(self->container);
  if (lock == nullptr) return libstdcxx.get()(self);
  ::pthread_mutex_lock(lock);
  attach_single.get()(self, nullptr, false);  // to none
  ::pthread_mutex_unlock(lock);
}

}  // namespace

void correct_count_of(const std::locale& locale) noexcept {
  Locale* const body = body_of(locale);
  if (is_classic(body) || !is_shared(body)) return;
  // relaxed: the caller has a reference
  std::atomic_ref(body->count).fetch_sub(1, std::memory_order_relaxed);
  add_atomic(&body->count, 1, __ATOMIC_RELAXED);
}

}  // namespace kasane::runtime

using namespace kasane::runtime;  // NOLINT(google-build-using-namespace): for the functions below

#define KASANE_SHOWN [[gnu::visibility("default")]]
// Constructors and destructors have two names each: of a whole object, and of a base.

extern "C" {

// ---- std::locale::_Impl -----------------------------------------------------------------------------------

KASANE_SHOWN void kasane_locale_derive(Locale*, const Locale&,
                                       std::size_t) asm("_ZNSt6locale5_ImplC1ERKS0_m");
void kasane_locale_derive(Locale* self, const Locale& from, std::size_t references) {
  if (!is_shared(self) && !is_shared(&from)) return g_derive.get()(self, from, references);
  const Lock lock;
  g_derive.get()(self, from, references);
}
KASANE_SHOWN void kasane_locale_derive_base(Locale*, const Locale&,
                                            std::size_t) asm("_ZNSt6locale5_ImplC2ERKS0_m");
void kasane_locale_derive_base(Locale* self, const Locale& from, std::size_t references) {
  kasane_locale_derive(self, from, references);
}

KASANE_SHOWN void kasane_locale_destroy(Locale*) asm("_ZNSt6locale5_ImplD1Ev");
void kasane_locale_destroy(Locale* self) {
  if (!is_shared(self)) return g_destroy.get()(self);
  const Lock lock;
  keep_private_facets(*self);
  g_destroy.get()(self);
}
KASANE_SHOWN void kasane_locale_destroy_base(Locale*) asm("_ZNSt6locale5_ImplD2Ev");
void kasane_locale_destroy_base(Locale* self) { kasane_locale_destroy(self); }

KASANE_SHOWN void kasane_locale_install(Locale*, const std::locale::id*, const Facet*) asm(
    "_ZNSt6locale5_Impl16_M_install_facetEPKNS_2idEPKNS_5facetE");
void kasane_locale_install(Locale* self, const std::locale::id* id, const Facet* facet) {
  if (!is_shared(self)) return g_install.get()(self, id, facet);
  {
    const Lock lock;
    keep_private_facets(*self);
    g_install.get()(self, id, facet);
  }
  make_all_caches(self);
}

// ---- std::locale ------------------------------------------------------------------------------------------

KASANE_SHOWN void kasane_locale_default(std::locale*) asm("_ZNSt6localeC1Ev");
void kasane_locale_default(std::locale* self) {
  g_default.get()(self);
  correct_count_of(*self);
  if (g_classic.load(std::memory_order_relaxed) == nullptr) [[unlikely]]
    g_classic.store(body_of(std::locale::classic()), std::memory_order_relaxed);
}
KASANE_SHOWN void kasane_locale_default_base(std::locale*) asm("_ZNSt6localeC2Ev");
void kasane_locale_default_base(std::locale* self) { kasane_locale_default(self); }

KASANE_SHOWN void kasane_locale_copy(std::locale*, const std::locale&) asm("_ZNSt6localeC1ERKS_");
void kasane_locale_copy(std::locale* self, const std::locale& other) {
  Locale* const body = body_of(other);
  if (!is_classic(body)) {
    if (!is_shared(body)) return g_copy.get()(self, other);
    add_atomic(&body->count, 1, __ATOMIC_RELAXED);  // the caller has a reference, so nothing is learnt
  }
  std::memcpy(static_cast<void*>(self), &body, sizeof body);
}
KASANE_SHOWN void kasane_locale_copy_base(std::locale*, const std::locale&) asm("_ZNSt6localeC2ERKS_");
void kasane_locale_copy_base(std::locale* self, const std::locale& other) { kasane_locale_copy(self, other); }

KASANE_SHOWN void kasane_locale_end(std::locale*) asm("_ZNSt6localeD1Ev");
void kasane_locale_end(std::locale* self) {
  Locale* const body = body_of(*self);
  if (is_classic(body)) return;
  if (!is_shared(body)) return g_end.get()(self);
  if (add_atomic(&body->count, -1) != 1) return;
  kasane_locale_destroy(body);
  ::operator delete(body);
}
KASANE_SHOWN void kasane_locale_end_base(std::locale*) asm("_ZNSt6localeD2Ev");
void kasane_locale_end_base(std::locale* self) { kasane_locale_end(self); }

KASANE_SHOWN std::locale* kasane_locale_assign(std::locale*, const std::locale&) asm("_ZNSt6localeaSERKS_");
std::locale* kasane_locale_assign(std::locale* self, const std::locale& other) {
  alignas(std::locale) std::byte before[sizeof *self];
  std::memcpy(before, self, sizeof before);
  kasane_locale_copy(self, other);
  kasane_locale_end(std::launder(reinterpret_cast<std::locale*>(before)));
  return self;
}

// ---- std::locale::id --------------------------------------------------------------------------------------

KASANE_SHOWN std::size_t kasane_locale_number(std::uint64_t*) asm("_ZNKSt6locale2id5_M_idEv");
std::size_t kasane_locale_number(std::uint64_t* id) {
  // relaxed: a number, the same whoever writes it
  const std::atomic_ref word(*id);
  std::uint64_t number = word.load(std::memory_order_relaxed);
  if (number == 0) [[unlikely]] {
    number = number_of(id);
    word.store(number, std::memory_order_relaxed);
  }
  return number - 1;
}

// ---- std::ios_base::xalloc --------------------------------------------------------------------------------

KASANE_SHOWN int kasane_stream_word() noexcept asm("_ZNSt8ios_base6xallocEv");
int kasane_stream_word() noexcept {
  constexpr std::uint64_t kOfLibrary = 4;
  const std::uint64_t first = first_of_job(&LibraryWords::first_stream_word, g_stream_words);
  const std::uint64_t number =
      first == 0 ? g_stream_words.fetch_add(1)
                 : first - 1 + static_cast<std::uint32_t>(add_atomic(&g_words->stream_words, 1));
  return static_cast<int>(number + kOfLibrary);
}

// ---- std::atomic_load(const std::shared_ptr<T>*) and its like ---------------------------------------------

KASANE_SHOWN void kasane_lock_pointer(PointerLock*, const void*) asm("_ZNSt10_Sp_lockerC1EPKv");
void kasane_lock_pointer(PointerLock* self, const void* p) {
  if (g_words == nullptr || !is_shared_atomic(p)) return g_lock_one.get()(self, p);
  *self = kOfJob;
  ::pthread_mutex_lock(&g_words->lock);
}
KASANE_SHOWN void kasane_lock_pointer_base(PointerLock*, const void*) asm("_ZNSt10_Sp_lockerC2EPKv");
void kasane_lock_pointer_base(PointerLock* self, const void* p) { kasane_lock_pointer(self, p); }

KASANE_SHOWN void kasane_lock_pointers(PointerLock*, const void*,
                                       const void*) asm("_ZNSt10_Sp_lockerC1EPKvS1_");
void kasane_lock_pointers(PointerLock* self, const void* p, const void* q) {
  if (g_words == nullptr || (!is_shared_atomic(p) && !is_shared_atomic(q)))
    return g_lock_two.get()(self, p, q);
  *self = kOfJob;
  ::pthread_mutex_lock(&g_words->lock);
}
KASANE_SHOWN void kasane_lock_pointers_base(PointerLock*, const void*,
                                            const void*) asm("_ZNSt10_Sp_lockerC2EPKvS1_");
void kasane_lock_pointers_base(PointerLock* self, const void* p, const void* q) {
  kasane_lock_pointers(self, p, q);
}

KASANE_SHOWN void kasane_unlock_pointers(PointerLock*) asm("_ZNSt10_Sp_lockerD1Ev");
void kasane_unlock_pointers(PointerLock* self) {
  if (self->first != kOfJob.first) return g_unlock.get()(self);
  ::pthread_mutex_unlock(&g_words->lock);
}
KASANE_SHOWN void kasane_unlock_pointers_base(PointerLock*) asm("_ZNSt10_Sp_lockerD2Ev");
void kasane_unlock_pointers_base(PointerLock* self) { kasane_unlock_pointers(self); }

// ---- -D_GLIBCXX_DEBUG: what takes the lock of a container's lists of iterators ----------------------------

// __gnu_debug::_Safe_sequence_base::_M_get_mutex(). A __gnu_cxx::__mutex& is returned as its address.
KASANE_SHOWN pthread_mutex_t* kasane_lock_of_iterators(const void*) asm(
    "_ZN11__gnu_debug19_Safe_sequence_base12_M_get_mutexEv");
pthread_mutex_t* kasane_lock_of_iterators(const void* container) {
  pthread_mutex_t* const lock = lock_of_iterators(container);
  return lock != nullptr ? lock : g_lock_of_iterators.get()(container);
}

// _M_detach() of iterators, and of those of one bucket, which libstdc++ compiled with the lock of its own.
KASANE_SHOWN void kasane_detach_iterator(DebugIterator*) asm(
    "_ZN11__gnu_debug19_Safe_iterator_base9_M_detachEv");
void kasane_detach_iterator(DebugIterator* self) { detach_iterator(self, g_detach, g_attach_single); }
KASANE_SHOWN void kasane_detach_iterator_local(DebugIterator*) asm(
    "_ZN11__gnu_debug25_Safe_local_iterator_base9_M_detachEv");
void kasane_detach_iterator_local(DebugIterator* self) {
  detach_iterator(self, g_detach_local, g_attach_single_local);
}

}  // extern "C"

#undef KASANE_SHOWN
#endif
