// SPDX-License-Identifier: Apache-2.0
/// @file
/// Kasane: programs written with threads, pointers and new, over one global address space that spans several
/// ranks.
///
///     #include <kasane/kasane.hpp>
///     int main() {
///       long sum = 0;                              // on main's stack, which lies in the space
///       kasane::run([&] {
///         kasane::thread child([&] { sum = 42; }); // may run on any rank, and move with its stack
///         child.join();                            // afterwards the child's writes are visible here
///       });
///       return sum == 42 ? 0 : 1;
///     }
///
/// **What is shared**: the program's variables, thread stacks, main's stack, what the program's new and
/// allocate() give; at the same address on every rank. **What is not**: thread_local, variables of libraries
/// and malloc's heap belong to each rank.
///
/// **Consistency**: programs without data races see sequential consistency. Fork, join and the
/// synchronisation of this header and of kasane/sync.hpp order memory, also between ranks; std::atomic
/// does so where GCC compiles the program, std::mutex and its like where they lie in global memory.
///
/// **Errors**: misuse and failures of the machine throw kasane::error with a text that says what to do;
/// exhausted memory throws out_of_memory (a std::bad_alloc). Misuse that would lose data ends the program
/// with a message.
///
/// **Thread safety**: functions may be called from any thread of any rank; an object by one thread at a time
/// unless it says otherwise.
///
/// Sources: the separation of allocating a thread from starting it, and release_all / acquire_all, are from
/// Wataru Endo's thesis (2017), section 6.1 and 6.2.2; work-first fork–join by recursive bisection follows
/// Cilk (Frigo, Leiserson, Randall 1998).
#pragma once

#if __cplusplus < 202002L
#error "Kasane needs C++20: compile with -std=c++20 (CMake's target kasane::kasane asks for it)"
#endif

#include <cxxabi.h>
#include <kasane/kasane.h>

#include <kasane/clock.hpp>
#include <kasane/error.hpp>
#include <kasane/global_ptr.hpp>
#include <kasane/sync.hpp>

#include <cerrno>
#include <chrono>
#include <compare>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <iterator>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <stdexcept>
#include <tuple>
#include <type_traits>
#include <utility>

namespace kasane {

// ---- the job --------------------------------------------------------------------------------------------

/// The rank on which the caller runs now. It may be another one after any fork, join, yield, lock or wait.
[[nodiscard]] inline std::uint32_t rank() noexcept { return kasane_rank(); }
/// Number of ranks; 1 without `kasane run`.
[[nodiscard]] inline std::uint32_t ranks() noexcept { return kasane_ranks(); }
/// Workers of each rank.
[[nodiscard]] inline std::uint32_t workers() noexcept { return kasane_workers(); }
/// Bytes of DRAM that this rank may always have for global memory (`kasane run --dram`): what is beyond it
/// may lie on SSD. The largest number: there is no limit.
[[nodiscard]] inline std::uint64_t dram() noexcept { return kasane_dram(); }

/// Runs f() as the root user-level thread and returns its value when it (not what it detached) has ended.
/// Called from main, on rank 0; may be called again afterwards. An exception of f passes through. f may
/// capture main's locals by reference: main's stack lies in the space.
/// Consistency: all that f and the threads it joined did is visible to the caller.
/// Throws error EPERM inside of a thread (use thread or parallel_invoke there).
template <class Callable>
auto run(Callable&& f) -> std::invoke_result_t<Callable&> {
  using Value = std::invoke_result_t<Callable&>;
  static_assert(!std::is_reference_v<Value>, "return a value or a pointer from run()");
  if constexpr (std::is_void_v<Value>) {
    struct Root {
      std::remove_reference_t<Callable>& f;
    } root{f};
    detail::check(kasane_run([](void* p) { std::invoke(static_cast<Root*>(p)->f); }, &root));
  } else {
    struct Root {
      std::remove_reference_t<Callable>& f;
      std::optional<Value> value;
    } root{f, std::nullopt};
    detail::check(kasane_run(
        [](void* p) {
          auto* r = static_cast<Root*>(p);
          r->value.emplace(std::invoke(r->f));
        },
        &root));
    if (!root.value)
      throw error(ECANCELED, "kasane::run: the root thread ended by this_thread::exit, so it has no value");
    return std::move(*root.value);
  }
}

// ---- memory ---------------------------------------------------------------------------------------------

/// Bytes of a page. A page has one owner at a time and moves as a whole.
/// 4 KiB: for data of different ranks that lie close together
inline constexpr std::size_t page_small = KASANE_PAGE_SMALL;
inline constexpr std::size_t page_default = KASANE_PAGE_DEFAULT;  ///< 64 KiB
inline constexpr std::size_t page_large = KASANE_PAGE_LARGE;      ///< 2 MiB: for large arrays

/// Which rank owns the pages of an allocation at first, and how large they are. A value, also for template
/// arguments.
/// An allocation smaller than a page shares its page with other objects, and moves with it to the rank that
/// uses those.
struct placement {
  kasane_placement_t kind = KASANE_PLACEMENT_LOCAL;
  std::uint64_t argument = 0;  ///< as kasane_placement_t says
  std::size_t page_bytes = page_default;
  bool is_fixed = false;   ///< see fixed()
  bool is_strict = false;  ///< see strict()

  static const placement local;        ///< the allocating rank
  static const placement block;        ///< each rank one consecutive part, the first at rank 0
  static const placement cyclic;       ///< page by page in turn
  static const placement first_touch;  ///< the rank that loads or stores a page first
  /// `bytes` (a multiple of the page) at each rank in turn.
  [[nodiscard]] static constexpr placement block_cyclic(std::size_t bytes) noexcept {
    return {KASANE_PLACEMENT_BLOCK_CYCLIC, bytes};
  }
  /// At one rank, which takes no part in the call.
  [[nodiscard]] static constexpr placement on(std::uint32_t rank) noexcept {
    return {KASANE_PLACEMENT_ONE_RANK, rank};
  }
  /// The allocating rank, in the memory of a NUMA node of its machine, in the system's numbers. A node that
  /// is full is helped out by others (kasane/numa.hpp tells).
  [[nodiscard]] static constexpr placement numa(std::uint32_t node) noexcept {
    return {KASANE_PLACEMENT_NUMA, node};
  }
  /// Likewise page by page of several nodes in turn: bit n of `nodes` names node n; 0: all.
  [[nodiscard]] static constexpr placement numa_interleave(std::uint64_t nodes = 0) noexcept {
    return {KASANE_PLACEMENT_NUMA_INTERLEAVE, nodes};
  }
  /// Likewise by the weights of the machine's nodes (Linux 6.9).
  [[nodiscard]] static constexpr placement numa_weighted(std::uint64_t nodes = 0) noexcept {
    return {KASANE_PLACEMENT_NUMA_WEIGHTED, nodes};
  }
  /// Likewise one consecutive part of about equal size on each node, in whole pages.
  [[nodiscard]] static constexpr placement numa_blocks(std::uint64_t nodes = 0) noexcept {
    return {KASANE_PLACEMENT_NUMA_BLOCKS, nodes};
  }
  /// The same of numa() and its kin, but allocate() touches all pages, and throws out_of_memory where one
  /// lies on another node or is not in DRAM. What the kernel moves later is not seen.
  [[nodiscard]] constexpr placement strict() const noexcept {
    return {kind, argument, page_bytes, is_fixed, true};
  }
  /// The same in pages of another size: page_small, page_default or page_large.
  [[nodiscard]] constexpr placement in_pages(std::size_t bytes) const noexcept {
    return {kind, argument, bytes, is_fixed, is_strict};
  }
  /// The same in whole pages whose owner never changes: own() and give() to another rank throw error EBUSY,
  /// no rank draws them, and they go to SSD as ever. Not of first_touch. At their owner loads, stores and
  /// std::atomic_ref (seq_cst or relaxed) are the direct view: they and all ranks' get, put, accumulate, copy
  /// and atomics meet in one frame, with no fence. At other ranks loads and stores use the coherent view, as
  /// ever.
  [[nodiscard]] constexpr placement fixed() const noexcept {
    return {kind, argument, page_bytes, true, is_strict};
  }

