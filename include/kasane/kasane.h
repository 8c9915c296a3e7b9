/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file
 * Kasane in C: threads, pointers and memory over several ranks. The same as kasane.hpp, on which C++ programs should build.
 *
 * A *rank* is one process of the job and one coherence domain; it has workers (OS threads) that run user-level threads. Threads and
 * what they allocate live in the *space*: one range of addresses, the same in every rank. Globals, function statics, thread_local and
 * malloc's heap are each rank's own.
 *
 * **Errors.** A function that returns int returns 0, or an errno value: EPERM (called where it makes no sense, for example outside of
 * kasane_run), EINVAL (a bad argument), ENOMEM, EAGAIN (no thread slot left), EBUSY, ETIMEDOUT, EIO (a peer or the machine). A function that returns a
 * pointer returns NULL then.
 * kasane_error_code() and kasane_error_message() say what and why. Misuse that would lose data (unlocking what another holds, destroying what is in use,
 * freeing what was never allocated) ends the program with a message instead.
 *
 * **Consistency.** Data-race-free programs see sequential consistency. Fork, join, mutexes, condition variables and barriers order memory; where both
 * ends are in one rank that costs nothing, between ranks the source releases and the destination acquires.
 *
 * **Thread safety.** Every function may be called from any thread of any rank unless it says otherwise.
 *
 * The thread functions follow Wataru Endo's thesis (2017), section 6.1: allocation of a thread is separate from its start, so that its
 * argument is built on its own stack, without any allocation.
 */
#ifndef KASANE_KASANE_H
#define KASANE_KASANE_H

#include <stddef.h>
#include <stdint.h>

#include <kasane/version.h>

