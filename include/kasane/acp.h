/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file
 * The data library of ACP (Advanced Communication Primitives) on Kasane's containers, in C and C++: vectors,
 * lists, deques, maps and sets that all ranks change at once, and what of ACP's basic layer they need.
 * Programs link kasane::acp (pkg-config kasane-acp), and main runs on every rank:
 *
 *     kasane run -n 4 --main all -- ./program
 *
 * Source: Ajima et al., the paper on ACP's interface of distributed dynamic data structures. Vectors and
 * lists have the signatures of its tables 1 to 3, deques those of vectors; maps, sets and the basic layer
 * those of ACP 3. docs/guide/acp.md says what differs, and what is left out.
 *
 * **Global addresses** name bytes of global memory at a rank. Functions that take an element take the address
 * of a copy of it. Each element has its own memory, at the rank that was asked for, which stays until the
 * element is erased. Dereferencing gives its address; programs read and write it by acp_copy, its owner also
 * by acp_query_address, loads and stores. There are no fences: all ranks see one copy.
 *
 * **Consistency.** All ranks may call at once: push_back, push_front, begin, end, dereference, increment,
 * decrement; of lists also insert, erase and pops, of deques also pops, of maps and sets also find, insert,
 * remove and retrieve. These are linearisable. The others are exclusive: callers order them with all other
 * calls on the same container, for example by acp_sync. The caller that erases an element orders that
 * with the element's users.
 *
 * **Thread safety**: as above, from main and from threads of any rank; acp_init, acp_finalize and acp_sync by
 * one thread of each rank.
 *
 * **Errors.** Functions with a result return the one that is named as failure, set errno, and have changed
 * nothing. Functions without one, and all whose handle names no such container, end the job with a message
 * that names call, cause and rank. errno: EINVAL: no such rank, element or address; ENOMEM; ESTALE: the
 * iterator's element was erased; EBUSY: an exclusive call met another call.
 */
#ifndef KASANE_ACP_H
#define KASANE_ACP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- the basic layer ----------------------------------------------------------------------------------- */

/** A global address. */
typedef uint64_t acp_ga_t;
#define ACP_GA_NULL 0UL

/** The ranks meet. Collective, first. -1: failure; EINVAL: main does not run on every rank. */
int acp_init(int* argc, char*** argv);
/** The ranks meet for the last time; the memory of acp_malloc and all containers are gone. Collective. */
int acp_finalize(void);
/** Ends the job, with a message. */
void acp_abort(const char* message);
/** Returns when all ranks have called it. Collective. */
int acp_sync(void);
int acp_rank(void);
int acp_procs(void);

/** Bytes of a rank's starter memory, which is zero at first: where ranks tell each other addresses. */
#define KASANE_ACP_STARTER_BYTES 65536UL
/** A rank's starter memory. ACP_GA_NULL: there is no such rank. */
acp_ga_t acp_query_starter_ga(int rank);
/** For loads and stores of the rank that has it. NULL: another rank has it, or it is no address. */
void* acp_query_address(acp_ga_t ga);
/** The rank that has it. -1: it is no address. */
int acp_query_rank(acp_ga_t ga);

/** Names a copy that was begun, or one of these: no copy, all before, the last one. */
typedef int64_t acp_handle_t;
#define ACP_HANDLE_NULL 0L    /**< no copy */
#define ACP_HANDLE_ALL (-1L)  /**< all that were begun before */
#define ACP_HANDLE_CONT (-2L) /**< the one that was begun last */
/**
 * Begins to copy from one place to another, between any two ranks; the two do not overlap. order: a handle:
 * not before that copy and those before it are complete; ACP_HANDLE_CONT: nor the last, ACP_HANDLE_ALL: nor
 * any; ACP_HANDLE_NULL: at once. ACP_HANDLE_NULL: failure, EINVAL.
 */