  friend bool operator==(const placement&, const placement&) = default;
};
inline constexpr placement placement::local{KASANE_PLACEMENT_LOCAL};
inline constexpr placement placement::block{KASANE_PLACEMENT_BLOCK};
inline constexpr placement placement::cyclic{KASANE_PLACEMENT_CYCLIC};
inline constexpr placement placement::first_touch{KASANE_PLACEMENT_FIRST_TOUCH};

namespace detail {
[[nodiscard]] constexpr kasane_placement_t kind_of(const placement& where) noexcept {
  return static_cast<kasane_placement_t>(static_cast<int>(where.kind) |
                                         (where.is_fixed ? int{KASANE_PLACEMENT_FIXED} : 0) |
                                         (where.is_strict ? int{KASANE_PLACEMENT_STRICT} : 0));
}
}  // namespace detail

/// Global memory of `bytes`, not initialised, aligned to `align` (a power of two up to 64 KiB). Throws
/// out_of_memory; error EINVAL: an impossible placement. No fence.
[[nodiscard]] inline void* allocate(std::size_t bytes, std::size_t align = 16,
                                    placement where = placement::local) {
  void* p = kasane_allocate_placed(bytes, align, detail::kind_of(where), where.argument, where.page_bytes);
  if (p == nullptr) [[unlikely]]
    detail::throw_last_error();
  return p;
}
/// The same, all zero, in both views. Pages that were never used are not written, and cost no memory until
/// they are.
[[nodiscard]] inline void* allocate_zeroed(std::size_t bytes, std::size_t align = 16,
                                           placement where = placement::local) {
  void* p = kasane_allocate_zeroed(bytes, align, detail::kind_of(where), where.argument, where.page_bytes);
  if (p == nullptr) [[unlikely]]
    detail::throw_last_error();
  return p;
}
/// Changes the size of an allocation, in place or at another address of the same rank and NUMA nodes
/// (numa_blocks: of none), to which its bytes are copied. Null: allocates. `bytes` is not 0.
/// Throws out_of_memory, and the allocation is unchanged.
[[nodiscard]] inline void* reallocate(void* p, std::size_t bytes) {
  void* q = kasane_realloc(p, bytes != 0 ? bytes : 1);
  if (q == nullptr) [[unlikely]]
    detail::throw_last_error();
  return q;
}
/// Bytes that may be used at p, an allocation.
[[nodiscard]] inline std::size_t usable_size(const void* p) noexcept { return kasane_usable_size(p); }
/// Frees memory of allocate(), from any rank. Null: nothing happens.
inline void deallocate(void* p) noexcept { kasane_free(p); }

/// For standard containers: std::vector<int, kasane::allocator<int>>. On a user-level thread plain new does
/// the same; this allocator takes global memory on any OS thread, with a placement.
template <class Type, placement Where = placement::local>
class allocator {
 public:
  using value_type = Type;
  template <class Other>
  struct rebind {
    using other = allocator<Other, Where>;
  };

  allocator() noexcept = default;
  template <class Other>
  allocator(const allocator<Other, Where>&) noexcept {}

  [[nodiscard]] Type* allocate(std::size_t n) {
    if (n > static_cast<std::size_t>(-1) / sizeof(Type)) throw std::bad_array_new_length();
    return static_cast<Type*>(
        kasane::allocate(n * sizeof(Type), alignof(Type) < 16 ? 16 : alignof(Type), Where));
  }
  void deallocate(Type* p, std::size_t) noexcept { kasane::deallocate(p); }
  template <class Other>
  friend bool operator==(const allocator&, const allocator<Other, Where>&) noexcept {
    return true;
  }
};

/// Frees what make_array() allocated.
struct array_deleter {
  void operator()(void* p) const noexcept { deallocate(p); }
};
template <class Type>
using unique_array = std::unique_ptr<Type[], array_deleter>;

/// n elements of Type in global memory, not initialised. Throws out_of_memory.
template <class Type>
[[nodiscard]] unique_array<Type> make_array(std::size_t n, placement where = placement::local) {
  static_assert(std::is_trivially_default_constructible_v<Type> && std::is_trivially_destructible_v<Type>);
  static_assert(alignof(Type) <= 65536);
  if (n > static_cast<std::size_t>(-1) / sizeof(Type)) throw std::bad_array_new_length();
  return unique_array<Type>(
      static_cast<Type*>(allocate(n * sizeof(Type), alignof(Type) < 64 ? 64 : alignof(Type), where)));
}

/// Writes back everything that this rank wrote; returns when the owners have it. Needed only between uses of
/// one datum by loads and stores and by get and put, or where ranks are ordered by other means than Kasane's.
inline void release_all() { kasane_release_all(); }
/// Afterwards loads on this rank see what other ranks had released.
inline void acquire_all() { kasane_acquire_all(); }

// get and put with plain pointers; all other forms of the direct view, and what they have in common:
// kasane/global_ptr.hpp.

/// Reads n objects at `global` from their owner, uncached, into any memory. Throws error EINVAL if it is not
/// global memory.
template <class Type>
void get(Type* destination, const Type* global, std::size_t n = 1) {
  static_assert(std::is_trivially_copyable_v<Type>);
  detail::check(kasane_get(destination, global, n * sizeof(Type)));
}
/// Writes n objects from any memory to the owner's copy of `global`, uncached; complete on return.
template <class Type>
void put(Type* global, const Type* source, std::size_t n = 1) {
  static_assert(std::is_trivially_copyable_v<Type>);
  detail::check(kasane_put(global, source, n * sizeof(Type)));
}

/// Makes this rank the owner of the pages (64 KiB) that hold n objects at p, contents included. Afterwards
/// its loads and stores there need no communication until another rank takes the pages. What else lies on the
/// first and last page moves too. No fence, and no contents change; loads, stores, gets and puts of all ranks
/// continue meanwhile.
/// Throws error EINVAL (not allocated global memory, with the address) or EBUSY (the owner has a view of a
/// page); some pages may have moved then.
template <class Type>
void own(const Type* p, std::size_t n = 1) {
  detail::check(kasane_own(p, n * sizeof(Type)));
}
/// As own() for another rank; returns when that rank owns the pages. Throws error EINVAL also if there is no
/// such rank.
template <class Type>
void give(const Type* p, std::size_t n, std::uint32_t to) {
  detail::check(kasane_give(p, n * sizeof(Type), to));
}
/// The rank that owns the page of *p. The page may move at any time, so the answer may be old. Throws error
/// EINVAL if p is not allocated global memory.
[[nodiscard]] inline std::uint32_t where(const void* p) {
  std::uint32_t rank = 0;
  detail::check(kasane_where(p, &rank));
  return rank;
}

// ---- views ----------------------------------------------------------------------------------------------

/// What the elements of a view are for. write_only: each is assigned before the view ends, and none is read
/// before: only the blocks at the edges are fetched.
enum class view_access : int {
  read = KASANE_READ,
  read_write = KASANE_READ_WRITE,
  write_only = KASANE_WRITE_ONLY
};
/// For the constructor of view.
inline constexpr view_access read_write = view_access::read_write;
inline constexpr view_access write_only = view_access::write_only;

/// The n objects at p, present (and writable) as long as the view lives: absent blocks are fetched together,
/// without faults. It is a range, and may be passed to system calls.
/// After the checkout and checkin of Itoyori (Shiina, Taura: Itoyori: Reconciling Global Address Space and
/// Global Fork-Join Task Parallelism, SC 2023).
///
///     kasane::view in(source, n);                                // of const Type: to be read
///     kasane::view out(target, n, kasane::write_only);
///     std::transform(in.begin(), in.end(), out.begin(), f);
///
/// Consistency: as of loads and stores; a view is no fence. Elements of a write_only view that were not
/// assigned have an unspecified value afterwards, at all ranks.
/// Thread safety: a view belongs to the rank on which it was made: its scope has no call that may move the
/// thread (fork, join, yield, lock, wait); for such scopes there is prefetch().
/// Pages of a view do not move, and every release sends a writable one: keep it short. Views may overlap.
/// Private memory is accepted, and nothing is done for it.
/// Throws error EINVAL if an address is not allocated, ENOMEM if the view is larger than the budget of DRAM
/// (`kasane run --dram`).
template <class Type>
class view {
 public:
  /// To be read.
  view(Type* p, std::size_t n)
    requires std::is_const_v<Type>
      : view(p, n, view_access::read) {}
  /// use: read_write or write_only.
  view(Type* p, std::size_t n, view_access use) : p_(p), n_(n) {
    detail::check(kasane_view(p, n * sizeof(Type), static_cast<int>(use)));
  }
  view(const view&) = delete;
  view& operator=(const view&) = delete;
  ~view() { kasane_end_view(p_, n_ * sizeof(Type)); }

