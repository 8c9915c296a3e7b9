/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file
 * Kasane in C: threads, pointers and memory over several ranks. C++ programs use kasane.hpp, which has the
 * same.
 *
 * A *rank* is one process of the job and one coherence domain. It has workers (OS threads) that run
 * user-level threads. The *space* is the same addresses in every rank: one range, with threads' stacks and
 * what the program allocates, and the program's variables where they are. Each rank has its own thread_local
 * variables, variables of libraries and malloc heap.
 *
 * **Errors.** A function that returns int returns 0 or an errno value: EPERM (called where it makes no sense,
 * for example outside of kasane_run), EINVAL (a bad argument), ENOMEM, EAGAIN (no thread slot left), EBUSY,
 * ETIMEDOUT, EIO (a peer or the machine). A function that returns a pointer returns NULL instead.
 * kasane_error_code() and kasane_error_message() give the error and a text. Misuse that would lose data
 * (unlocking another thread's mutex, destroying what is in use, freeing what was never allocated) ends the
 * program with a message.
 *
 * **Consistency.** Programs without data races see sequential consistency. Fork, join, mutexes, condition
 * variables and barriers order memory. Where both ends are in one rank this costs nothing; between ranks the
 * source releases and the destination acquires.
 *
 * **Thread safety.** Every function may be called from any thread of any rank unless it says otherwise.
 *
 * The thread functions follow Wataru Endo's thesis (2017), section 6.1: a thread is allocated first and
 * started afterwards, so that its argument is built on its own stack.
 */
#ifndef KASANE_KASANE_H
#define KASANE_KASANE_H

#include <stddef.h>
#include <stdint.h>

#include <kasane/built_with.h>
#include <kasane/errno.h>
#include <kasane/version.h>

#ifdef __cplusplus
#define KASANE_NORETURN [[noreturn]]
extern "C" {
#else
#define KASANE_NORETURN _Noreturn
#endif

/* ---- errors -------------------------------------------------------------------------------------------- */

/**
 * The errno value of the last call that failed on the calling worker. Read it before any call that may move
 * the thread (fork, join, lock …).
 */
int kasane_error_code(void);
/**
 * One line about that failure: what, where, what to do. Valid until the next failure on this worker. Never
 * NULL.
 */
const char* kasane_error_message(void);

/* ---- the job ------------------------------------------------------------------------------------------- */

/**
 * Runs entry(argument) as the root user-level thread, and returns when that thread has ended. Detached
 * threads may still run then. Called from main, on rank 0; main's stack lies in the space, so argument may
 * point to main's locals. A C++ exception of entry passes through. May be called again after it returned.
 * Threads of --threads spread may call it, too; one root thread runs at a time, and the others wait for it.
 * Consistency: everything that entry did is visible to the caller afterwards.
 * EPERM: called on a user-level thread, or on another OS thread. A program that was linked without
 * libkasane_start.a (pkg-config --libs kasane has it) ends with a message and status 1.
 */
int kasane_run(void (*entry)(void*), void* argument);

/**
 * The rank on which the caller runs now: 0 … kasane_ranks()-1. A thread may be on another rank after a fork,
 * join, yield, lock or wait.
 */
uint32_t kasane_rank(void);
/** Number of ranks of the job; 1 for a program started without `kasane run`. */
uint32_t kasane_ranks(void);
/** Workers of each rank. */
uint32_t kasane_workers(void);
/**
 * Bytes of DRAM that this rank may always have for global memory: its part of its host's budget
 * (`kasane run --dram`, by default most of the machine's memory). What is beyond it may lie on SSD.
 * UINT64_MAX: there is no limit. From any thread; no consistency effect.
 */
uint64_t kasane_dram(void);

/* ---- attached processes -------------------------------------------------------------------------------- */
/*
 * A program that has its own start, MPI (or none) and main in every rank may attach to Kasane: it links
 * libkasane.so alone (kasane-attach.pc, kasane::attach), or loads it. From kasane_attach to kasane_detach
 * global memory works, from any OS thread of any rank: allocation, direct access, views, pins, fences,
 * advice. kasane_persist and kasane_restore are collective, by one thread of each rank.
 * There are no user-level threads, and what needs them is EPERM: kasane_run, threads, locks and other
 * synchronisation. Variables, new and malloc stay each process's own. Options come from KASANE_*
 * variables, those of rank 0.
 *
 * Pages stay where they were allocated, until kasane_own or kasane_give moves them. So for each datum the
 * loads and stores of the rank that owns it and everybody's direct access (kasane_get, put, accumulate,
 * atomic) meet in one frame: each sees what the others did, with no fence, in DRAM or on SSD.
 *
 * Global memory may be passed to MPI and to system calls. docs/guide/attach.md has what that needs.
 */

/** How kasane_attach() finds the other ranks. */
typedef struct kasane_attach_options {
  /** "openmpi" or "mpich", which the program has initialised; NULL: by its launcher's variables, or none */
  const char* mpi;
  const void* communicator; /**< an MPI_Comm*, whose ranks are the job's; NULL: MPI_COMM_WORLD */
} kasane_attach_options_t;

/**
 * Joins the ranks of the communicator. NULL: all members NULL. Collective, after MPI_Init (any thread level):
 * until the return, and in kasane_detach, Kasane calls the MPI on the calling thread, at no other time.
 * MPI_Finalize detaches first. A process that exits without either waits for no other rank.
 * EPERM: attached already, or linked with Kasane's start. EINVAL: nothing has begun on any rank: an option of
 * no use, an MPI that does not run or is not the program's, too many ranks for the space. Other errors: the
 * process can only end (MPI_Abort).
 */
int kasane_attach(const kasane_attach_options_t* options);
/**
 * The end of global memory: its contents are gone. Collective; no other thread uses global memory. Afterwards
 * kasane_attach may be called again, also with other ranks.
 * EPERM: not attached.
 */
int kasane_detach(void);
/** Which attach of this process holds now, counted from 1; 0: the process is not attached. */
uint32_t kasane_attached(void);
/*
 * Collective, in attached processes, by one thread of each rank. EPERM elsewhere.
 */
/** Releases, waits until all ranks have called it, acquires. */
int kasane_ranks_barrier(void);
/** Copies root's bytes to every rank; no fence. EINVAL: no such rank. */
int kasane_ranks_broadcast(void* data, size_t bytes, uint32_t root);
/** Rank r's `bytes` at `mine` come to all + r * bytes on every rank; no fence. */
int kasane_ranks_allgather(const void* mine, void* all, size_t bytes);

/* ---- threads (thesis, section 6.1) --------------------------------------------------------------------- */

/** The identifier of a thread, unique in the job; 0 is no thread. */
typedef uint64_t kasane_thread_t;

/** A thread that has not started. */
typedef struct kasane_allocated {
  kasane_thread_t id; /**< 0: the allocation failed */
  void* argument;     /**< the bytes asked for, on the new thread's stack */
} kasane_allocated_t;

/**
 * A new thread with room for `size` bytes, aligned to `alignment` (a power of two), on its own stack. The
 * same thread passes it to kasane_thread_fork or to kasane_thread_abandon, once.
 * EPERM: not on a thread. EAGAIN: this rank has no slot left. EINVAL: size does not fit in a stack.
 */
kasane_allocated_t kasane_thread_allocate(size_t alignment, size_t size);
/**
 * Starts function(t.argument) as the thread. The child runs at once; the caller continues when the child ends
 * or blocks, or when another worker, perhaps of another rank, steals the caller.
 */
void kasane_thread_fork(kasane_allocated_t t, void (*function)(void*));
/** Frees an allocated thread that will not be forked. */
void kasane_thread_abandon(kasane_allocated_t t);
/**
 * Waits until the thread has ended, and frees its id. Everything that the thread did is visible to the
 * caller. A C++ exception that left the thread's function is thrown here. A thread is joined or detached
 * exactly once.
 * EPERM: not on a thread. EINVAL: id 0. A second join of a thread, or a join by itself: std::system_error.
 */
int kasane_thread_join(kasane_thread_t id);
/**
 * No thread will join this one: its stack is freed when it ends. A C++ exception that leaves it ends the
 * program.
 */
int kasane_thread_detach(kasane_thread_t id);
/**
 * Moves the calling thread, with its stack, to the rank that owns the page at `address`, as if that rank had
 * stolen it; the thread continues when a worker of that rank has nothing else to run. A hint what the thread
 * will use: it says where the thread runs next, not where it stays. For a placed spawn it is the first call
 * of a thread, whose creator continues at once. Nothing happens if this rank owns the page. It costs as much
 * as a steal.
 * Consistency: everything that the thread did or saw before is visible to it there, as after a steal.
 * EPERM: not on a thread. EINVAL: not in global memory, or not allocated.
 */
int kasane_thread_move_near(const void* address);
/**
 * As kasane_thread_move_near, to a rank. EPERM: not on a thread. EINVAL: no such rank.
 */
int kasane_thread_move_to(uint32_t rank);
/** Lets other threads of this rank run. Does nothing outside of a thread. */
void kasane_thread_yield(void);
/**
 * Ends the calling thread as if its function had returned. In C++ its frames are unwound by an exception that
 * only `catch (...)` catches (and has to rethrow). Outside of a thread: ends the program with a message.
 */
KASANE_NORETURN void kasane_thread_exit(void);
/** The calling thread, or 0 outside of threads. */
kasane_thread_t kasane_thread_self(void);

/*
 * Lazy threads: kasane_invoke(f, a, g, b) calls f(a) and g(b), perhaps at the same time, and returns when
 * both have. It costs two calls and a few stores as long as nobody else wants work; else g becomes a thread,
 * which another worker, perhaps of another rank, runs. f runs as part of the calling thread, and so may g:
 * neither may wait for what the other does but by calls of Kasane's. Each sees what the caller did before,
 * and the caller sees what both did. A C++ exception or kasane_thread_exit must not leave f or g (in C++:
 * kasane::parallel_invoke). EPERM: not on a thread; neither was called.
 */
/** What a record's function is. For kasane_invoke and kasane::parallel_invoke. */
typedef struct kasane_lazy_kind {
  void (*run)(void* argument);
  size_t bytes; /**< of the argument, of which a thread gets a copy, aligned to 16 at most; 0: its address */
} kasane_lazy_kind_t;
/** A function that the caller will call unless somebody takes it; in the caller's frame. */
typedef struct kasane_lazy {
  struct kasane_lazy* older;
  const kasane_lazy_kind_t* kind;
  const void* argument;   /**< there, too */
  kasane_thread_t thread; /**< 0: linked; 1: it is the caller's; else a thread runs it */
} kasane_lazy_t;
/** What a worker keeps for it. */
typedef struct kasane_lazy_worker {
  volatile uint64_t wanted; /**< others want work */
  uint64_t apart[15];
  kasane_lazy_t* newest;
  uint64_t stack_limit;
} kasane_lazy_worker_t;

kasane_lazy_worker_t* kasane_lazy_begin_slowly(kasane_lazy_t* record);
int kasane_lazy_end_slowly(kasane_lazy_t* record);
/** Whether the exception that the caller handles is that of kasane_thread_exit. */
int kasane_lazy_exits(void);
int kasane_invoke_with_fork(void (*f)(void*), void* a, void (*g)(void*), void* b);

/* Not an atomic load, which may be a call in programs (kasane/atomic_calls.h). */
#if defined(__SANITIZE_THREAD__)
#define KASANE_LAZY_WANTED(worker) __atomic_load_n(&(worker)->wanted, __ATOMIC_RELAXED)
#else
#define KASANE_LAZY_WANTED(worker) ((worker)->wanted)
#endif
/**
 * Offers a record's function to others; kasane_lazy_end follows, in the same function. Null: the record is
 * not used, and the caller does the same on another thread (its stack is nearly used up), or it runs no
 * thread.
 */
static inline kasane_lazy_worker_t* kasane_lazy_begin(kasane_lazy_t* record, const kasane_lazy_kind_t* kind,
                                                      const void* argument) {
  kasane_lazy_worker_t* worker;
  uint64_t sp;
  /* Each time anew: the thread may have moved to another worker since the last one. */
  __asm__ volatile(
      "movq kasane_lazy_worker@gottpoff(%%rip), %0\n\t"
      "movq %%fs:(%0), %0"
      : "=&r"(worker));
  __asm__ volatile("movq %%rsp, %0" : "=r"(sp));
  record->kind = kind;
  record->argument = argument;
  if (__builtin_expect((sp < worker->stack_limit) | (KASANE_LAZY_WANTED(worker) != 0), 0))
    return kasane_lazy_begin_slowly(record);
  record->thread = 0;
  record->older = worker->newest;
  /* From here on an access of f that waits for a page may make a thread of the record. */
  __asm__ volatile("" : : : "memory");
  worker->newest = record;
  __asm__ volatile("" : : : "memory");
  return worker;
}
/** Not 0: nobody took it, the caller calls it now. 0: the caller joins record->thread. */
static inline int kasane_lazy_end(kasane_lazy_worker_t* worker, kasane_lazy_t* record) {
  __asm__ volatile("" : : : "memory");
  if (__builtin_expect(record->thread != 0, 0)) return kasane_lazy_end_slowly(record);
  worker->newest = record->older;
  __asm__ volatile("" : : : "memory");
  return 1;
}

/** What is offered by kasane_invoke. */
typedef struct kasane_lazy_call {
  void (*function)(void*);
  void* argument;
} kasane_lazy_call_t;
extern const kasane_lazy_kind_t kasane_lazy_call_kind;

/** See above. */
static inline int kasane_invoke(void (*f)(void*), void* a, void (*g)(void*), void* b) {
  kasane_lazy_t second;
  kasane_lazy_call_t call;
  kasane_lazy_worker_t* worker;
  call.function = g;
  call.argument = b;
  worker = kasane_lazy_begin(&second, &kasane_lazy_call_kind, &call);
  if (__builtin_expect(worker == NULL, 0)) return kasane_invoke_with_fork(f, a, g, b);
  f(a);
  if (__builtin_expect(!kasane_lazy_end(worker, &second), 0)) return kasane_thread_join(second.thread);
  g(b);
  return 0;
}

/* ---- posts --------------------------------------------------------------------------------------------- */
/*
 * Calls that run at other ranks, many in a message. Each runs once, on a thread of that rank, in no order and
 * with no fence: what it uses beside its argument it uses directly (kasane_get …), or has been made visible
 * otherwise. Posts are buffered at the poster's rank for each destination (`--debug post-buffer`), and
 * sent when a buffer is full, by kasane_post_wait, and soon by threads of the group when there is nothing
 * else to run. A post may post, and may wait, but not for posts of its group. Posters of a rank that does not
 * keep up are held back for some milliseconds each.
 */

/** A group of posts; any thread of any rank may use it. */
typedef struct kasane_post_group kasane_post_group_t;
/**
 * A new group: a thread for each worker of the job, which sleeps while there is nothing to run, and buffers.
 * NULL: EPERM: not on a thread. EAGAIN: no thread slot left. ENOMEM.
 */
kasane_post_group_t* kasane_post_group_create(void);
/** Waits as kasane_post_wait, and ends the group, when no thread posts any more; not if that one throws. */
int kasane_post_group_destroy(kasane_post_group_t* group);
/**
 * function(a copy of `bytes` at argument) is to run at `rank`. The copy is aligned to 16 bytes and lives
 * until the function returns.
 * EPERM: not on a thread. EINVAL: no such rank; more than 1024 bytes. ENOMEM.
 */
int kasane_post(kasane_post_group_t* group, uint32_t rank, void (*function)(void*), const void* argument,
                size_t bytes);
/**
 * Returns when all posts of the group, of all ranks, have run, those that were posted by posts included. A
 * C++ exception that left one of them (the first of the group) is thrown here.
 * EPERM: not on a thread. EDEADLK: in a post of the group.
 */
int kasane_post_wait(kasane_post_group_t* group);

/* ---- memory -------------------------------------------------------------------------------------------- */

/**
 * Which rank owns the pages of an allocation at first. The owner serves misses and receives diffs; the
 * address is the same everywhere.
 */
typedef enum kasane_placement {
  KASANE_PLACEMENT_LOCAL = 0,  /**< the allocating rank */
  KASANE_PLACEMENT_BLOCK = 1,  /**< each rank one contiguous part of about equal size, the first at rank 0 */
  KASANE_PLACEMENT_CYCLIC = 2, /**< page by page in turn */
  KASANE_PLACEMENT_BLOCK_CYCLIC = 3, /**< `argument` bytes, a multiple of the page, at each rank in turn */
  KASANE_PLACEMENT_ONE_RANK = 4,     /**< rank `argument`, which takes no part in the call */
  /**
   * the allocating rank, in the memory of NUMA node `argument` of its machine, in the system's numbers. A
   * node that is full is helped out by others (kasane/numa.h tells; STRICT).
   */
  KASANE_PLACEMENT_NUMA = 5,
  /** the rank that loads or stores a page first; until then the allocating rank is the owner */
  KASANE_PLACEMENT_FIRST_TOUCH = 6,
  /** likewise page by page of several nodes in turn: bit n of `argument` names node n; 0: all */
  KASANE_PLACEMENT_NUMA_INTERLEAVE = 7,
  /** likewise by the weights of the machine's nodes; needs Linux 6.9 */
  KASANE_PLACEMENT_NUMA_WEIGHTED = 8,
  /** likewise one consecutive part of about equal size on each node, in whole pages */
  KASANE_PLACEMENT_NUMA_BLOCKS = 9,
  /**
   * Added (|) to one of the others but FIRST_TOUCH, for kasane_allocate_placed: whole pages whose owner never
   * changes. kasane_own and kasane_give to another rank are EBUSY, and no rank draws them; they go to SSD as
   * ever. So for each datum there the owner's loads, stores and std::atomic_ref are the direct view: they and
   * every rank's kasane_get, put, accumulate, atomic and copy meet in one frame, with no fence. Elsewhere
   * loads and stores are the coherent view as ever. Where kasane_realloc moves the allocation, the new one is
   * not fixed.
   */
  KASANE_PLACEMENT_FIXED = 256,
  /**
   * Added (|) to NUMA and its kin: all pages are touched, and where one lies on another node, or is not in
   * DRAM, the call fails (ENOMEM). What the kernel moves later is not seen.
   */
  KASANE_PLACEMENT_STRICT = 512
} kasane_placement_t;

/**
 * Global memory, not initialised, aligned to 16 bytes, owned by this rank. kasane_malloc(0) is a unique
 * pointer.
 * NULL: ENOMEM; the message has the number of bytes.
 */
void* kasane_malloc(size_t bytes);
/** As kasane_malloc, aligned to `alignment` (a power of two). */
void* kasane_aligned_alloc(size_t alignment, size_t bytes);
/**
 * As kasane_aligned_alloc with a placement. Objects of up to 32 KiB, and of a page at most, share pages: they
 * are dealt out to the ranks in turn, 64 KiB at each (cyclic), lie at rank 0 (block, block_cyclic) or at this
 * rank (first_touch). Larger objects, and those bound to a NUMA node, get whole pages.
 */
void* kasane_allocate(size_t bytes, size_t alignment, kasane_placement_t placement);
/** As kasane_aligned_alloc, at `rank`, which takes no part in the call. EINVAL: no such rank. */
void* kasane_allocate_at(size_t bytes, size_t alignment, uint32_t rank);

/*
 * Bytes of a page. A page has one owner at a time and moves as a whole. Transfers are finer (4 KiB) whatever
 * the page.
 */
#define KASANE_PAGE_SMALL 4096UL    /**< for data of different ranks that lie close together */
#define KASANE_PAGE_DEFAULT 65536UL /**< of all calls that have no such argument */
#define KASANE_PAGE_LARGE 2097152UL /**< for large arrays: fewer locations to know and fewer moves */
/**
 * As kasane_allocate, with the argument of the placement (0 where it has none), in pages of page_bytes, one
 * of the three above. They have a 32nd, half and 7/32 of the space (--space), in this order, in equal parts a
 * rank.
 * EINVAL: another page size; no such rank or NUMA node; block bytes that are no multiple of the page. EAGAIN:
 * the kernel does not let this process bind memory.
 */
void* kasane_allocate_placed(size_t bytes, size_t alignment, kasane_placement_t placement, uint64_t argument,
                             size_t page_bytes);
/**
 * As kasane_allocate_placed, all zero, in both views. Pages that were never used are not written, and cost no
 * memory until they are.
 */
void* kasane_allocate_zeroed(size_t bytes, size_t alignment, kasane_placement_t placement, uint64_t argument,
                             size_t page_bytes);
/** Memory for `count` objects of `bytes` each, all zero. */
void* kasane_calloc(size_t count, size_t bytes);
/**
 * Changes the size of an allocation: in place where that is possible and wastes little, else at another
 * address of the same rank and NUMA nodes (numa_blocks: of none), to which the caller copies the bytes by
 * ordinary loads and stores. pointer NULL: as kasane_malloc.
 * bytes 0: as kasane_free, and returns NULL. NULL otherwise: ENOMEM, and the allocation is unchanged.
 */
void* kasane_realloc(void* pointer, size_t bytes);
/** Bytes that may be used at pointer (an allocation): at least what was asked for. NULL: 0. */
size_t kasane_usable_size(const void* pointer);
/**
 * Frees global memory, from any rank. NULL: nothing happens. A pointer that no allocation returned ends the
 * program with a message.
 */
void kasane_free(void* pointer);

/**
 * Writes back everything that this rank wrote; returns when the owners have it. Needed only between uses of
 * one datum through loads and stores and through kasane_get and kasane_put, and where a program orders ranks
 * by other means than Kasane's.
 */
void kasane_release_all(void);
/** Afterwards loads on this rank see what other ranks had released before. */
void kasane_acquire_all(void);

/**
 * Makes this rank the owner of the pages (64 KiB) that hold [pointer, pointer+bytes), and brings their
 * contents.
 * Afterwards this rank's loads and stores there need no communication until another rank takes the pages.
 * What else lies on the first and the last page moves too. Several pages move at once. After Endo's thesis
 * (2017), chapter 5 (`own` of MGAS-2). bytes 0: nothing happens.
 * Consistency: no fence, and the contents do not change. Loads, stores, gets and puts of all ranks continue
 * meanwhile (a put may wait for a moment).
 * EINVAL: not in global memory, or not (or no longer) allocated, with the address; stacks, too, which the
 * runtime places. EBUSY: the owner has a view of a page. After an error some of the pages may have moved.
 */
int kasane_own(const void* pointer, size_t bytes);
/**
 * As kasane_own for rank `rank`; returns when that rank owns the pages. May wait for other work of its
 * service thread. EINVAL also: no such rank.
 */
int kasane_give(const void* pointer, size_t bytes, uint32_t rank);
/**
 * The rank that owns the page of the byte at `pointer`. The page may move at any time, so the answer may be
 * old.
 * EINVAL: not in global memory, or not allocated.
 */
int kasane_where(const void* pointer, uint32_t* rank);

/** What a view is for. */
enum kasane_access {
  KASANE_READ = 0,
  KASANE_READ_WRITE = 1,
  /** every byte is written before the view ends, and none is read before: only blocks at its edges come */
  KASANE_WRITE_ONLY = 2
};

/**
 * A view of [pointer, pointer+bytes): makes the range present, and writable if `access` says so, until
 * kasane_end_view with the same range. Absent blocks are fetched together, without faults. No access to the
 * range faults, so it may be passed to a system call. Memory outside of the space is accepted, and nothing is
 * done for it.
 * After the checkout and checkin of Itoyori (Shiina, Taura: Itoyori: Reconciling Global Address Space and
 * Global Fork-Join Task Parallelism, SC 2023), on plain pointers.
 * Consistency: as of loads and stores; a view is no fence. While a writable view lasts, every release sends
 * it, and its pages do not move: end it soon. KASANE_WRITE_ONLY: bytes that are not written before the view
 * ends have an unspecified value afterwards, at all ranks.
 * Thread safety: a view belongs to the rank on which it was made: between its begin and end there is no call
 * that may move the thread. Views may overlap.
 * EINVAL: not allocated global memory, with the address; no such access. ENOMEM: more than the budget of DRAM
 * (`kasane run --dram`).
 */
int kasane_view(const void* pointer, size_t bytes, int access);
/** Ends a view. On the rank that made it. */
int kasane_end_view(const void* pointer, size_t bytes);
/**
 * As a view that ends at once: accesses soon afterwards find the range present, unless a fence or a move has
 * dropped it. Waits for what is at other ranks; reads of what is on SSD are only started. A hint: memory that
 * is not allocated is left out, and so is what exceeds half of a budget of DRAM.
 */
int kasane_prefetch(const void* pointer, size_t bytes, int access);
/**
 * The contents of [pointer, pointer+bytes) are not needed any more: changes of this rank that no release has
 * sent are never sent, and what was on SSD need not be written there again. The bytes are unspecified until
 * they are written again. No other thread may use them meanwhile. Memory outside of the space is not changed.
 */
int kasane_discard(void* pointer, size_t bytes);

/**
 * Memory larger than DRAM (`kasane run --dram`, `--spill`). It works without these calls; a program may say
 * how it uses memory. They hold for whole pages, those at the edges included, on all ranks, whichever rank
 * owns the pages.
 * Consistency: no fence, and no contents change. Memory outside of the space is accepted, and nothing is done
 * for it; likewise where global memory has no budget.
 * EINVAL: not allocated global memory (stacks are not), with the address; no such usage.
 */
enum kasane_usage {
  KASANE_NORMAL = 0, /**< sweeps are recognised, and what is used again stays */
  /**
   * from the lower end to the upper one: read ahead from the first page on; used pages leave before all
   * others
   */
  KASANE_SEQUENTIAL = 1,
  KASANE_RANDOM = 2, /**< nothing is read ahead */
  /** used pages leave before all others: data that are read once do not evict other data */
  KASANE_ONCE = 3
};
/**
 * Says how [pointer, pointer+bytes) is used from now on, until the next such call; it stays so when the
 * memory is freed and allocated again. After madvise(2).
 */
int kasane_advise(const void* pointer, size_t bytes, int usage);
/**
 * The range is not needed for a while. Returns when all of it that can leave DRAM has left: own pages to the
 * spill file, copies of other ranks' pages for good. What is in a view, pinned, in use at that moment, or
 * changed by another rank's unreleased stores stays.
 */
int kasane_evict(const void* pointer, size_t bytes);
/**
 * Brings the range into DRAM, where it stays, at whichever rank owns it, until kasane_end_pin with the same
 * range.
 * Pins count. Where nothing else can leave and a thread needs room, pinned pages leave, and the rank warns
 * once.
 * Unlike a view a pin binds neither the thread nor the page to a rank, and gives no access.
 */
int kasane_pin(const void* pointer, size_t bytes);
/** Ends a pin. From any thread of any rank; before the memory is freed. */
int kasane_end_pin(const void* pointer, size_t bytes);

/* ---- the direct view ----------------------------------------------------------------------------------- */
/*
 * Reads and changes global memory at its owner, without a copy here: each of these functions sees and changes
 * the owner's copy at once. Loads and stores use the coherent view instead, which other ranks see after a
 * release and an acquire. Between uses of one datum through both views there is a fence: kasane_release_all
 * after stores and before direct access anywhere, kasane_acquire_all after direct changes and before loads
 * (`kasane run --check mixing` reports places that lack one).
 *
 * The names follow W. Endo's thesis (2017), chapter 5 (MGAS-2: get, put), and ARMCI (accumulate, strided,
 * vector).
 * Local memory is any memory, global or private. Ranges may span any number of pages, which are accessed
 * concurrently. From any thread of any rank.
 * Errors: EINVAL: a range that is not (wholly) in global memory or not allocated, with its address; an atomic
 * or element that is not aligned. EIO: a peer was lost. Parts of a range that fails may have been done.
 *
 * Asynchronous forms take a kasane_pending_t, which is {0} or counts earlier puts, accumulates and copies:
 * one wait completes them all. A get is waited for by itself, before the next one is issued on the same
 * variable. When the call returns, the source of a put or accumulate has been copied. The target of a get, or
 * of an atomic's old value, is not used before kasane_wait, and stays allocated until then. kasane_wait may
 * be called on another rank than the one that issued, since the thread may have moved. When too many
 * operations are pending on a rank, the call itself waits for its own bytes, and leaves nothing pending.
 */

/**
 * What is pending; {0}: nothing. A plain value: it may be copied, but only one of the copies is waited for.
 */
typedef struct kasane_pending {
  uint64_t id;
} kasane_pending_t;
/**
 * Waits until all operations that it counts are complete: what was read is at its destination, what was put
 * is in the owner's memory. Sets it to {0}.
 */
int kasane_wait(kasane_pending_t* pending);
/** *done = 1 if kasane_wait would not wait; has the same effects then. Else *done = 0. */
int kasane_test(kasane_pending_t* pending, int* done);
/**
 * Waits until everything that any thread of this rank issued so far has completed at its owner. A get whose
 * destination lies in global memory still needs its kasane_wait.
 */
int kasane_flush(void);

/**
 * Until kasane_polling_end, waits of the calling thread for direct accesses (and their yields to others) keep
 * the worker: it runs no other thread. So a thread that has set a word of global memory for which others wait
 * is not suspended before it has cleared it. Between the two there is no fork, join, move, lock or other
 * wait: that ends the program with a message. Scopes may be nested. Outside of threads nothing happens.
 */
void kasane_polling_begin(void);
void kasane_polling_end(void); /**< on the rank where it began */

/** Reads `bytes` at `global` into `destination`. */
int kasane_get(void* destination, const void* global, size_t bytes);
int kasane_get_async(void* destination, const void* global, size_t bytes, kasane_pending_t* pending);
/**
 * Writes `bytes` from `source` to `global`; complete at the owner when it returns. 1, 2, 4 or 8 bytes that
 * are aligned are one store there; of others a byte may be stored twice.
 */
int kasane_put(void* global, const void* source, size_t bytes);
/** pending may be NULL: only kasane_flush waits for it. */
int kasane_put_async(void* global, const void* source, size_t bytes, kasane_pending_t* pending);

/**
 * A patch: count[0] contiguous bytes, count[i] times at distances of stride[i-1] bytes on either side.
 * dimensions: 1 to 8.
 */
typedef struct kasane_strides {
  uint32_t dimensions;
  size_t count[8];
  size_t global_stride[7];
  size_t local_stride[7];
} kasane_strides_t;
/** As kasane_get_async over a patch. pending NULL: blocking. */
int kasane_get_strided(void* destination, const void* global, const kasane_strides_t* shape,
                       kasane_pending_t* pending);
/** As kasane_put_async over a patch. pending NULL: blocking. */
int kasane_put_strided(void* global, const void* source, const kasane_strides_t* shape,
                       kasane_pending_t* pending);

/**
 * Sends for what of the patch is on SSD (`kasane run --dram`): owners that are other ranks bring these pages
 * into their DRAM, and this rank reads what it owns itself. No disk is waited for, so a program computes
 * meanwhile, and accesses the patch afterwards. The local side of the shape does not matter.
 * *absent: how many pages, or parts of own ones, are on SSD now; 0: all is in DRAM.
 * access: KASANE_READ, or KASANE_READ_WRITE if this rank will store to what it owns of it.
 * A hint: where there is no room in DRAM nothing comes, and never more than about an eighth of the budget. A
 * put that replaces every byte of a page needs no hint: it reads nothing.
 * EINVAL: no such shape or access.
 */
int kasane_send_for(const void* global, const kasane_strides_t* shape, int access, size_t* absent);

/** One of many pieces that are read or written together. */
typedef struct kasane_piece {
  void* global;
  void* local;
  size_t bytes;
} kasane_piece_t;
int kasane_get_vector(const kasane_piece_t* pieces, size_t count,
                      kasane_pending_t* pending); /**< pending NULL: blocking */
int kasane_put_vector(const kasane_piece_t* pieces, size_t count,
                      kasane_pending_t* pending); /**< pending NULL: blocking */

/** Elements of kasane_accumulate. */
typedef enum kasane_element {
  KASANE_INT32 = 0,
  KASANE_INT64 = 1,
  KASANE_FLOAT = 2,
  KASANE_DOUBLE = 3,
  KASANE_COMPLEX_FLOAT = 4, /**< two floats, real and imaginary */
  KASANE_COMPLEX_DOUBLE = 5
} kasane_element_t;
/**
 * global[i] += scale * source[i] for `count` elements, each atomic with respect to other accumulates of the
 * same kind of element, not to kasane_atomic. scale: real and imaginary part; integers use the whole part of
 * the real one.
 * NULL: 1. Addresses are multiples of the element's size (complex: of its part's); an element lies in one
 * page.
 * pending NULL: blocking.
 */
int kasane_accumulate(void* global, const void* source, size_t count, kasane_element_t element,
                      const double scale[2], kasane_pending_t* pending);
/** The same over a patch of whole elements. */
int kasane_accumulate_strided(void* global, const void* source, const kasane_strides_t* shape,
                              kasane_element_t element, const double scale[2], kasane_pending_t* pending);

/** What kasane_atomic() does with the word. */
typedef enum kasane_atomic_op {
  KASANE_FETCH_ADD = 0,
  KASANE_FETCH_AND = 1,
  KASANE_FETCH_OR = 2,
  KASANE_FETCH_XOR = 3,
  KASANE_SWAP = 4,
  KASANE_COMPARE_SWAP = 5 /**< stores operand if the value is `compare` */
} kasane_atomic_op_t;
/**
 * One read-modify-write of an integer of `width` bytes (4 or 8) at `global`, a multiple of width, executed at
 * its owner: atomic among all ranks, and with std::atomic of the owner's threads on the same word. It orders
 * no other access. *old (may be NULL) gets the value before, zero-extended. pending NULL: blocking.
 */
int kasane_atomic(kasane_atomic_op_t op, uint32_t width, void* global, uint64_t operand, uint64_t compare,
                  uint64_t* old, kasane_pending_t* pending);

/**
 * The same, asynchronously: *old (may be NULL) gets the value before, `width` bytes, when it was waited for.
 * Each with an old value is waited for by itself, as a get; those without are counted together.
 */
int kasane_atomic_async(kasane_atomic_op_t op, uint32_t width, void* global, uint64_t operand,
                        uint64_t compare, void* old, kasane_pending_t* pending);

/**
 * Waits until the integer at `global` is not `old` (zero-extended, as kasane_atomic returns it). The thread
 * compares, and is suspended until a thread that changed the integer calls kasane_atomic_notify_one or _all
 * with its address; then it compares again. After the wait of std::atomic. It orders no other access. The
 * thread may be on another rank afterwards.
 * EPERM: not on a thread. EINVAL, EIO: as kasane_atomic.
 */
int kasane_atomic_wait(uint32_t width, const void* global, uint64_t old);
/**
 * After a change of the integer at `global`: the thread that has waited longest for it (_all: all that wait)
 * compares again. One load where no thread waits. EPERM: not on a thread. EINVAL: not in global memory.
 */
int kasane_atomic_notify_one(const void* global);
int kasane_atomic_notify_all(const void* global); /**< likewise */

/**
 * Copies from one place of global memory to another, between any two ranks; the two do not overlap. The bytes
 * do not stay at this rank. pending NULL: blocking.
 */
int kasane_copy(void* to, const void* from, size_t bytes, kasane_pending_t* pending);

/* ---- checkpoints --------------------------------------------------------------------------------------- */

/** What the file of a checkpoint holds: `count` elements of `element_bytes` bytes each. */
typedef struct kasane_checkpoint {
  size_t count;
  size_t element_bytes;
  uint64_t note; /**< the program's own, kept with the data: the step, for example */
  /** what an element is, in the program's numbers (kasane/checkpoint.hpp has some), checked when restored */
  uint32_t type;
} kasane_checkpoint_t;

/**
 * Writes the elements at `pointer`, in global memory, to the file `path` (docs/design/checkpoint.md has its
 * format), which any number of ranks can restore. The file replaces one of the same name at the end,
 * atomically: if the call fails or the machine does, the old file is unchanged and nothing else is left. When
 * the call returns 0, the new file is on the disk.
 * Each rank that sees the file writes what it owns, all ranks at once. What ranks own that do not see it
 * (another host, whose directory is not shared) goes to the caller's rank, which writes it. Nothing needs to
 * be configured.
 * Chunks (64 KiB) of zeros become holes.
 * Consistency: what is saved is what the caller would load now. Threads that store to the range meanwhile
 * race; the file is then whole, but holds some of their stores and not others: let them wait (barrier, join),
 * or save a copy.
 * Called by one thread, or from main on rank 0; other threads need not take part, but each rank must have a
 * worker that is free. One call at a time for a path. The thread may be on another rank afterwards.
 * In attached processes collective: by one thread of each rank, with the same arguments; the result is rank
 * 0's on all, and all that ranks have stored before is in the file.
 * EPERM: called elsewhere. EINVAL: a range that is not in global memory, or not allocated. ENOMEM. Else what
 * the system said of the file (ENOENT, EACCES, EROFS, ENOSPC, EDQUOT, EFBIG, EIO …); the message has path,
 * chunk and the bytes needed and free.
 */
int kasane_persist(const void* pointer, const kasane_checkpoint_t* contents, const char* path);
/**
 * Reads a checkpoint into memory at `pointer`, on any number of ranks; each reads what it owns. contents (but
 * for the note) must be those of the file. Called as kasane_persist.
 * Consistency: as if the caller had stored every element. After an EIO that names a chunk the elements are
 * unspecified; after other errors they are unchanged.
 * EPERM, ENOMEM: as kasane_persist. EINVAL: no checkpoint, or one of another version, byte order, number,
 * size or type of elements. ENOENT, EACCES …: as the system said. EIO: the file is cut off or damaged; the
 * message names the chunk.
 */
int kasane_restore(void* pointer, const kasane_checkpoint_t* contents, const char* path);
/** What a checkpoint holds, from its header. EINVAL, EIO and others as kasane_restore. */
int kasane_describe_checkpoint(const char* path, kasane_checkpoint_t* contents);

/* ---- synchronisation ----------------------------------------------------------------------------------- */
/*
 * Objects are initialised, used and destroyed on threads (EPERM elsewhere), of any rank. An object may be
 * copied bitwise; a copy names the same one. Each _init returns EAGAIN where this rank has no record left (it
 * has 131072, for objects that were initialised and not destroyed).
 * An object that no thread uses may be initialised again in its place without being destroyed, which takes no
 * other record: it is another object then, and copies of the former one are not to be used any more.
 */

/** not recursive; may be held over a fork, a join and a move */
typedef struct kasane_mutex {
  uint64_t handle;
} kasane_mutex_t;
/** a condition variable */
typedef struct kasane_cond {
  uint64_t handle;
} kasane_cond_t;
/** for a number of threads, reusable */
typedef struct kasane_barrier {
  uint64_t handle;
} kasane_barrier_t;
/** many readers or one writer, in the order of their arrival */
typedef struct kasane_rwlock {
  uint64_t handle;
} kasane_rwlock_t;
/** permits, taken one at a time, in the order of arrival */
typedef struct kasane_sem {
  uint64_t handle;
} kasane_sem_t;
/** opens once, when it was counted down to 0 */
typedef struct kasane_latch {
  uint64_t handle;
} kasane_latch_t;
/** a call that is made once in the job */
typedef struct kasane_once {
  uint64_t handle;
} kasane_once_t;

/**
 * Nanoseconds of the job's clock, the clock of all deadlines: `kasane_clock_ns() + 1000000` is a millisecond
 * from now. The ranks of a host have the same clock, which never goes back. The clocks of different hosts
 * agree as well as their times of day did when the job began.
 */
uint64_t kasane_clock_ns(void);
/** Later than any time. */
#define KASANE_NO_DEADLINE UINT64_MAX
/*
 * Calls with a deadline return ETIMEDOUT after it has passed, without what they waited for: never earlier,
 * and then when a worker of the rank has nothing else to run. What a call can have at once it gets even after
 * the deadline. A thread that gives up leaves its place to those behind it; permits and notifications that
 * arrived meanwhile are not lost.
 */

/** Makes a mutex, unlocked. */
int kasane_mutex_init(kasane_mutex_t* mutex);
int kasane_mutex_destroy(kasane_mutex_t* mutex); /**< not while it is locked */
/** Waits; afterwards sees all that earlier holders did. EPERM: not on a thread. */
int kasane_mutex_lock(kasane_mutex_t* mutex);
int kasane_mutex_trylock(kasane_mutex_t* mutex); /**< EBUSY: it is locked */
int kasane_mutex_unlock(kasane_mutex_t* mutex);  /**< by the thread that holds it */
/**
 * The same without any effect on memory, for threads that access what the mutex guards by kasane_get and
 * kasane_put alone. Cheaper, since no rank writes back or drops anything. A holder that locked by one pair
 * unlocks by the same pair. Other holders may use the other pair, and see what earlier holders of that pair
 * did.
 */
int kasane_mutex_lock_relaxed(kasane_mutex_t* mutex);
int kasane_mutex_unlock_relaxed(kasane_mutex_t* mutex); /**< likewise */

/** Makes a condition variable. */
int kasane_cond_init(kasane_cond_t* cond);
int kasane_cond_destroy(kasane_cond_t* cond); /**< not while a thread waits */
/** Unlocks mutex, waits, and locks it again. Test the condition in a loop. */
int kasane_cond_wait(kasane_cond_t* cond, kasane_mutex_t* mutex);
/** As kasane_cond_wait, but not after deadline_ns. Holds mutex again even where it returns ETIMEDOUT. */
int kasane_cond_timedwait(kasane_cond_t* cond, kasane_mutex_t* mutex, uint64_t deadline_ns);
int kasane_cond_signal(kasane_cond_t* cond);    /**< wakes one waiter */
int kasane_cond_broadcast(kasane_cond_t* cond); /**< wakes all waiters */

/** The most threads that a barrier counts. */
#define KASANE_BARRIER_MAX 16777215u
/** EINVAL: count is 0, or more than KASANE_BARRIER_MAX. */
int kasane_barrier_init(kasane_barrier_t* barrier, uint32_t count);
int kasane_barrier_destroy(kasane_barrier_t* barrier);
/**
 * Arrives, and waits for `count` arrivals. All that was done before them is visible to all after. EINVAL: all
 * have dropped out.
 */
int kasane_barrier_wait(kasane_barrier_t* barrier);
/**
 * Arrives `count` times without waiting; *phase is for kasane_barrier_wait_phase, of any thread. A thread
 * that has arrived in a phase waits for it before it arrives again.
 * EINVAL: more than the phase still waits for, or 0; nothing happens.
 */
int kasane_barrier_arrive(kasane_barrier_t* barrier, uint32_t count, uint32_t* phase);
/** Waits until that phase, this or the one before, is over; then as kasane_barrier_wait. */
int kasane_barrier_wait_phase(kasane_barrier_t* barrier, uint32_t phase);
/** Arrives for the last time; later phases wait for one arrival less. EINVAL: all have dropped out. */
int kasane_barrier_arrive_and_drop(kasane_barrier_t* barrier);

/** Makes a lock that several readers or one writer have, unlocked. */
int kasane_rwlock_init(kasane_rwlock_t* lock);
int kasane_rwlock_destroy(kasane_rwlock_t* lock); /**< not while it is locked */
/** waits for a share; afterwards sees what earlier writers did */
int kasane_rwlock_rdlock(kasane_rwlock_t* lock);
int kasane_rwlock_tryrdlock(kasane_rwlock_t* lock); /**< EBUSY: a writer has it, or waits for it */
int kasane_rwlock_timedrdlock(kasane_rwlock_t* lock, uint64_t deadline_ns); /**< as rdlock. ETIMEDOUT */
int kasane_rwlock_rdunlock(kasane_rwlock_t* lock);                          /**< gives a share back */
/** Waits for the whole lock; afterwards sees what earlier writers and readers did. */
int kasane_rwlock_wrlock(kasane_rwlock_t* lock);
int kasane_rwlock_trywrlock(kasane_rwlock_t* lock);                         /**< EBUSY: it is locked */
int kasane_rwlock_timedwrlock(kasane_rwlock_t* lock, uint64_t deadline_ns); /**< as wrlock. ETIMEDOUT */
int kasane_rwlock_wrunlock(kasane_rwlock_t* lock);                          /**< by the writer */

/** The most permits that a semaphore has. */
#define KASANE_SEM_MAX 1073741823u
int kasane_sem_init(kasane_sem_t* sem, uint32_t permits); /**< EINVAL: more than KASANE_SEM_MAX */
int kasane_sem_destroy(kasane_sem_t* sem);                /**< not while a thread waits */
/** Waits for a permit and takes it; afterwards sees what was done before the posts so far. */
int kasane_sem_wait(kasane_sem_t* sem);
int kasane_sem_trywait(kasane_sem_t* sem); /**< EBUSY: there is none, or other threads wait */
int kasane_sem_timedwait(kasane_sem_t* sem, uint64_t deadline_ns); /**< as wait. ETIMEDOUT */
/** Adds so many permits. EINVAL: there would be more than KASANE_SEM_MAX; nothing happens. */
int kasane_sem_post(kasane_sem_t* sem, uint32_t permits);

/** Makes a latch that opens when it has been counted down so often. */
int kasane_latch_init(kasane_latch_t* latch, uint32_t expected);
/** Not while a thread waits; a thread that has passed may destroy it at once. */
int kasane_latch_destroy(kasane_latch_t* latch);
/** EINVAL: more than are still to come; nothing happens. */
int kasane_latch_count_down(kasane_latch_t* latch, uint32_t n);
/** Waits until it is open; afterwards sees what was done before all counts. */
int kasane_latch_wait(const kasane_latch_t* latch);
int kasane_latch_trywait(const kasane_latch_t* latch); /**< EBUSY: it is not open */

/** Makes, and ends, what kasane_call_once() looks at. */
int kasane_once_init(kasane_once_t* once);
int kasane_once_destroy(kasane_once_t* once);
/**
 * Calls function(argument) if no call of the job has done so, else waits until that call has ended;
 * afterwards what it did is visible. If it throws (C++), another caller makes the call.
 */
int kasane_call_once(kasane_once_t* once, void (*function)(void*), void* argument);

/** A pointer-sized variable of which each thread has its own; valid on every rank. */
typedef uint32_t kasane_key_t;
/**
 * A new key of the job; in every thread its value is NULL at first. When a thread ends, destructor (may be
 * NULL) is called on a value that is not NULL. There are 4 keys, which are never freed. EAGAIN: all are in
 * use.
 */
int kasane_key_create(kasane_key_t* key, void (*destructor)(void*));
/** In the calling thread. EPERM: not on a thread. EINVAL: no such key. */
int kasane_key_set(kasane_key_t key, void* value);
void* kasane_key_get(kasane_key_t key); /**< of the calling thread; NULL outside of threads */

/* ---- counters ------------------------------------------------------------------------------------------ */

/** Stands for all ranks: their sum. */
#define KASANE_ALL_RANKS UINT32_MAX
/**
 * What a rank has counted since the start of the job: threads run, steals, faults, bytes fetched and so on;
 * docs/guide/options.md#counters lists them. Counters are numbered from 0. Stores the name of one and its
 * value, at that rank or summed over KASANE_ALL_RANKS; either pointer may be NULL. The unit of names that
 * begin with bytes_ is a byte, of ns_ a nanosecond (summed over the rank's threads). The name lives as long
 * as the process.
 * The value is exact, but threads go on counting while it is read. Consistency: none.
 * EINVAL: there is no such counter (a loop over the numbers ends here), or no such rank.
 */
int kasane_counter(uint32_t index, uint32_t rank, const char** name, uint64_t* value);
/** The value of the counter of that name. EINVAL: no such counter or rank. */
int kasane_counter_by_name(const char* name, uint32_t rank, uint64_t* value);

#ifdef __cplusplus
}
#endif
#endif