acp_handle_t acp_copy(acp_ga_t dst, acp_ga_t src, size_t size, acp_handle_t order);
/** Returns when that copy of this rank, and those before it, are complete. */
void acp_complete(acp_handle_t handle);

/* ---- memory (table 1) ---------------------------------------------------------------------------------- */

/** Memory at a rank, aligned to 16 bytes, not initialised. ACP_GA_NULL: failure. */
acp_ga_t acp_malloc(size_t size, int rank);
/** Of any rank, from any rank. ACP_GA_NULL: nothing happens. */
void acp_free(acp_ga_t ga);

/** Bytes that a program passes or gets. */
typedef struct acp_element {
  acp_ga_t ga;
  size_t size;
} acp_element_t;
typedef struct acp_pair {
  acp_element_t first;  /**< the key */
  acp_element_t second; /**< the value */
} acp_pair_t;

/* ---- vectors (table 2) --------------------------------------------------------------------------------- */

/** Names a vector; may be passed to other ranks, whole or as its address. */
typedef struct acp_vector {
  acp_ga_t ga;
} acp_vector_t;
/** An index. */
typedef ptrdiff_t acp_vector_it_t;

/** At a rank; nelem elements of elsize bytes, all zero. Failure: the address is ACP_GA_NULL. */
acp_vector_t acp_create_vector(size_t nelem, size_t elsize, int rank);
void acp_destroy_vector(acp_vector_t vector);
/** ACP_GA_NULL: there is no such element. */
acp_ga_t acp_dereference_vector(acp_vector_t vector, acp_vector_it_t it);
acp_vector_it_t acp_begin_vector(acp_vector_t vector);
/** Behind the last of those elements before which none is still being written. */
acp_vector_it_t acp_end_vector(acp_vector_t vector);
acp_vector_it_t acp_increment_vector_it(acp_vector_it_t it);
acp_vector_it_t acp_decrement_vector_it(acp_vector_it_t it);
/** Afterwards it has nelem copies of the element at ga. */
void acp_fill_vector(acp_vector_t vector, size_t nelem, acp_ga_t ga);
/** Afterwards vector1 has copies of the elements it1 … it2 - 1 of vector2, whose elements have its size. */
void acp_assign_vector(acp_vector_t vector1, acp_vector_t vector2, acp_vector_it_t it1, acp_vector_it_t it2);
void acp_push_back_vector(acp_vector_t vector, acp_ga_t ga);
/** Of an empty one: nothing happens. So do all pops. */
void acp_pop_back_vector(acp_vector_t vector);
/** Before `it`. Returns where the new element is; -1: failure. */
acp_vector_it_t acp_insert_vector(acp_vector_t vector, acp_vector_it_t it, acp_ga_t ga);
/** Returns where the one behind it is now; -1: failure. */
acp_vector_it_t acp_erase_vector(acp_vector_t vector, acp_vector_it_t it);
void acp_swap_vector(acp_vector_t vector1, acp_vector_t vector2);
void acp_clear_vector(acp_vector_t vector);
/** A copy at a rank. Failure: the address is ACP_GA_NULL. */
acp_vector_t acp_duplicate_vector(acp_vector_t vector, int rank);
/** Elements. */
size_t acp_size_vector(acp_vector_t vector);
int acp_empty_vector(acp_vector_t vector);

/* ---- lists (table 3) ----------------------------------------------------------------------------------- */

/** Names a list, as acp_vector_t a vector. */
typedef struct acp_list {
  acp_ga_t ga;
} acp_list_t;
/** Names an element while it is there; two are equal if their `elem` are. */
typedef struct acp_list_it {
  acp_ga_t elem; /**< the element's address; ACP_GA_NULL: the end */
  uint64_t state[6];
} acp_list_it_t;