  [[nodiscard]] Type* data() const noexcept { return p_; }
  [[nodiscard]] std::size_t size() const noexcept { return n_; }
  [[nodiscard]] Type* begin() const noexcept { return p_; }
  [[nodiscard]] Type* end() const noexcept { return p_ + n_; }
  [[nodiscard]] Type& operator[](std::size_t i) const noexcept { return p_[i]; }

 private:
  Type* p_;
  std::size_t n_;
};
template <class Type>
view(Type*, std::size_t) -> view<const Type>;

/// As a view that ends at once: accesses soon afterwards find the n objects present (and writable), unless a
/// fence or a move has dropped them. A hint, for scopes that a view must not have.
/// Waits for what is at other ranks; reads of what is on SSD (`kasane run --dram`) are only started, so that
/// the caller computes meanwhile. A program that goes through memory in pieces prefetches each before its
/// use, and the runtime reads ahead what follows. With write_only the caller then assigns every element
/// before it reads any.
template <class Type>
void prefetch(Type* p, std::size_t n, view_access use = view_access::read) {
  detail::check(kasane_prefetch(p, n * sizeof(Type), static_cast<int>(use)));
}
/// The values of n objects are not needed any more: changes of this rank that no release has sent are never
/// sent, and what was on SSD (`kasane run --dram`) need not be written there again.
/// The values are unspecified until they are assigned again. No other thread may use them meanwhile.
template <class Type>
void discard(Type* p, std::size_t n) {
  static_assert(std::is_trivially_destructible_v<Type>, "discard() runs no destructors");
  detail::check(kasane_discard(p, n * sizeof(Type)));
}

// ---- memory larger than DRAM ----------------------------------------------------------------------------

/// How objects are used, for kasane::advise.
enum class usage : int {
  normal = KASANE_NORMAL,
  sequential = KASANE_SEQUENTIAL,
  random = KASANE_RANDOM,
  once = KASANE_ONCE
};

/// Says how the n objects at p are used from now on, for read-ahead from SSD and for the choice of what
/// leaves DRAM first (kasane_usage). Holds for whole pages (64 KiB, unless allocated otherwise), on all
/// ranks, until the next such call. Programs work without it; without a budget (`--dram`) nothing happens. No
/// fence. Throws error EINVAL: not allocated global memory.
template <class Type>
void advise(const Type* p, std::size_t n, usage how) {
  detail::check(kasane_advise(p, n * sizeof(Type), static_cast<int>(how)));
}
/// The n objects are not needed for a while: returns when all of their pages that can leave DRAM have left.
/// What is in a view, pinned or in use stays. No fence, and no contents change.
template <class Type>
void evict(const Type* p, std::size_t n) {
  detail::check(kasane_evict(p, n * sizeof(Type)));
}
/// Brings the n objects at p into DRAM, where they stay, at whichever rank owns them, as long as the pin
/// lives. Unlike a view it gives no access: threads and pages may move meanwhile. Where nothing else can
/// leave and a thread needs room, pinned pages leave, and the rank warns once. A pin ends before the memory
/// is freed.
template <class Type>
class pin {
 public:
  pin(const Type* p, std::size_t n) : p_(p), n_(n) { detail::check(kasane_pin(p, n * sizeof(Type))); }
  pin(const pin&) = delete;
  pin& operator=(const pin&) = delete;
  ~pin() { kasane_end_pin(p_, n_ * sizeof(Type)); }

 private:
  const Type* p_;
  std::size_t n_;
};

// ---- threads --------------------------------------------------------------------------------------------

namespace detail {

/// A thread's function and arguments that are larger go to global memory: half of a stack slot is left for
/// frames.
inline constexpr std::size_t kMaxOnStack = 16 * 1024;

/// A callable and its arguments, as they lie on a new thread's stack.
template <class Callable, class... Args>
struct Call {
  Callable f;
  [[no_unique_address]] std::tuple<Args...> args;

  template <class Second, class... As>
  explicit Call(std::in_place_t, Second&& g,
                As&&... as) noexcept(std::is_nothrow_constructible_v<Callable, Second&&> &&
                                     std::is_nothrow_constructible_v<std::tuple<Args...>, As&&...>)
      : f(std::forward<Second>(g)), args(std::forward<As>(as)...) {}

