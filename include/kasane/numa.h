// SPDX-License-Identifier: Apache-2.0
/**
 * NUMA nodes: where a rank's memory lies among the nodes of its machine. Placements that name nodes are in
 * kasane.h. C++: numa.hpp. Guide: docs/guide/numa.md.
 * Thread safety: every function from any thread.
 */
#ifndef KASANE_NUMA_H
#define KASANE_NUMA_H

#include <kasane/kasane.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * The numbers of the nodes with memory that this process may use, ascending, into numbers[0 … most);
 * returns how many there are.
 */
uint32_t kasane_numa_nodes(uint32_t* numbers, uint32_t most);
/** The node of the core on which the caller runs at the moment. */
uint32_t kasane_numa_here(void);
/** As the firmware says: 10 is local, 20 takes twice as long. 0: unknown. */
uint32_t kasane_numa_distance(uint32_t from, uint32_t to);
/**
 * Gives the whole pages of 64 KiB in [pointer, pointer + bytes), which this rank owns, a policy:
 * KASANE_PLACEMENT_NUMA, _NUMA_INTERLEAVE, _NUMA_WEIGHTED (with STRICT, if that is wanted), or _LOCAL for
 * none. Pages that are present move. Those stay, and are counted as misplaced, that other ranks or devices
 * use all the time, or for which the nodes have no room. The policy ends when the memory is freed. Contents
 * do not change, and other threads may use them meanwhile. No fence.
 * EINVAL: another rank owns a page (named); no such node; no whole page. ENOMEM: strict, and pages lie
 * elsewhere. EPERM and others: the kernel refuses, with the reason.
 */
int kasane_numa_bind(void* pointer, size_t bytes, kasane_placement_t placement, uint64_t argument);
/**
 * Where the OS pages (4096 bytes) of [pointer, pointer + bytes) lie at this rank, asked of the kernel: for
 * the owner its pages, for other ranks their copies. on[node]: pages on it, for node < nodes. absent: not in
 * DRAM here. misplaced: on other nodes than their policy wants. absent and misplaced may be NULL.
 * EINVAL: not allocated global memory.
 */
int kasane_numa_where(const void* pointer, size_t bytes, uint64_t* on, uint32_t nodes, uint64_t* absent,
                      uint64_t* misplaced);

#ifdef __cplusplus
}
#endif
#endif