/** Of elements of elsize bytes; what links them begins at a rank. Failure: the address is ACP_GA_NULL. */
acp_list_t acp_create_list(size_t elsize, int rank);
void acp_destroy_list(acp_list_t list);
/** ACP_GA_NULL: at the end (EINVAL), or the element was erased (ESTALE). */
acp_ga_t acp_dereference_list(acp_list_t list, acp_list_it_t it);
acp_list_it_t acp_begin_list(acp_list_t list);
acp_list_it_t acp_end_list(acp_list_t list);
/** The one behind it; of the end, the end. Failure: elem is ACP_GA_NULL; ESTALE. */
acp_list_it_t acp_increment_list_it(acp_list_it_t it);
/** The one before it; of the end, the last; of the first, the first. Failure: elem is ACP_GA_NULL; ESTALE. */
acp_list_it_t acp_decrement_list_it(acp_list_it_t it);
/** Afterwards it has nelem copies, at `rank`, of the element at ga. */
void acp_fill_list(acp_list_t list, size_t nelem, acp_ga_t ga, int rank);
/** Afterwards list1 has copies, at `rank`, of list2's elements from it1 on, up to the one before it2. */
void acp_assign_list(acp_list_t list1, acp_list_t list2, acp_list_it_t it1, acp_list_it_t it2, int rank);
void acp_push_front_list(acp_list_t list, acp_ga_t ga, int rank);
void acp_pop_front_list(acp_list_t list);
void acp_push_back_list(acp_list_t list, acp_ga_t ga, int rank);
void acp_pop_back_list(acp_list_t list);
/** Before `it`, at a rank. Returns where it is. Failure: elem is ACP_GA_NULL. */
acp_list_it_t acp_insert_list(acp_list_t list, acp_list_it_t it, acp_ga_t ga, int rank);
/** Returns the one behind it; the end, and errno ESTALE, if another rank has erased that meanwhile, too. */
acp_list_it_t acp_erase_list(acp_list_t list, acp_list_it_t it);
void acp_swap_list(acp_list_t list1, acp_list_t list2);
void acp_clear_list(acp_list_t list);
/**
 * compare(ga1, ga2): the first goes before the second. It gets addresses of copies at the calling rank, for
 * acp_query_address. Elements stay at their ranks; equal ones keep their order.
 */
void acp_sort_list(acp_list_t list, bool (*compare)(const acp_ga_t ga1, const acp_ga_t ga2));
size_t acp_size_list(acp_list_t list);
int acp_empty_list(acp_list_t list);

/* ---- deques -------------------------------------------------------------------------------------------- */

/** Names a deque, as acp_vector_t a vector. */
typedef struct acp_deque {
  acp_ga_t ga;
} acp_deque_t;
/** An index, from the front. */
typedef ptrdiff_t acp_deque_it_t;

/** All as of vectors. */
acp_deque_t acp_create_deque(size_t nelem, size_t elsize, int rank);
void acp_destroy_deque(acp_deque_t deque);
acp_ga_t acp_dereference_deque(acp_deque_t deque, acp_deque_it_t it);
acp_deque_it_t acp_begin_deque(acp_deque_t deque);
acp_deque_it_t acp_end_deque(acp_deque_t deque);
acp_deque_it_t acp_increment_deque_it(acp_deque_it_t it);
acp_deque_it_t acp_decrement_deque_it(acp_deque_it_t it);
void acp_fill_deque(acp_deque_t deque, size_t nelem, acp_ga_t ga);
void acp_assign_deque(acp_deque_t deque1, acp_deque_t deque2, acp_deque_it_t it1, acp_deque_it_t it2);
void acp_push_front_deque(acp_deque_t deque, acp_ga_t ga);
void acp_push_back_deque(acp_deque_t deque, acp_ga_t ga);
void acp_pop_front_deque(acp_deque_t deque);
void acp_pop_back_deque(acp_deque_t deque);
acp_deque_it_t acp_insert_deque(acp_deque_t deque, acp_deque_it_t it, acp_ga_t ga);
acp_deque_it_t acp_erase_deque(acp_deque_t deque, acp_deque_it_t it);
void acp_swap_deque(acp_deque_t deque1, acp_deque_t deque2);
void acp_clear_deque(acp_deque_t deque);
acp_deque_t acp_duplicate_deque(acp_deque_t deque, int rank);
size_t acp_size_deque(acp_deque_t deque);
int acp_empty_deque(acp_deque_t deque);