  decltype(auto) operator()() {
    return std::apply(
        [this](Args&... as) -> decltype(auto) { return std::invoke(std::move(f), std::move(as)...); }, args);
  }
  static void run(void* p) {
    struct Destroy {
      Call* call;
      ~Destroy() { call->~Call(); }
    } destroy{static_cast<Call*>(p)};
    static_cast<void>((*destroy.call)());
  }
};

/// The same in memory of its own.
template <class Called>
struct Boxed {
  Called* call;
  static void run(void* p) {
    struct Free {
      Called* call;
      ~Free() { deallocate(call); }
    } box{static_cast<Boxed*>(p)->call};
    Called::run(box.call);
  }
};

/// Builds a Call on the stack of an allocated thread.
template <class Called, class... As>
void build(kasane_allocated_t t, As&&... as) {
  if constexpr (std::is_nothrow_constructible_v<Called, std::in_place_t, As&&...>) {
    ::new (t.argument) Called(std::in_place, std::forward<As>(as)...);
  } else {
    try {
      ::new (t.argument) Called(std::in_place, std::forward<As>(as)...);
    } catch (...) {
      kasane_thread_abandon(t);
      throw;
    }
  }
}

}  // namespace detail

/// Where a new thread begins: thread(near{p}, f, args...).
struct near {
  const void* address;  ///< in global memory: at the rank that owns its page
};

/// The same: thread(at{rank}, f, args...).
struct at {
  std::uint32_t rank;
};

namespace detail {
template <class Type>
concept place = std::is_same_v<Type, near> || std::is_same_v<Type, kasane::at>;

inline void move(near where) { check(kasane_thread_move_near(where.address)); }
inline void move(kasane::at where) { check(kasane_thread_move_to(where.rank)); }

template <class Callable, place Where>
struct Placed {
  Where where;
  Callable f;
  template <class... Args>
  void operator()(Args&&... args) {
    detail::move(where);
    std::invoke(std::move(f), std::forward<Args>(args)...);
  }
};
}  // namespace detail

/// A user-level thread, as std::thread, with these differences. It may run on any rank and move between them
/// with its stack. It starts at once, while another worker may steal its creator. join() rethrows an
/// exception that left it. Its function and arguments are built on its own stack, without an allocation. Any
/// thread may join it, also on another rank. A thread costs some 20 ns and a stack slot.
class thread {
 public:
  class id {
   public:
    id() noexcept = default;
    friend auto operator<=>(id, id) noexcept = default;
    /// A number that is unique in the job as long as the thread lives; 0 is no thread.
    [[nodiscard]] std::uint64_t value() const noexcept { return value_; }
    explicit id(kasane_thread_t value) noexcept : value_(value) {}

   private:
    kasane_thread_t value_ = 0;
  };

  thread() noexcept = default;

  /// Runs f(args...) with decayed copies. Throws error: EPERM outside of run(), EAGAIN if this rank has no
  /// stack slot left.
  /// Consistency: all that the creator did before is visible to the thread.
  template <class Callable, class... Args>
    requires(!std::is_same_v<std::remove_cvref_t<Callable>, thread> &&
             !detail::place<std::remove_cvref_t<Callable>>)
  explicit thread(Callable&& f, Args&&... args) {
    using Call = detail::Call<std::decay_t<Callable>, std::decay_t<Args>...>;
    static_assert(std::is_invocable_v<std::decay_t<Callable>, std::decay_t<Args>...>,
                  "the arguments do not fit the function");
    if constexpr (sizeof(Call) <= detail::kMaxOnStack)
      start<Call>(std::forward<Callable>(f), std::forward<Args>(args)...);
    else
      start_boxed<Call>(std::forward<Callable>(f), std::forward<Args>(args)...);
  }

  /// The same near an address or at a rank (a placed spawn): the thread moves to the rank that owns the page,
  /// and begins there when a worker of that rank has nothing else to run; the creator continues here. A hint
  /// what the thread will use: from then on it may be stolen like any other. It costs as much as a steal, and
  /// nothing if it is there. join() throws error EINVAL if the address is not in allocated global memory, or
  /// there is no such rank.
  template <detail::place Where, class Callable, class... Args>
  thread(Where where, Callable&& f, Args&&... args)
      : thread(detail::Placed<std::decay_t<Callable>, Where>{where, std::forward<Callable>(f)},
               std::forward<Args>(args)...) {}

  thread(thread&& other) noexcept : id_(std::exchange(other.id_, 0)) {}
  thread& operator=(thread&& other) noexcept {
    if (joinable()) std::terminate();
    id_ = std::exchange(other.id_, 0);
    return *this;
  }
  /// A thread that was neither joined nor detached: std::terminate, as std::thread.
  ~thread() {
    if (joinable()) std::terminate();
  }

  [[nodiscard]] bool joinable() const noexcept { return id_ != 0; }
  [[nodiscard]] id get_id() const noexcept { return id(id_); }
  void swap(thread& other) noexcept { std::swap(id_, other.id_); }

  /// Waits until the thread has ended; all that it did is visible afterwards. Throws what it threw; error
  /// EINVAL if not joinable.
  void join() { detail::check(kasane_thread_join(std::exchange(id_, 0))); }
  /// No thread will join it. An exception that leaves it ends the program. Throws error EINVAL if not
  /// joinable.
  void detach() { detail::check(kasane_thread_detach(std::exchange(id_, 0))); }

 private:
  template <class Call, class... As>
  void start(As&&... as) {
    const kasane_allocated_t t = kasane_thread_allocate(alignof(Call), sizeof(Call));
    if (t.id == 0) [[unlikely]]
      detail::throw_last_error();
    detail::build<Call>(t, std::forward<As>(as)...);
    id_ = t.id;  // before the fork: the child runs first, and may look
    kasane_thread_fork(t, &Call::run);
  }

  template <class Call, class... As>
  void start_boxed(As&&... as) {
    std::unique_ptr<void, array_deleter> memory(
        allocate(sizeof(Call), alignof(Call) < 16 ? 16 : alignof(Call)));
    auto* call = ::new (memory.get()) Call(std::in_place, std::forward<As>(as)...);
    const kasane_allocated_t t =
        kasane_thread_allocate(alignof(detail::Boxed<Call>), sizeof(detail::Boxed<Call>));
    if (t.id == 0) [[unlikely]] {
      call->~Call();
      detail::throw_last_error();
    }
    ::new (t.argument) detail::Boxed<Call>{call};
    memory.release();
    id_ = t.id;
    kasane_thread_fork(t, &detail::Boxed<Call>::run);
  }