#ifdef __cplusplus
#define KASANE_NORETURN [[noreturn]]
extern "C" {
#else
#define KASANE_NORETURN _Noreturn
#endif

/* ---- errors ---------------------------------------------------------------------------------------------------------- */

/** The errno value of the last call that failed on the calling worker. Read it before anything that may move the thread (fork, join, lock …). */
int kasane_error_code(void);
/** One line about that failure: what, where, what to do. Valid until the next failure on this worker. Never NULL. */
const char* kasane_error_message(void);

/* ---- the job ---------------------------------------------------------------------------------------------------------- */

/**
 * Runs entry(argument) as the root user-level thread and returns when it (not what it detached) has ended.
 * Called from main, on rank 0; main's stack lies in the space, so argument may point to main's locals. A C++ exception of entry passes through.
 * Consistency: everything entry did is visible to the caller afterwards.
 * EPERM: inside of a thread already, or not in main's OS thread. May be called again after it returned.
 */
int kasane_run(void (*entry)(void*), void* argument);

/** The rank on which the caller runs now: 0 … kasane_ranks()-1. A thread may be on another rank after a fork, join, yield, lock or wait. */
uint32_t kasane_rank(void);
/** Number of ranks of the job; 1 for a program started without `kasane run`. */
uint32_t kasane_ranks(void);
/** Workers of each rank. */
uint32_t kasane_workers(void);

/* ---- threads (thesis, section 6.1) ---------------------------------------------------------------------------------------- */

/** A thread's name in the whole job; 0 is no thread. */
typedef uint64_t kasane_thread_t;

/** A thread that has not started. */
typedef struct kasane_allocated {
  kasane_thread_t id; /**< 0: the allocation failed */
  void* argument;     /**< the bytes asked for, on the new thread's stack */
} kasane_allocated_t;

/**
 * A new thread with room for `size` bytes, aligned to `alignment` (a power of two), on its own stack. To be given to kasane_thread_fork (or
 * kasane_thread_abandon)
 * exactly once, by the same thread. EPERM: not on a thread. EAGAIN: this rank has no slot left. EINVAL: size does not fit in a stack.
 */
kasane_allocated_t kasane_thread_allocate(size_t alignment, size_t size);
/**
 * Starts function(t.argument) as the thread: it runs at once, and the caller goes on when the child ends or blocks, or when another worker,
 * maybe of another rank, takes the caller over.
 */
void kasane_thread_fork(kasane_allocated_t t, void (*function)(void*));
/** Gives an allocated thread back that will not be forked. */
void kasane_thread_abandon(kasane_allocated_t t);
/**
 * Waits until the thread has ended; its id is gone then. Everything it did is visible to the caller. A C++ exception that left its function
 * is thrown again here. Exactly one join or detach a thread. EPERM: not on a thread. EINVAL: id 0. A thread that is joined twice, or by itself:
 * std::system_error.
 */
int kasane_thread_join(kasane_thread_t id);
/** Nobody will join the thread: its stack is free when it ends. A C++ exception that leaves it ends the program. */
int kasane_thread_detach(kasane_thread_t id);
/**
 * The calling thread goes on at the rank that owns the page at `address`, with its stack, as if that rank had stolen it, once a worker of it has nothing else
 * to go on with. A hint what a thread will use: it says where the thread is next, not where it stays. Placed spawn: let it be the first call of a thread; its
 * creator goes on at once. Nothing happens if the page is here. It costs what a steal costs. Consistency: all that the thread did or saw before is visible to
 * it there, as after a steal.
 * EPERM: not on a thread. EINVAL: not in global memory, or not allocated.
 */
int kasane_thread_move_near(const void* address);
/** Lets other threads of this rank run. Does nothing outside of a thread. */
void kasane_thread_yield(void);
/**
 * Ends the calling thread as if its function had returned. In C++ its frames are unwound, as by an exception that only `catch (...)` can see (and must throw
 * again).
 * Outside of a thread: ends the program with a message.
 */
KASANE_NORETURN void kasane_thread_exit(void);
/** The calling thread, or 0 outside of threads. */
kasane_thread_t kasane_thread_self(void);

/* ---- memory ------------------------------------------------------------------------------------------------------------- */

/** Which rank owns the pages of an allocation at first. Owners serve misses and take diffs; the address is the same everywhere. */
typedef enum kasane_placement {
  KASANE_PLACEMENT_LOCAL = 0, /**< the allocating rank */
  KASANE_PLACEMENT_BLOCK = 1, /**< ranks consecutive parts of about equal size, the first at rank 0 */
  KASANE_PLACEMENT_CYCLIC = 2, /**< page by page in turn */
  KASANE_PLACEMENT_BLOCK_CYCLIC = 3, /**< `argument` bytes, a multiple of the page, at each rank in turn */
  KASANE_PLACEMENT_ONE_RANK = 4, /**< rank `argument`, which takes no part in it */
  KASANE_PLACEMENT_NUMA = 5, /**< the allocating rank, its memory bound to NUMA node `argument` of its machine, as the operating system counts them */
  KASANE_PLACEMENT_FIRST_TOUCH = 6 /**< whoever loads or stores a page first; until then the allocating rank stands for it */
} kasane_placement_t;

/** Global memory, not initialised, aligned to 16 bytes, owned by this rank. NULL: ENOMEM, as the message says with the number. kasane_malloc(0) is a unique
 * pointer. */
void* kasane_malloc(size_t bytes);
/** As kasane_malloc, aligned to `alignment` (a power of two). */
void* kasane_aligned_alloc(size_t alignment, size_t bytes);
/** As kasane_aligned_alloc with a placement. Placements other than local round up to whole pages. */
void* kasane_allocate(size_t bytes, size_t alignment, kasane_placement_t placement);
/** As kasane_aligned_alloc, at `rank`, which takes no part in it. EINVAL: no such rank. */
void* kasane_allocate_at(size_t bytes, size_t alignment, uint32_t rank);

/* Bytes of a page: what has one owner at a time, and moves as a whole. Transfers are finer (4 KiB) whatever the page. */
#define KASANE_PAGE_SMALL ((size_t)4096)         /**< data that ranks own closely side by side */
#define KASANE_PAGE_DEFAULT ((size_t)65536)      /**< of all calls that do not say */
#define KASANE_PAGE_LARGE ((size_t)2097152)      /**< large arrays: fewer places to know and to move */
/**
 * As kasane_allocate, with the argument of the placement (see there; 0 where it has none), in pages of page_bytes, one of the three above. Of the space
 * (--space) they
 * have a 32nd, half and 7/32, in this order and in equal parts a rank. EINVAL: another page size; no such rank or NUMA node; block bytes that are no
 * multiple of
 * the page. EAGAIN: the kernel does not let this process bind memory.
 */
void* kasane_allocate_placed(size_t bytes, size_t alignment, kasane_placement_t placement, uint64_t argument, size_t page_bytes);
/** Room for `count` objects of `bytes` each, all zero. */
void* kasane_calloc(size_t count, size_t bytes);
/**
 * Changes the size of an allocation: where it is, if that is possible and no waste, else at another place of the same rank, to which its bytes are copied by
 * ordinary loads and
 * stores of the caller. NULL for pointer: as kasane_malloc. 0 bytes: as kasane_free, and NULL. NULL otherwise: ENOMEM, and the allocation is as it was.
 */
void* kasane_realloc(void* pointer, size_t bytes);
/** Bytes that may be used at pointer (an allocation): at least what was asked for. NULL: 0. */
size_t kasane_usable_size(const void* pointer);
/** Gives global memory back, from any rank. NULL is nothing. A pointer that no allocation returned ends the program with a message. */
void kasane_free(void* pointer);

/**
 * Writes back everything this rank wrote. Returns when the owners have it. Needed only between uses of one datum through loads and stores
 * and through kasane_get and kasane_put, and where a program orders ranks by other means than Kasane's.
 */
void kasane_release_all(void);
/** Afterwards loads on this rank see what others had released before. */
void kasane_acquire_all(void);

/**
 * Makes this rank the owner of the pages (64 KiB) that hold [pointer, pointer+bytes), and brings their contents: afterwards this rank's loads and stores
 * there cost no
 * communication, until another rank takes them. What else lies on the first and the last page comes along. Several pages travel at once. After Endo's thesis
 * (2017), chapter 5 (`own` of MGAS-2).
 * Consistency: none changes and no fence is made; contents stay what they were. Loads, stores, gets and puts of all ranks go on meanwhile (a put may wait a
 * moment).
 * EINVAL: not in global memory, or not (or no longer) allocated memory, with the address; stacks too, which lie where the runtime puts them. EBUSY:
 * the owner
 * has a view of a page. After an error some of the pages may have moved. bytes 0: nothing happens.
 */
int kasane_own(const void* pointer, size_t bytes);
/**
 * As kasane_own for rank `rank`, which takes the pages; returns when it owns them. EINVAL also: no such rank. May wait for other work of that rank's service
 * thread.
 */
int kasane_give(const void* pointer, size_t bytes, uint32_t rank);
/** The rank that owns the page of the byte at `pointer`: as it was just now, since it may be moving. EINVAL: not in global memory, or not allocated. */
int kasane_where(const void* pointer, uint32_t* rank);

/** What a view is for. */
enum kasane_access {
  KASANE_READ = 0,
  KASANE_READ_WRITE = 1,
  KASANE_WRITE_ONLY = 2   /**< every byte is written before the view ends, and none is read before: nothing is fetched but the blocks (4 KiB) at its edges */
};

/**
 * A view of [pointer, pointer+bytes): makes it present, and writable if `access` says so, until kasane_end_view with the same range. What is absent comes at
 * once, all transfers under way together, without faults; no access to it faults, so it may be given to a system call. After the checkout and checkin of
 * Itoyori
 * (Shiina, Taura: Itoyori: Reconciling Global Address Space and Global Fork-Join Task Parallelism, SC 2023), on plain pointers.
 * Consistency: as of loads and stores; a view is no fence. While it lasts, a writable one is sent by every release, and its pages do not move: end it soon.
 * KASANE_WRITE_ONLY: what is not written before the view ends has an unspecified value afterwards, at all ranks.
 * A view belongs to the rank on which it was made: make and end it with nothing between that may move the thread. Views may overlap. Memory outside of the
 * space is accepted
 * and needs nothing. EINVAL: not allocated global memory, with the address; no such access. ENOMEM: more than the budget of DRAM (`kasane run --dram`).
 */
int kasane_view(const void* pointer, size_t bytes, int access);
/** Ends a view. On the rank that made it. */
int kasane_end_view(const void* pointer, size_t bytes);
/** As a view that ends at once: accesses soon afterwards find the range present, unless a fence or a move took it away. What is at other ranks is waited for, what is on SSD only sent for. A
 * hint: memory that is not allocated is left out, and so is what exceeds half of a budget of DRAM. */
int kasane_prefetch(const void* pointer, size_t bytes, int access);
/**
 * The contents of [pointer, pointer+bytes) are not needed any more: what this rank has written there and no release has sent yet is never sent, and what was on SSD need not be written there again.
 * Its bytes are unspecified until they are written again. No other thread may use them meanwhile. Memory outside of the space stays as it is.
 */
int kasane_discard(void* pointer, size_t bytes);

/*
 * Memory larger than DRAM (`kasane run --dram`, `--spill`): nothing need be said for it to work; who knows better can say so. All of it holds for whole pages, those at the
 * edges included, on all ranks, whatever rank the pages are at or come to. Any thread may say it. No fence, and no contents change. Memory outside of the space is accepted and needs
 * nothing; nor does any where global memory has no budget. EINVAL: not allocated global memory (stacks are none), with the address; no such usage.
 */
enum kasane_usage {
  KASANE_NORMAL = 0,      /**< sweeps are recognised, and what is used again stays */
  KASANE_SEQUENTIAL = 1,  /**< from its lower end to its upper one: read ahead from the first page on; what was used leaves before anything else */
  KASANE_RANDOM = 2,      /**< nothing is read ahead */
  KASANE_ONCE = 3         /**< what was used leaves before anything else: so data that are read once do not drive others out */
};
/** Says how [pointer, pointer+bytes) is used from now on, until something else is said; also when the memory has been freed and allocated again. After madvise(2). */
int kasane_advise(const void* pointer, size_t bytes, int usage);
/** The range is not needed for a while: returns when whatever of it could leave DRAM has left, to the spill file or, as copies of other ranks' pages, for good. What is in a view, pinned, in
 * use at that moment, or changed by another rank's unreleased stores stays. */
int kasane_evict(const void* pointer, size_t bytes);
/** The range stays in DRAM, with whoever owns it, until kasane_end_pin with the same range; brings it in first. Pins count. Where nothing else can leave and a thread needs room, pinned pages
 * leave all the same, and the rank warns once. Unlike a view it binds neither thread nor page to a rank, and gives no access. */
int kasane_pin(const void* pointer, size_t bytes);
/** Ends a pin. From any thread of any rank; before the memory is freed. */
int kasane_end_pin(const void* pointer, size_t bytes);

/* ---- the direct view ------------------------------------------------------------------------------------------------------ */
/*
 * Global memory read and changed where its owner has it, without a copy here: each of these functions sees and changes the owner's copy at once. Loads and
 * stores use
 * the coherent view instead, which others see after a release and an acquire. Where one datum is used through both, a fence stands between:
 * kasane_release_all after
 * stores and before direct access anywhere, kasane_acquire_all after direct changes and before loads (`kasane run --check mixing` reports what lacks one).
 *
 * The names after W. Endo's thesis (2017), chapter 5 (MGAS-2: get, put), and ARMCI (accumulate, strided, vector). Local memory is any memory, global or
 * private.
 * Ranges may span any number of pages, which are accessed concurrently. From any thread of any rank.
 * Errors: EINVAL: a range that is not (wholly) in global memory or not allocated, with its address; an atomic or element that is not aligned. EIO: a peer
 * was lost.
 * Parts of a range that fails may have been done.
 *
 * Asynchronous forms take a kasane_pending_t, which is {0} or counts earlier puts, accumulates and copies (then one wait awaits them all; a get is waited
 * for by itself,
 * before the next one is issued on the same variable). The source of a put or accumulate has been copied when the call returns; the target of a get or an
 * atomic's old
 * value must not be used before kasane_wait, and stays allocated until then. kasane_wait may be called on another rank than the one that issued: the thread
 * may have moved.
 * When too many operations are pending on a rank the call itself waits for its own bytes, and leaves nothing pending.
 */

/** What is pending; {0}: nothing. A plain value: copy it, but wait for one of the copies only. */
typedef struct kasane_pending { uint64_t id; } kasane_pending_t;
/** Waits until everything that it counts is complete: what was read is at its destination, what was put is in the owner's memory. It is {0} then. */
int kasane_wait(kasane_pending_t* pending);
/** *done = 1 if kasane_wait would not wait; has the same effects then. Else *done = 0. */
int kasane_test(kasane_pending_t* pending, int* done);
/** Waits until everything that this rank issued so far, by whichever thread, has completed at its owner. What was read for V still needs its kasane_wait. */
int kasane_flush(void);

/** Reads `bytes` at `global` into `destination`. */
int kasane_get(void* destination, const void* global, size_t bytes);
int kasane_get_async(void* destination, const void* global, size_t bytes, kasane_pending_t* pending);
/** Writes `bytes` from `source` to `global`; complete at the owner when it returns. */
int kasane_put(void* global, const void* source, size_t bytes);
/** pending may be NULL: nobody waits but kasane_flush. */
int kasane_put_async(void* global, const void* source, size_t bytes, kasane_pending_t* pending);

/** A patch: count[0] contiguous bytes, count[i] times at distances of stride[i-1] bytes on either side. dimensions: 1 to 8. */
typedef struct kasane_strides {
  uint32_t dimensions;
  size_t count[8];
  size_t global_stride[7];
  size_t local_stride[7];
} kasane_strides_t;
int kasane_get_strided(void* destination, const void* global, const kasane_strides_t* shape, kasane_pending_t* pending); /**< pending NULL: blocking */
int kasane_put_strided(void* global, const void* source, const kasane_strides_t* shape, kasane_pending_t* pending);      /**< pending NULL: blocking */

/** One of many pieces that are read or written together. */
typedef struct kasane_piece {
  void* global;
  void* local;
  size_t bytes;
} kasane_piece_t;
int kasane_get_vector(const kasane_piece_t* pieces, size_t count, kasane_pending_t* pending); /**< pending NULL: blocking */
int kasane_put_vector(const kasane_piece_t* pieces, size_t count, kasane_pending_t* pending); /**< pending NULL: blocking */

/** Elements of kasane_accumulate. */
typedef enum kasane_element {
  KASANE_INT32 = 0,
  KASANE_INT64 = 1,
  KASANE_FLOAT = 2,
  KASANE_DOUBLE = 3,
  KASANE_COMPLEX_FLOAT = 4,  /**< two floats, real and imaginary */
  KASANE_COMPLEX_DOUBLE = 5
} kasane_element_t;
/**
 * global[i] += scale * source[i] for `count` elements, each atomic with respect to other accumulates of the same kind of element, not to kasane_atomic.
 * scale: real and
 * imaginary part; integers take the whole part of the real one. NULL: 1. Addresses are multiples of the element's size (complex: of its part's); an element
 * lies in one page.
 * pending NULL: blocking.
 */
int kasane_accumulate(void* global, const void* source, size_t count, kasane_element_t element, const double scale[2], kasane_pending_t* pending);
/** The same over a patch of whole elements. */
int kasane_accumulate_strided(void* global, const void* source, const kasane_strides_t* shape, kasane_element_t element, const double scale[2], kasane_pending_t* pending);

typedef enum kasane_atomic_op {
  KASANE_FETCH_ADD = 0,
  KASANE_FETCH_AND = 1,
  KASANE_FETCH_OR = 2,
  KASANE_FETCH_XOR = 3,
  KASANE_SWAP = 4,
  KASANE_COMPARE_SWAP = 5 /**< stores operand if the value is `compare` */
} kasane_atomic_op_t;
/**
 * One read-modify-write of an integer of `width` bytes (4 or 8) at `global`, a multiple of width, executed at its owner: atomic among all ranks, and with
 * std::atomic of
 * the owner's threads on the same word. It orders no other access. *old (may be NULL) gets the value before, zero-extended. pending NULL: blocking.
 */
int kasane_atomic(kasane_atomic_op_t op, uint32_t width, void* global, uint64_t operand, uint64_t compare, uint64_t* old, kasane_pending_t* pending);

/**
 * Waits until the integer at `global` is not `old` (zero-extended, as kasane_atomic gives it): looks, and is suspended until somebody who changed it calls
 * kasane_atomic_notify_one or _all with its address; then looks again. After the wait of std::atomic. It orders no other access. The thread may be on another
 * rank afterwards.
 * EPERM: not on a thread. EINVAL, EIO: as kasane_atomic.
 */
int kasane_atomic_wait(uint32_t width, const void* global, uint64_t old);
/**
 * After a change of the integer at `global`: the thread that has waited longest for it (all that wait) looks again. One load where nobody waits. EPERM: not on
 * a thread. EINVAL: not in global memory.
 */
int kasane_atomic_notify_one(const void* global);
int kasane_atomic_notify_all(const void* global); /**< likewise */

/** From one place of global memory to another, between any two ranks, past this one; they do not overlap. pending NULL: blocking. */
int kasane_copy(void* to, const void* from, size_t bytes, kasane_pending_t* pending);

/* ---- checkpoints ------------------------------------------------------------------------------------------------------------ */

/** What the file of a checkpoint holds: `count` elements of `element_bytes` bytes each. */
typedef struct kasane_checkpoint {
  size_t count;
  size_t element_bytes;
  uint64_t note; /**< the program's own, kept with the data: the step, for example */
  uint32_t type; /**< what an element is, in the program's own numbers (kasane/checkpoint.hpp has some): kasane_restore takes the same only */
} kasane_checkpoint_t;

/**
 * Writes the elements at `pointer`, in global memory, to the file `path` (docs/design/checkpoint.md has its format), which any number of ranks can restore.
 * A file of that name is replaced at the end, at once: whatever happens before, to any rank or the machine, it stays as it was, and nothing else stays. When the call
 * returns 0 the new one is on the disk.
 * Each rank that sees the file writes what it owns, all at once; what ranks own that do not (another host, whose directory is not shared) goes to the
 * caller's rank, which writes it. So nothing needs to be configured. Chunks (64 KiB) of zeros become holes.
 * Consistency: what is saved is what the caller would load now. Threads that store to the range meanwhile race; the file is then whole, but
 * holds some of their stores and not others: let them wait (barrier, join), or save a copy.
 * Called by one thread, or from main on rank 0; others need not take part, but each rank must have a worker to spare. The thread may be on another
 * rank afterwards. One at a time of a path.
 * EPERM: called elsewhere. EINVAL: a range that is not in global memory, or not allocated. ENOMEM. Else what the system said of the file (ENOENT, EACCES,
 * EROFS, ENOSPC, EDQUOT, EFBIG, EIO …); the message has path, chunk and the bytes needed and free.
 */
int kasane_persist(const void* pointer, const kasane_checkpoint_t* contents, const char* path);
/**
 * Reads a checkpoint into memory at `pointer`, on any number of ranks; each reads what it owns. contents (but the note) must be those of the
 * file.
 * Consistency: as if the caller had stored every element. Who called, and when, as kasane_persist. After an EIO that names a chunk the
 * elements are unspecified; after other errors they are what they were.
 * EPERM, ENOMEM: as kasane_persist. EINVAL: no checkpoint, one of another version, byte order, number, size or type of elements. ENOENT, EACCES …: as the
 * system said.
 * EIO: the file is cut off or damaged; the message names the chunk.
 */
int kasane_restore(void* pointer, const kasane_checkpoint_t* contents, const char* path);
/** What a checkpoint holds, from its header. EINVAL, EIO and others as kasane_restore. */
int kasane_describe_checkpoint(const char* path, kasane_checkpoint_t* contents);

/* ---- synchronisation ------------------------------------------------------------------------------------------------------ */
/* Initialised, used and destroyed on threads (EPERM elsewhere), of any rank. An object may be copied bitwise; a copy names the same one. */

typedef struct kasane_mutex { uint64_t handle; } kasane_mutex_t;     /**< not recursive; may be held over a fork, a join and a move */
typedef struct kasane_cond { uint64_t handle; } kasane_cond_t;       /**< a condition variable */
typedef struct kasane_barrier { uint64_t handle; } kasane_barrier_t; /**< for a number of threads, again and again */
typedef struct kasane_rwlock { uint64_t handle; } kasane_rwlock_t;   /**< many readers or one writer; first come first served */
typedef struct kasane_sem { uint64_t handle; } kasane_sem_t;         /**< permits, taken one at a time; first come first served */
typedef struct kasane_latch { uint64_t handle; } kasane_latch_t;     /**< opens once, when it was counted down to 0 */
typedef struct kasane_once { uint64_t handle; } kasane_once_t;       /**< something that is done once in the job */

/**
 * Nanoseconds of the job's clock, which all deadlines are in: `kasane_clock_ns() + 1000000` is a millisecond from now. The ranks of a host have the same clock,
 * which never goes back; different hosts' agree as well as their times of day did when the job began.
 */
uint64_t kasane_clock_ns(void);
/** Later than any time. */
#define KASANE_NO_DEADLINE UINT64_MAX
/* Calls with a deadline return ETIMEDOUT, and have not got what they waited for, when it has passed; never before, and after it when a worker of the rank has
 * nothing else to go on with. What they could have at once they get even where it has passed already. Who gives up leaves its place to those behind it; what
 * was given or notified meanwhile is not lost with it. */

int kasane_mutex_init(kasane_mutex_t* mutex);    /**< EAGAIN: this rank has no record left */
int kasane_mutex_destroy(kasane_mutex_t* mutex); /**< not while it is locked */
int kasane_mutex_lock(kasane_mutex_t* mutex);    /**< waits; afterwards sees all that earlier holders did. EPERM: not on a thread */
int kasane_mutex_trylock(kasane_mutex_t* mutex); /**< EBUSY: somebody holds it */
int kasane_mutex_unlock(kasane_mutex_t* mutex);  /**< by the thread that holds it */
/** The same without any effect on memory: for who reads and writes what the mutex guards by kasane_get and kasane_put alone, between the two. Cheaper, since neither rank writes back or drops
 * anything. A holder that came by the one leaves by the one; others may use the other pair, and see what those before them did who used that. */
int kasane_mutex_lock_relaxed(kasane_mutex_t* mutex);
int kasane_mutex_unlock_relaxed(kasane_mutex_t* mutex);

int kasane_cond_init(kasane_cond_t* cond);
int kasane_cond_destroy(kasane_cond_t* cond);                       /**< not while somebody waits */
int kasane_cond_wait(kasane_cond_t* cond, kasane_mutex_t* mutex);   /**< gives mutex up, waits, takes it again. Test the condition in a loop */
/** As kasane_cond_wait, but no longer than to deadline_ns; holds mutex again even where it returns ETIMEDOUT. */
int kasane_cond_timedwait(kasane_cond_t* cond, kasane_mutex_t* mutex, uint64_t deadline_ns);
int kasane_cond_signal(kasane_cond_t* cond);                        /**< wakes one waiter */
int kasane_cond_broadcast(kasane_cond_t* cond);                     /**< wakes all waiters */

#define KASANE_BARRIER_MAX 16777215u
int kasane_barrier_init(kasane_barrier_t* barrier, uint32_t count); /**< EINVAL: count is 0, or more than KASANE_BARRIER_MAX */
int kasane_barrier_destroy(kasane_barrier_t* barrier);
/** Arrives, and waits for `count` arrivals; all that was done before them is visible to all after. EINVAL: all have dropped out. */
int kasane_barrier_wait(kasane_barrier_t* barrier);
/**
 * Arrives `count` times and does not wait; *phase is for kasane_barrier_wait_phase, of any thread. Who has arrived in a phase waits for it before it arrives again.
 * EINVAL: more than the phase still waits for, or 0; nothing happens.
 */
int kasane_barrier_arrive(kasane_barrier_t* barrier, uint32_t count, uint32_t* phase);
int kasane_barrier_wait_phase(kasane_barrier_t* barrier, uint32_t phase); /**< waits until that phase, this or the one before, is over; then as kasane_barrier_wait */
int kasane_barrier_arrive_and_drop(kasane_barrier_t* barrier); /**< arrives for the last time; later phases wait for one less. EINVAL: all have dropped out */

int kasane_rwlock_init(kasane_rwlock_t* lock);      /**< EAGAIN: this rank has no record left */
int kasane_rwlock_destroy(kasane_rwlock_t* lock);   /**< not while it is locked */
int kasane_rwlock_rdlock(kasane_rwlock_t* lock);    /**< waits for a share; afterwards sees what earlier writers did */
int kasane_rwlock_tryrdlock(kasane_rwlock_t* lock); /**< EBUSY: a writer has it, or waits for it */
int kasane_rwlock_timedrdlock(kasane_rwlock_t* lock, uint64_t deadline_ns); /**< as rdlock. ETIMEDOUT */
int kasane_rwlock_rdunlock(kasane_rwlock_t* lock);  /**< gives a share back */
int kasane_rwlock_wrlock(kasane_rwlock_t* lock);    /**< waits for all of it; afterwards sees what earlier writers and readers did */
int kasane_rwlock_trywrlock(kasane_rwlock_t* lock); /**< EBUSY: somebody has it */
int kasane_rwlock_timedwrlock(kasane_rwlock_t* lock, uint64_t deadline_ns); /**< as wrlock. ETIMEDOUT */
int kasane_rwlock_wrunlock(kasane_rwlock_t* lock);  /**< by the writer */

#define KASANE_SEM_MAX 1073741823u
int kasane_sem_init(kasane_sem_t* sem, uint32_t permits);  /**< EAGAIN: this rank has no record left. EINVAL: more than KASANE_SEM_MAX */
int kasane_sem_destroy(kasane_sem_t* sem);                 /**< not while somebody waits */
int kasane_sem_wait(kasane_sem_t* sem);                    /**< waits for a permit and takes it; afterwards sees what was done before the posts so far */
int kasane_sem_trywait(kasane_sem_t* sem);                 /**< EBUSY: there is none, or others wait */
int kasane_sem_timedwait(kasane_sem_t* sem, uint64_t deadline_ns); /**< as wait. ETIMEDOUT */
int kasane_sem_post(kasane_sem_t* sem, uint32_t permits);  /**< adds so many; never more than KASANE_SEM_MAX in all */

int kasane_latch_init(kasane_latch_t* latch, uint32_t expected); /**< EAGAIN: this rank has no record left */
int kasane_latch_destroy(kasane_latch_t* latch);                 /**< not while somebody waits; by who has passed, at once */
int kasane_latch_count_down(kasane_latch_t* latch, uint32_t n);  /**< never below 0 */
int kasane_latch_wait(const kasane_latch_t* latch);              /**< until it is open; afterwards sees what was done before all counts */
int kasane_latch_trywait(const kasane_latch_t* latch);           /**< EBUSY: it is not open */

int kasane_once_init(kasane_once_t* once);    /**< EAGAIN: this rank has no record left */
int kasane_once_destroy(kasane_once_t* once);
/** Calls function(argument) if nobody in the job has done so, else waits until it is done; afterwards what it did is visible. If it throws (C++), another
 * caller does it. */
int kasane_call_once(kasane_once_t* once, void (*function)(void*), void* argument);

typedef uint32_t kasane_key_t; /**< a pointer-sized variable that each thread has its own of; valid on every rank */
/**
 * A new key of the job; in every thread its value is NULL at first. When a thread ends, destructor (may be NULL) is called on it for a value that is not
 * NULL. There are 4 keys, which are never given back. EAGAIN: all are in use.
 */
int kasane_key_create(kasane_key_t* key, void (*destructor)(void*));
int kasane_key_set(kasane_key_t key, void* value); /**< in the calling thread. EPERM: not on a thread. EINVAL: no such key */
void* kasane_key_get(kasane_key_t key);            /**< of the calling thread; NULL outside of threads */

/* ---- counters -------------------------------------------------------------------------------------------------------------- */

/** Stands for all ranks: their sum. */
#define KASANE_ALL_RANKS UINT32_MAX
/**
 * What a rank has counted since the start of the job: threads run, steals, faults, bytes fetched and so on; docs/guide/options.md#counters lists them. Counters are numbered
 * from 0. Stores the name of one and its value, at that rank or summed over KASANE_ALL_RANKS; either pointer may be NULL. Of names that begin with bytes_ the unit is a
 * byte, with ns_ a nanosecond (summed over the rank's threads). The name lives as long as the process.
 * The value is exact, but others count on while it is read. Consistency: none.
 * EINVAL: there is no such counter (so a loop over the numbers ends here), or no such rank.
 */
int kasane_counter(uint32_t index, uint32_t rank, const char** name, uint64_t* value);
/** The value of the counter of that name. EINVAL: no such counter or rank. */
int kasane_counter_by_name(const char* name, uint32_t rank, uint64_t* value);

#ifdef __cplusplus
}
#endif
#endif