/* ---- maps ---------------------------------------------------------------------------------------------- */

/** Names a map, as acp_vector_t a vector. */
typedef struct acp_map {
  acp_ga_t ga;
  uint64_t num_ranks;
  uint64_t num_slots;
} acp_map_t;
/** Names an entry while it is there; two are equal if their `elem` are. */
typedef struct acp_map_it {
  acp_ga_t elem; /**< ACP_GA_NULL: the end */
  uint64_t state[36];
} acp_map_it_t;

/**
 * Over these ranks; entries lie where their keys' hashes say, of any size each. rank: where the map's record
 * is. It grows by itself: num_slots is only noted. Failure: the address is ACP_GA_NULL.
 */
acp_map_t acp_create_map(int num_ranks, const int* ranks, int num_slots, int rank);
void acp_destroy_map(acp_map_t map);
/** The end: there is none. */
acp_map_it_t acp_find_map(acp_map_t map, acp_element_t key);
/** 1: inserted. 0: failure; EEXIST: the key is there, and its value stays. */
int acp_insert_map(acp_map_t map, acp_pair_t pair);
/** Nothing happens where there is none. */
void acp_remove_map(acp_map_t map, acp_element_t key);
/** Copies the value of pair.first to pair.second, as far as it fits; returns how many bytes. 0: none. */
size_t acp_retrieve_map(acp_map_t map, acp_pair_t pair);
/** The addresses of key and value. Those of failure are ACP_GA_NULL. Keys are not to be written. */
acp_pair_t acp_dereference_map_it(acp_map_it_t it);
/** A walk visits what is there throughout exactly once, whatever others insert and remove. */
acp_map_it_t acp_begin_map(acp_map_t map);
acp_map_it_t acp_end_map(acp_map_t map);
/** Of those that began at acp_begin_map. Failure: the end; EINVAL: it is acp_find_map's. */
acp_map_it_t acp_increment_map_it(acp_map_it_t it);
void acp_clear_map(acp_map_t map);
void acp_swap_map(acp_map_t map1, acp_map_t map2);
/** Exact while nothing changes. */
size_t acp_size_map(acp_map_t map);
int acp_empty_map(acp_map_t map);

/* ---- sets ---------------------------------------------------------------------------------------------- */

/** Names a set, as acp_vector_t a vector. */
typedef struct acp_set {
  acp_ga_t ga;
  uint64_t num_ranks;
  uint64_t num_slots;
} acp_set_t;
/** Names an element, as acp_map_it_t an entry. */
typedef acp_map_it_t acp_set_it_t;

/** All as of maps. */
acp_set_t acp_create_set(int num_ranks, const int* ranks, int num_slots, int rank);
void acp_destroy_set(acp_set_t set);
acp_set_it_t acp_find_set(acp_set_t set, acp_element_t key);
int acp_insert_set(acp_set_t set, acp_element_t key);
void acp_remove_set(acp_set_t set, acp_element_t key);
acp_element_t acp_dereference_set_it(acp_set_it_t it);
acp_set_it_t acp_begin_set(acp_set_t set);
acp_set_it_t acp_end_set(acp_set_t set);
acp_set_it_t acp_increment_set_it(acp_set_it_t it);
void acp_clear_set(acp_set_t set);
void acp_swap_set(acp_set_t set1, acp_set_t set2);
size_t acp_size_set(acp_set_t set);
int acp_empty_set(acp_set_t set);

#ifdef __cplusplus
}
#endif
#endif