  kasane_thread_t id_ = 0;
};

namespace this_thread {
/// Lets other threads of this rank run.
inline void yield() noexcept { kasane_thread_yield(); }
/// Moves the calling thread, with its stack, to the rank that owns the page of p: see thread(near, …).
/// Earlier values of rank(), and references to thread_local variables, are wrong afterwards. Throws error
/// EPERM outside of threads, EINVAL if p is not in allocated global memory.
inline void move_near(const void* p) { detail::check(kasane_thread_move_near(p)); }
/// The same to a rank. Throws error EINVAL if there is no such rank.
inline void move_to(std::uint32_t rank) { detail::check(kasane_thread_move_to(rank)); }
/// The calling thread; a default id outside of threads.
[[nodiscard]] inline thread::id get_id() noexcept { return thread::id(kasane_thread_self()); }
/// Ends the calling thread from any depth as if its function had returned (thesis, section 6.1). Destructors
/// run; a catch (...) on the way has to rethrow.
[[noreturn]] inline void exit() { kasane_thread_exit(); }
}  // namespace this_thread

namespace detail {
template <class Result, place Where, class Call>
struct Asked {
  Where where;
  promise<Result> answer;
  Call call;
  void operator()() {
    try {
      detail::move(where);
      if constexpr (std::is_void_v<Result>) {
        call();
        answer.set_value();
      } else {
        answer.set_value(call());
      }
    } catch (...) {
      answer.set_exception(std::current_exception());
    }
  }
};
}  // namespace detail

/// Calls f(args...), with decayed copies, on a thread that begins at a rank, or near an address, as
/// thread(at{…}) does. The future has its value, or what it threw (error EINVAL: no such rank). The thread
/// ends by itself; destroying the future does not wait for it. Throws error as thread, and out_of_memory.
template <detail::place Where, class Callable, class... Args>
[[nodiscard]] auto async(Where where, Callable&& f, Args&&... args) {
  using Result = std::invoke_result_t<std::decay_t<Callable>, std::decay_t<Args>...>;
  promise<Result> answer;
  future<Result> value = answer.get_future();
  using Call = detail::Call<std::decay_t<Callable>, std::decay_t<Args>...>;
  thread(detail::Asked<Result, Where, Call>{
             where, std::move(answer),
             Call(std::in_place, std::forward<Callable>(f), std::forward<Args>(args)...)})
      .detach();
  return value;
}

// ---- posts ----------------------------------------------------------------------------------------------

namespace detail {
/// p: what was posted, which lies at a multiple of 16.
template <class Call>
void call_posted(void* p) {
  if constexpr (alignof(Call) <= 16) {
    (*static_cast<Call*>(p))();
  } else {
    alignas(Call) std::byte aligned[sizeof(Call)];
    std::memcpy(aligned, p, sizeof aligned);
    (*std::launder(reinterpret_cast<Call*>(aligned)))();
  }
}
}  // namespace detail

/// Calls that run at other ranks, many in a message, in no order:
///
///     kasane::post_group g;
///     for (…) g.post(owner_of(key), [table](long key) { count(table, key); }, key);
///     g.wait();                                  // all have run, those that were posted by posts included
///
/// Functions and arguments are trivially copyable, 1 KiB together; captures and pointers are fine. Each runs
/// once, on a thread of that rank, and may post itself. It may wait, but not for posts of its group. Posts
/// are buffered at the poster's rank (`--debug post-buffer`), and sent when a buffer is full, by wait(),
/// or soon when there is nothing else to run. Posters of a rank that does not keep up are held back for a
/// while. Consistency: no fence. What a post uses beside its arguments it uses directly (get, put, atomics),
/// or is visible to it otherwise. A group costs a sleeping thread for each worker of the job, and buffers.
/// Thread safety: any thread of any rank. Errors: EPERM: not on a thread. EAGAIN (the constructor): no thread
/// slot is left.
class post_group {
 public:
  post_group() : group_(kasane_post_group_create()) {
    if (group_ == nullptr) detail::throw_last_error();
  }
  post_group(const post_group&) = delete;
  post_group& operator=(const post_group&) = delete;
  /// Waits. What a post threw and no wait() has: where an exception ends the group's scope, it is dropped, as
  /// that exception goes on; else it ends the program (std::terminate).
  ~post_group() noexcept {
    try {
      wait();
    } catch (...) {
      if (std::uncaught_exceptions() == exceptions_) std::terminate();
    }
    detail::check(kasane_post_group_destroy(group_));
  }

  /// f(args...) is to run at `rank`. Throws error EINVAL: no such rank.
  template <class Callable, class... Args>
  void post(std::uint32_t rank, Callable f, Args... args) {
    static_assert(std::is_trivially_copyable_v<Callable> && (std::is_trivially_copyable_v<Args> && ...),
                  "they go from rank to rank as bytes");
    auto call = [f, args...]() mutable { std::invoke(f, args...); };
    using Call = decltype(call);
    static_assert(sizeof(Call) <= 1024, "a function and its arguments have 1 KiB; pass a pointer instead");
    detail::check(kasane_post(
        group_, rank, [](void* p) { detail::call_posted<Call>(p); }, std::addressof(call),
        std::is_empty_v<Call> ? 0 : sizeof call));
  }
  /// Returns when all posts of the group have run. Throws what left one of them, the first.
  void wait() { detail::check(kasane_post_wait(group_)); }

 private:
  kasane_post_group_t* group_;
  int exceptions_ = std::uncaught_exceptions();
};

// ---- synchronisation (more: kasane/sync.hpp) ------------------------------------------------------------

/// Mutual exclusion among all threads of the job. Lockable: std::lock_guard, std::unique_lock and
/// std::scoped_lock work. Not recursive; may be held over a fork, a join or a move.
/// lock() sees all that earlier holders did. Waiters are served in batches, in the order of their arrival.
/// It is made inside of run(), and lies where all its users reach it: on a stack, or in global memory.
class mutex {
 public:
  mutex() { detail::check(kasane_mutex_init(&m_)); }
  mutex(const mutex&) = delete;
  mutex& operator=(const mutex&) = delete;
  ~mutex() { kasane_mutex_destroy(&m_); }

  void lock() { detail::check(kasane_mutex_lock(&m_)); }
  [[nodiscard]] bool try_lock() { return detail::tried(kasane_mutex_trylock(&m_)); }
  void unlock() { kasane_mutex_unlock(&m_); }
  [[nodiscard]] kasane_mutex_t* native_handle() noexcept { return &m_; }

 private:
  kasane_mutex_t m_{};
};

/// Waiting for a condition that a mutex guards. Made inside of run().
class condition_variable {
 public:
  condition_variable() { detail::check(kasane_cond_init(&c_)); }
  condition_variable(const condition_variable&) = delete;
  condition_variable& operator=(const condition_variable&) = delete;
  ~condition_variable() { kasane_cond_destroy(&c_); }

  /// Unlocks the mutex, waits, and locks it again. May wake without reason: test the condition.
  void wait(std::unique_lock<mutex>& lock) {
    detail::check(kasane_cond_wait(&c_, lock.mutex()->native_handle()));
  }
  /// Waits until done() is true.
  template <class Predicate>
  void wait(std::unique_lock<mutex>& lock, Predicate done) {
    while (!done()) wait(lock);
  }
  /// As wait, but not after `time` (of any clock; kasane::clock is the same on all ranks). The mutex is held
  /// again in any case.
  template <class Clock, class Duration>
  std::cv_status wait_until(std::unique_lock<mutex>& lock,
                            const std::chrono::time_point<Clock, Duration>& time) {
    const bool notified = wait_by(lock, detail::deadline_after(detail::left_until(time)));
    return notified || detail::left_until(time) > detail::Nanoseconds::zero() ? std::cv_status::no_timeout
                                                                              : std::cv_status::timeout;
  }
  /// Waits until done() is true, or `time` has come; returns done().
  template <class Clock, class Duration, class Predicate>
  bool wait_until(std::unique_lock<mutex>& lock, const std::chrono::time_point<Clock, Duration>& time,
                  Predicate done) {
    while (!done())
      if (wait_until(lock, time) == std::cv_status::timeout) return done();
    return true;
  }
  template <class Rep, class Period>
  std::cv_status wait_for(std::unique_lock<mutex>& lock, const std::chrono::duration<Rep, Period>& timeout) {
    return wait_by(lock, detail::deadline_after(timeout)) ? std::cv_status::no_timeout
                                                          : std::cv_status::timeout;
  }
  template <class Rep, class Period, class Predicate>
  bool wait_for(std::unique_lock<mutex>& lock, const std::chrono::duration<Rep, Period>& timeout,
                Predicate done) {
    const std::uint64_t deadline_ns = detail::deadline_after(timeout);
    while (!done())
      if (!wait_by(lock, deadline_ns)) return done();
    return true;
  }
  void notify_one() { detail::check(kasane_cond_signal(&c_)); }
  void notify_all() { detail::check(kasane_cond_broadcast(&c_)); }

 private:
  bool wait_by(std::unique_lock<mutex>& lock, std::uint64_t deadline_ns) {
    return detail::tried(kasane_cond_timedwait(&c_, lock.mutex()->native_handle(), deadline_ns), ETIMEDOUT);
  }
  kasane_cond_t c_{};
};

/// Holds `count` threads until all have arrived, in phase after phase. Made inside of run(). A thread that
/// has arrived in a phase waits for it before it arrives again.
/// Consistency: all that was done before the arrivals of a phase is visible to threads that have waited for
/// it. An arrival writes back what its rank has written; a wait drops what other ranks may have changed (with
/// one rank: nothing).
/// Thread safety: every call from any thread of any rank. Errors: EPERM: not on a thread. EINVAL: as said.
class barrier {
 public:
  /// A phase in which a thread has arrived. Moved, not copied; any thread may wait for it, once, while the
  /// next phase has not ended.
  class arrival_token {
   public:
    arrival_token(arrival_token&&) noexcept = default;
    arrival_token& operator=(arrival_token&&) noexcept = default;

   private:
    friend class barrier;
    explicit arrival_token(std::uint32_t phase) noexcept : phase_(phase) {}
    std::uint32_t phase_;
  };

  /// Throws error EINVAL if count is 0 or more than max().
  explicit barrier(std::uint32_t count) { detail::check(kasane_barrier_init(&b_, count)); }
  barrier(const barrier&) = delete;
  barrier& operator=(const barrier&) = delete;
  ~barrier() { kasane_barrier_destroy(&b_); }

  [[nodiscard]] static constexpr std::uint32_t max() noexcept { return KASANE_BARRIER_MAX; }
  void arrive_and_wait() { detail::check(kasane_barrier_wait(&b_)); }
  /// Arrives n times without waiting. Throws error EINVAL if n is 0 or more than the phase still waits for.
  [[nodiscard]] arrival_token arrive(std::uint32_t n = 1) {
    std::uint32_t phase = 0;
    detail::check(kasane_barrier_arrive(&b_, n, &phase));
    return arrival_token(phase);
  }
  /// Waits until the phase of the token is over.
  void wait(arrival_token&& token) const { detail::check(kasane_barrier_wait_phase(&b_, token.phase_)); }
  /// Arrives for the last time: this phase counts it, later ones wait for one thread less. Throws error
  /// EINVAL if no thread is left.
  void arrive_and_drop() { detail::check(kasane_barrier_arrive_and_drop(&b_)); }

 private:
  mutable kasane_barrier_t b_{};
};

/// A value of which each thread has its own, zero at first, as of thread_local, which does not move with a
/// thread. The job has 4 of them, which are never freed: create each once, inside of run(), and share it;
/// keep pointers in it. Any thread of any rank may use it.
template <class Type>
class local {
  static_assert(sizeof(Type) <= sizeof(void*) && std::is_trivially_copyable_v<Type> &&
                std::is_trivially_destructible_v<Type>);

 public:
  /// destructor (may be null): called at a thread's end on a value of it that is not zero. Throws error
  /// EAGAIN if no key is left.
  explicit local(void (*destructor)(void*) = nullptr) { detail::check(kasane_key_create(&key_, destructor)); }
  local(const local&) = delete;
  local& operator=(const local&) = delete;

  /// The calling thread's value.
  [[nodiscard]] Type get() const noexcept {
    void* bits = kasane_key_get(key_);
    Type value;
    __builtin_memcpy(&value, &bits, sizeof value);
    return value;
  }
  void set(Type value) const {
    void* bits = nullptr;
    __builtin_memcpy(&bits, &value, sizeof value);
    detail::check(kasane_key_set(key_, bits));
  }

 private:
  kasane_key_t key_ = 0;
};

// ---- parallel patterns ----------------------------------------------------------------------------------

/// Grain of parallel_for and parallel_reduce: about eight pieces for each worker of the job, at most 2048
/// iterations each.
inline constexpr std::size_t automatic = 0;

namespace detail {

/// A function object on its way down the recursion: small trivial ones by value, so that a piece on another
/// rank does not fetch them from the caller's stack again; others by a pointer to the caller's.
template <class Callable>
class Carried {
  static constexpr bool is_by_value() {
    if constexpr (std::is_trivially_copyable_v<Callable>)  // an object, not a function
      return sizeof(Callable) <= 64 && alignof(Callable) <= 16;
    else
      return false;
  }

 public:
  static constexpr bool kByValue = is_by_value();
  explicit Carried(Callable& f) noexcept : f_(hold(f)) {}
  [[nodiscard]] Callable& operator*() noexcept {
    if constexpr (kByValue)
      return f_;
    else
      return *f_;
  }

 private:
  static auto hold(Callable& f) noexcept {
    if constexpr (kByValue)
      return f;
    else
      return std::addressof(f);
  }
  std::conditional_t<kByValue, Callable, Callable*> f_;
};

/// Runs left() as a thread, at once, and right() here, and joins, whatever they throw. The exception that
/// comes first in serial order is rethrown.
/// Where no thread slot is left both run here: the program becomes slower, but does not stop.
template <class Left, class Right>
void fork_join_at_once(Left&& left, Right&& right) {
  using Call = Call<std::decay_t<Left>>;
  static_assert(sizeof(Call) <= kMaxOnStack);
  const kasane_allocated_t t = kasane_thread_allocate(alignof(Call), sizeof(Call));
  if (t.id == 0) [[unlikely]] {
    if (kasane_error_code() != EAGAIN) throw_last_error();
    left();
    right();
    return;
  }
  build<Call>(t, std::forward<Left>(left));
  kasane_thread_fork(t, &Call::run);
  if constexpr (noexcept(right())) {
    right();
    check(kasane_thread_join(t.id));
  } else {
    std::exception_ptr failure;
    try {
      right();
    } catch (...) {
      failure = std::current_exception();  // joined outside of the handler
    }
    check(kasane_thread_join(t.id));
    if (failure) [[unlikely]]
      std::rethrow_exception(std::move(failure));
  }
}

/// What fork_join() offers to others: of a small trivial function a copy, so that a thread on another rank
/// does not fetch it from its caller's stack; else its address.
template <class Callable>
struct Lazy {
  static void run(void* function) { std::invoke(*static_cast<Callable*>(function)); }
  static void run_at(void* address) { std::invoke(**static_cast<Callable**>(address)); }
  static constexpr bool kCopied = Carried<Callable>::kByValue;
  static constexpr kasane_lazy_kind_t kKind{kCopied ? run : run_at, kCopied ? sizeof(Callable) : 0};
};

/// The exception that is being handled, as a word: a local variable of a class costs a fork–join that throws
/// nothing a tenth of its time. To be passed to rethrow_held() once.
[[nodiscard, gnu::cold, gnu::noinline]] inline void* hold_exception() noexcept {
  static_assert(sizeof(std::exception_ptr) == sizeof(void*));
  alignas(std::exception_ptr) std::byte bytes[sizeof(void*)];
  ::new (static_cast<void*>(bytes)) std::exception_ptr(std::current_exception());
  void* word = nullptr;
  __builtin_memcpy(&word, bytes, sizeof word);
  return word;
}
[[noreturn, gnu::cold, gnu::noinline]] inline void rethrow_held(void* word) {
  std::exception_ptr held;
  __builtin_memcpy(static_cast<void*>(&held), &word, sizeof word);
  std::rethrow_exception(std::move(held));
}

/// Ends a record whose frame is left by a forced unwinding (pthread_exit), or by an exception: its function
/// is called, and what it throws is lost.
[[gnu::cold, gnu::noinline]] inline void end_forced(kasane_lazy_worker_t* worker,
                                                    kasane_lazy_t* record) noexcept {
  try {
    if (kasane_lazy_end(worker, record))
      record->kind->run(const_cast<void*>(record->kind->bytes != 0 ? record->argument : &record->argument));
    else
      kasane_thread_join(record->thread);
  } catch (...) {
  }
}

/// Calls f() as if it were a thread of its own: this_thread::exit() ends it alone.
template <class Callable>
void call_alone(Callable&& f) {
  if constexpr (noexcept(std::invoke(f))) {
    std::invoke(f);
  } else {
    try {
      std::invoke(f);
    } catch (...) {
      if (!kasane_lazy_exits()) throw;
    }
  }
}

/// fork_join() of function objects.
template <class Left, class Right>
void call_and_offer(Left& left, Right& right) {
  kasane_lazy_t second;
  kasane_lazy_worker_t* const worker = kasane_lazy_begin(&second, &Lazy<Right>::kKind, std::addressof(right));
  if (worker == nullptr) [[unlikely]]
    return fork_join_at_once([&] { call_and_offer(left, right); }, []() noexcept {});  // on another stack
  void* failure = nullptr;
  if constexpr (noexcept(std::invoke(left))) {
    std::invoke(left);
  } else {
    try {
      std::invoke(left);
    } catch (abi::__forced_unwind&) {
      end_forced(worker, &second);
      throw;
    } catch (...) {
      failure = kasane_lazy_exits() ? nullptr : hold_exception();  // joined outside of the handler
    }
  }
  if (failure != nullptr) [[unlikely]] {
    end_forced(worker, &second);
    rethrow_held(failure);
  }
  if (kasane_lazy_end(worker, &second)) [[likely]]
    return call_alone(right);
  check(kasane_thread_join(second.thread));
}

/// Calls left() here and right() here afterwards, unless somebody who wants work has taken it meanwhile;
/// joins then. Whatever they throw, both are called, and the exception that comes first in serial order is
/// rethrown.
template <class Left, class Right>
void fork_join(Left&& left, Right&& right) {
  if constexpr (std::is_function_v<std::remove_reference_t<Right>>)
    return fork_join(left, [&right] { right(); });
  else
    call_and_offer(left, right);
}

/// moves: left() begins by moving to another rank, so it is a thread at once, and the caller stays.
template <class Left, class Right>
void fork_join_near(bool moves, Left&& left, Right&& right) {
  if (moves) return fork_join_at_once(std::forward<Left>(left), std::forward<Right>(right));
  fork_join(std::forward<Left>(left), std::forward<Right>(right));
}

template <class Iterator>
concept index_or_iterator = std::integral<Iterator> || std::random_access_iterator<Iterator>;

template <class Iterator>
[[nodiscard]] std::uint64_t length_of(Iterator first, Iterator last) noexcept {
  if constexpr (std::integral<Iterator>)
    return first < last ? static_cast<std::uint64_t>(last) - static_cast<std::uint64_t>(first) : 0;
  else
    return first < last ? static_cast<std::uint64_t>(last - first) : 0;
}

template <class Iterator>
[[nodiscard]] Iterator middle_of(Iterator first, Iterator last) noexcept {
  const std::uint64_t half = length_of(first, last) / 2;
  if constexpr (std::integral<Iterator>)
    return static_cast<Iterator>(static_cast<std::uint64_t>(first) + half);
  else
    return first + static_cast<std::iter_difference_t<Iterator>>(half);
}

template <class Iterator, class Callable>
decltype(auto) at(Callable& f, Iterator i) {
  if constexpr (std::integral<Iterator>)
    return std::invoke(f, i);
  else
    return std::invoke(f, *i);
}

[[nodiscard]] inline std::uint64_t grain_for(std::uint64_t n, std::uint64_t grain) noexcept {
  if (grain != automatic) return grain;
  const std::uint64_t pieces = std::uint64_t{8} * ranks() * workers();
  const std::uint64_t g = n / pieces;
  return g < 1 ? 1 : g > 2048 ? 2048 : g;
}

template <class Iterator, class Callable>
void for_pieces(Iterator first, Iterator last, Carried<Callable> f, std::uint64_t grain) {
  if (length_of(first, last) <= grain) {
    for (; first != last; ++first) at(*f, first);
    return;
  }
  const Iterator middle = middle_of(first, last);
  fork_join([&] { for_pieces<Iterator, Callable>(first, middle, f, grain); },
            [=] { for_pieces<Iterator, Callable>(middle, last, f, grain); });
}

template <class Iterator>
[[nodiscard]] Iterator advanced_by(Iterator first, std::uint64_t n) noexcept {
  if constexpr (std::integral<Iterator>)
    return static_cast<Iterator>(static_cast<std::uint64_t>(first) + n);
  else
    return first + static_cast<std::iter_difference_t<Iterator>>(n);
}

/// more than one, so that ranks with unequal shares wait less for each other
inline constexpr std::uint64_t kPartsOfARank = 4;

/// A hint: in memory that is not global, or not allocated, nothing happens.
inline void go_near(const void* p) noexcept { static_cast<void>(kasane_thread_move_near(p)); }

/// Calls run(begin, end) for parts of [begin, end) of at most `part` each, on a thread that moves near
/// place(the middle) first.
template <class Place, class Run>
void placed_parts(std::uint64_t begin, std::uint64_t end, std::uint64_t part, Carried<Place> place,
                  Carried<Run> run) {
  const std::uint64_t middle = begin + (end - begin) / 2;
  if (end - begin <= part) {
    check(kasane_thread_move_near((*place)(middle)));
    (*run)(begin, end);
    return;
  }
  // At once: each moves to its rank, without its caller.
  fork_join_at_once([=] { placed_parts<Place, Run>(begin, middle, part, place, run); },
                    [&] { placed_parts<Place, Run>(middle, end, part, place, run); });
}

/// As for_pieces, in some parts a rank, each near place(i) of the i-th iteration in its middle.
template <class Iterator, class Place, class Callable>
void for_placed(Iterator first, std::uint64_t n, Place place, Carried<Callable> f, std::uint64_t grain) {
  auto run = [first, f, grain](std::uint64_t begin, std::uint64_t end) {
    for_pieces<Iterator, Callable>(advanced_by(first, begin), advanced_by(first, end), f, grain);
  };
  const std::uint64_t even = (n - 1) / (kPartsOfARank * ranks()) + 1;
  placed_parts(0, n, even > grain ? even : grain, Carried<Place>(place), Carried<decltype(run)>(run));
}

template <class Iterator, class Type, class Map, class Combine>
Type reduce_pieces(Iterator first, Iterator last, Carried<Map> map, Carried<Combine> combine,
                   std::uint64_t grain) {
  if (length_of(first, last) <= grain) {
    Type sum(at(*map, first));
    for (++first; first != last; ++first) sum = std::invoke(*combine, std::move(sum), Type(at(*map, first)));
    return sum;
  }
  const Iterator middle = middle_of(first, last);
  std::optional<Type> left, right;
  fork_join(
      [&] { left.emplace(reduce_pieces<Iterator, Type, Map, Combine>(first, middle, map, combine, grain)); },
      [=, out = &right] {
        out->emplace(reduce_pieces<Iterator, Type, Map, Combine>(middle, last, map, combine, grain));
      });
  return std::invoke(*combine, std::move(*left), std::move(*right));
}

}  // namespace detail

/// Calls all functions, perhaps at the same time, and returns when all have returned. If some throw, all
/// others still end, and the exception of the first of them in the argument list is rethrown. A small
/// trivially copyable function is called as a copy. On a thread.
/// A function is called as part of the calling thread unless a worker that has nothing to do, of any rank,
/// takes it; then it is a thread. So a call costs a few stores. Functions that wait for each other do so by
/// calls of Kasane's (kasane/sync.hpp, or atomics of the direct view) or locks, else they may wait for ever.
/// this_thread::exit() ends the function that calls it. After E. Mohr, D. Kranz, R. Halstead, "Lazy Task
/// Creation", IEEE TPDS 2(3), 1991.
template <class Callable>
void parallel_invoke(Callable&& f) {
  std::invoke(f);
}
template <class Callable, class Second>
void parallel_invoke(Callable&& f, Second&& g) {
  detail::fork_join(f, g);
}
template <class Callable, class... Rest>
  requires(sizeof...(Rest) > 1)
void parallel_invoke(Callable&& f, Rest&&... rest) {
  detail::fork_join(f, [... r = detail::Carried<std::remove_reference_t<Rest>>(rest)]() mutable {
    parallel_invoke(*r...);
  });
}

/// Calls f(i) for each index i of [first, last), or f(*i) for random access iterators, by recursive bisection
/// down to pieces of at most `grain` iterations, each run in order. All pieces end before an exception is
/// rethrown (the first in serial order of those thrown; a piece stops at its exception).
/// f may be copied, and is called by several threads at once. On a thread.
template <detail::index_or_iterator Iterator, class Callable>
void parallel_for(Iterator first, std::type_identity_t<Iterator> last, Callable&& f,
                  std::size_t grain = automatic) {
  const std::uint64_t n = detail::length_of(first, last);
  if (n == 0) return;
  using Function = std::remove_reference_t<Callable>;
  detail::for_pieces<Iterator, Function>(first, last, detail::Carried<Function>(f),
                                         detail::grain_for(n, grain));
}
/// The same over all elements of a random access range: f(element).
template <class Range, class Callable>
  requires std::random_access_iterator<decltype(std::begin(std::declval<Range&>()))>
void parallel_for(Range&& range, Callable&& f, std::size_t grain = automatic) {
  parallel_for(std::begin(range), std::end(range), f, grain);
}

/// For parallel_for: iteration i uses what lies at element i of this array, in global memory.
template <class Type>
struct near_array {
  Type* first;
};
/// For parallel_for over contiguous iterators: iterations use above all the elements themselves.
struct near_data_t {};
inline constexpr near_data_t near_data{};

/// As parallel_for(first, last, f, grain), with a hint of affinity: the loop is cut into some parts a rank,
/// and each begins at the rank that owns the page of the element in its middle (as this_thread::move_near).
/// From then on idle workers may steal pieces as ever. For loops over data that stay where they are, as those
/// of placement::block. Each part costs as much as a steal; the caller may continue at another rank, as after
/// any fork. Throws error EINVAL if such an element is not in allocated global memory.
template <class Type, std::integral Iterator, class Callable>
void parallel_for(near_array<Type> data, Iterator first, std::type_identity_t<Iterator> last, Callable&& f,
                  std::size_t grain = automatic) {
  const std::uint64_t n = detail::length_of(first, last);
  if (n == 0) return;
  using Function = std::remove_reference_t<Callable>;
  const auto place = [from = data.first + first](std::uint64_t i) {
    return static_cast<const void*>(from + i);
  };
  detail::for_placed<Iterator>(first, n, place, detail::Carried<Function>(f), detail::grain_for(n, grain));
}
template <std::contiguous_iterator Iterator, class Callable>
void parallel_for(near_data_t, Iterator first, std::type_identity_t<Iterator> last, Callable&& f,
                  std::size_t grain = automatic) {
  const std::uint64_t n = detail::length_of(first, last);
  if (n == 0) return;
  using Function = std::remove_reference_t<Callable>;
  const auto place = [from = std::to_address(first)](std::uint64_t i) {
    return static_cast<const void*>(from + i);
  };
  detail::for_placed<Iterator>(first, n, place, detail::Carried<Function>(f), detail::grain_for(n, grain));
}

/// combine(init, combine of map(i) over [first, last)) in order: combine must be associative, need not be
/// commutative; init is used once. The value has the type of init. Iterators and grain, exceptions and
/// threads as parallel_for.
template <detail::index_or_iterator Iterator, class Type, class Map, class Combine>
[[nodiscard]] Type parallel_reduce(Iterator first, std::type_identity_t<Iterator> last, Type init, Map&& map,
                                   Combine&& combine, std::size_t grain = automatic) {
  const std::uint64_t n = detail::length_of(first, last);
  if (n == 0) return init;
  using Mapping = std::remove_reference_t<Map>;
  using Combining = std::remove_reference_t<Combine>;
  return std::invoke(combine, std::move(init),
                     detail::reduce_pieces<Iterator, Type, Mapping, Combining>(
                         first, last, detail::Carried<Mapping>(map), detail::Carried<Combining>(combine),
                         detail::grain_for(n, grain)));
}

// ---- counters -------------------------------------------------------------------------------------------

/// What a rank has counted since the start of the job, or all together: "threads", "steals_remote",
/// "bytes_fetched", …; docs/guide/options.md#counters lists them. Exact, but threads go on counting while it
/// is read. Consistency: none. Throws error EINVAL if there is no such counter or rank.
[[nodiscard]] inline std::uint64_t counter(const char* name, std::uint32_t of_rank = KASANE_ALL_RANKS) {
  std::uint64_t value = 0;
  detail::check(kasane_counter_by_name(name, of_rank, &value));
  return value;
}
/// Calls f(name, value) for each counter of the rank, or of all together. The names live as long as the
/// process.
template <class Callable>
void for_each_counter(Callable&& f, std::uint32_t of_rank = KASANE_ALL_RANKS) {
  const char* name = nullptr;
  std::uint64_t value = 0;
  detail::check(kasane_counter(0, of_rank, &name, &value));
  for (std::uint32_t i = 0; kasane_counter(i, of_rank, &name, &value) == 0; ++i) std::invoke(f, name, value);
}

}  // namespace kasane
