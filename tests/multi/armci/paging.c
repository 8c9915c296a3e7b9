/* SPDX-License-Identifier: Apache-2.0 */
/* ARMCI memory of which most is on SSD: what is sent for, when it is copied, and what is not read. Each
 * process has MIB of it. Usage: paging MIB [speed] */
#include <armci.h>
#include <armcix.h>
#include <kasane/kasane.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { kPage = 64 << 10, kRows = 48, kRow = 264, kStride = 2 * kPage };

static int me, nproc, failures;
static char** part; /* by process; begins with a page */
static size_t bytes;
static char* local;

static void expect(int right, const char* what) {
  if (right) return;
  ++failures;
  fprintf(stderr, "paging: process %d: wrong: %s\n", me, what);
}

static uint64_t counter(const char* name) {
  uint64_t value = 0;
  if (kasane_counter_by_name(name, KASANE_ALL_RANKS, &value) != 0) expect(0, name);
  return value;
}

/* The long at a place of a process's part, as filled. */
static long filled(int process, size_t at) { return (long)(at * 2654435761u) ^ (long)process << 40; }

static void fill(void) {
  for (size_t at = 0; at < bytes; at += 8) *(long*)(part[me] + at) = filled(me, at);
  ARMCI_Barrier();
}

/* All of it is on SSD when this returns, on all processes. */
static void evict(void) {
  ARMCI_Barrier();
  expect(kasane_evict(part[me], bytes) == 0, "evict");
  ARMCI_Barrier();
}

/* Are bytes that came from a place as filled, plus `add`? */
static int as_filled(const char* from, int process, size_t at, size_t n, long add) {
  for (size_t i = 0; i < n; i += 8) {
    long value;
    memcpy(&value, from + i, 8);
    if (value != filled(process, at + i) + add) return 0;
  }
  return 1;
}

/* A patch of kRows rows, each in a page of its own, from `first`. */
static int far_stride[1] = {kStride}, near_stride[1] = {kRow}, count[2] = {kRow, kRows};
static size_t row_at(size_t first, int row) { return first + (size_t)row * kStride; }

static int patch_is(int process, size_t first, long add) {
  int right = 1;
  for (int r = 0; r < kRows; ++r) right &= as_filled(local + r * kRow, process, row_at(first, r), kRow, add);
  return right;
}

/* Puts of whole pages: to the next process and to itself, contiguous and strided. */
static void whole_pages(void) {
  const int next = (me + 1) % nproc;
  enum { kSome = 20 };
  const size_t n = (size_t)kSome * kPage, second = bytes / 2 / kPage * kPage;
  for (size_t i = 0; i < n; i += 8) *(long*)(local + i) = (long)i + me;
  evict();
  const uint64_t read = counter("bytes_read_back"), replaced = counter("pages_replaced");
  ARMCI_Barrier();
  int wide_far[1] = {3 * kPage}, wide_near[1] = {2 * kPage}, wide[2] = {2 * kPage, 3};
  ARMCI_Put(local, part[next] + kPage, (int)n, next);
  ARMCI_PutS(local, wide_near, part[next] + second, wide_far, wide, 1, next);
  ARMCI_Barrier();
  if (nproc > 1) { /* to itself, elsewhere */
    ARMCI_Put(local, part[me] + (2 + kSome) * kPage, (int)n, me);
    armci_hdl_t handle;
    ARMCI_INIT_HANDLE(&handle);
    ARMCI_NbPutS(local, wide_near, part[me] + second + 10 * kPage, wide_far, wide, 1, me, &handle);
    ARMCI_Wait(&handle);
  }
  ARMCI_Barrier();
  const uint64_t more = counter("bytes_read_back") - read, pages = counter("pages_replaced") - replaced;
  expect(more == 0, "a put of whole pages has read");
  expect(pages == (uint64_t)(nproc > 1 ? 2 : 1) * nproc * (kSome + 6), "pages were not replaced");
  if (me == 0 && (more != 0 || failures != 0))
    fprintf(stderr, "paging: %lu bytes read, %lu pages replaced\n", (unsigned long)more,
            (unsigned long)pages);
  ARMCI_Barrier();

  char* got = malloc((kSome + 2) * kPage);
  ARMCI_Get(part[next], got, (kSome + 2) * kPage, next);
  expect(as_filled(got, next, 0, kPage, 0), "the page before");
  expect(memcmp(got + kPage, local, n) == 0, "the pages that were put");
  expect(as_filled(got + (kSome + 1) * kPage, next, (kSome + 1) * kPage, kPage, 0), "the page behind");
  evict(); /* what was put is written, though the spill file had these pages */
  ARMCI_Get(part[next] + kPage, got, (int)n, next);
  expect(memcmp(got, local, n) == 0, "what was put, from SSD");
  ARMCI_Get(part[next] + second, got, 8 * kPage, next);
  for (int r = 0; r < 3; ++r) {
    expect(memcmp(got + 3 * r * kPage, local + 2 * r * kPage, 2 * kPage) == 0, "rows that were put");
    if (r < 2)
      expect(as_filled(got + (3 * r + 2) * kPage, next, second + (3 * r + 2) * kPage, kPage, 0), "between");
  }
  if (nproc > 1) {
    expect(memcmp(part[me] + (2 + kSome) * kPage, local, n) == 0, "the process's own pages");
    expect(memcmp(part[me] + second + 13 * kPage, local + 2 * kPage, 2 * kPage) == 0, "its own rows");
  }
  free(got);
  ARMCI_Barrier();
  fill();
}

/* Blocking calls read what is absent together. */
static void together(int process, size_t first) {
  evict();
  const uint64_t before = counter("reads_together");
  ARMCI_Barrier();
  memset(local, 0, kRows * kRow);
  ARMCI_GetS(part[process] + first, far_stride, local, near_stride, count, 1, process);
  expect(patch_is(process, first, 0), "a get of a patch");
  ARMCI_Barrier();
  expect(counter("reads_together") - before >= (uint64_t)nproc * kRows / 2,
         "pages of a get were read one by one");

  evict();
  const uint64_t again = counter("reads_together"), misses = counter("address_misses");
  ARMCI_Barrier();
  for (int i = 0; i < kRows * kRow / 8; ++i) ((long*)local)[i] = 1;
  long scale = 3;
  ARMCI_AccS(ARMCI_ACC_LNG, &scale, local, near_stride, part[process] + first, far_stride, count, 1, process);
  ARMCI_Barrier();
  expect(counter("reads_together") - again >= (uint64_t)nproc * kRows / 2,
         "pages of an acc were read one by one");
  expect(counter("address_misses") - misses <= (uint64_t)nproc * kRows * 3 / 2,
         "the directory was asked twice for a page of an acc");
  ARMCI_GetS(part[process] + first, far_stride, local, near_stride, count, 1, process);
  expect(patch_is(process, first, 3), "an acc of a patch");
  ARMCI_Barrier();
  fill();
}

/* Non-blocking calls send for what is absent; Wait, Test and fences copy. */
static void later(int process, size_t first) {
  armci_hdl_t handle;
  ARMCI_INIT_HANDLE(&handle);
  evict();
  memset(local, 0x55, kRows * kRow);
  const uint64_t before = counter("bytes_read_back");
  ARMCI_Barrier();
  ARMCI_NbGetS(part[process] + first, far_stride, local, near_stride, count, 1, process, &handle);
  int untouched = 1;
  for (int i = 0; i < kRows * kRow; ++i) untouched &= local[i] == 0x55;
  expect(untouched, "a non-blocking get of absent pages has copied");
  for (int i = 0; i < 20000 && counter("bytes_read_back") == before; ++i) usleep(500);
  expect(counter("bytes_read_back") != before, "nothing was sent for");
  ARMCI_Wait(&handle);
  expect(patch_is(process, first, 0), "a non-blocking get");

  evict();
  ARMCI_INIT_HANDLE(&handle);
  memset(local, 0, kRows * kRow);
  ARMCI_NbGetS(part[process] + first, far_stride, local, near_stride, count, 1, process, &handle);
  while (ARMCI_Test(&handle) != 0) usleep(10);
  expect(patch_is(process, first, 0), "a get that was tested for");

  evict();
  ARMCI_INIT_HANDLE(&handle);
  for (int i = 0; i < kRows * kRow / 8; ++i) ((long*)local)[i] = 1;
  long scale = 5;
  ARMCI_NbAccS(ARMCI_ACC_LNG, &scale, local, near_stride, part[process] + first, far_stride, count, 1,
               process, &handle);
  scale = 0;
  memset(local, 0x55, kRows * kRow); /* the source was copied */
  ARMCI_Wait(&handle);
  ARMCI_Barrier();
  ARMCI_GetS(part[process] + first, far_stride, local, near_stride, count, 1, process);
  expect(patch_is(process, first, 5), "a non-blocking acc");

  evict();
  for (int r = 0; r < kRows; ++r)
    for (size_t i = 0; i < kRow; i += 8)
      *(long*)(local + r * kRow + i) = filled(process, row_at(first, r) + i) + 9;
  ARMCI_NbPutS(local, near_stride, part[process] + first, far_stride, count, 1, process, NULL);
  memset(local, 0x55, kRows * kRow);
  ARMCI_Fence(process);
  ARMCI_Barrier();
  ARMCI_GetS(part[process] + first, far_stride, local, near_stride, count, 1, process);
  expect(patch_is(process, first, 9), "a non-blocking put");
  ARMCI_Barrier();
  fill();
}

/* Accumulates whose elements are not aligned: made under a lock, by the call that waits for all others. */
static void unaligned(int process, size_t first) {
  static char was[kRows * kRow];
  char* const at = part[process] + first + 4;
  for (int by_handle = 0; by_handle < 2; ++by_handle) {
    ARMCI_GetS(at, far_stride, was, near_stride, count, 1, process);
    evict();
    for (int i = 0; i < kRows * kRow / 8; ++i) ((long*)local)[i] = i;
    long scale = 3;
    armci_hdl_t handle;
    ARMCI_INIT_HANDLE(&handle);
    ARMCI_NbAccS(ARMCI_ACC_LNG, &scale, local, near_stride, at, far_stride, count, 1, process, &handle);
    by_handle ? (void)ARMCI_Wait(&handle) : ARMCI_Fence(process);
    ARMCI_Barrier();
    ARMCI_GetS(at, far_stride, local, near_stride, count, 1, process);
    int right = 1;
    for (int i = 0; i < kRows * kRow / 8; ++i) {
      long before, after;
      memcpy(&before, was + 8 * i, 8);
      memcpy(&after, local + 8 * i, 8);
      right &= after == before + 3 * i;
    }
    expect(right, "an unaligned non-blocking acc");
    ARMCI_Barrier();
  }
  fill();
}

/* The words of mutexes, at which other processes look all the time, are not evicted. */
static void mutexes_stay(void) {
  ARMCI_Group world;
  ARMCI_Group_get_world(&world);
  const armcix_mutex_hdl_t mutexes = ARMCIX_Create_mutexes_hdl(1, &world);
  const uintptr_t word = ((const uint64_t*)mutexes->bases)[2 * me];
  const kasane_strides_t shape = {.dimensions = 1, .count = {8}};
  expect(kasane_evict((void*)(word & -(uintptr_t)kPage), kPage) == 0, "evict mutexes");
  size_t absent = 0;
  expect(kasane_send_for((void*)word, &shape, KASANE_READ, &absent) == 0, "send for mutexes");
  expect(absent == 0, "a mutex is on SSD");
  ARMCIX_Lock_hdl(mutexes, 0, (me + 1) % nproc);
  ARMCIX_Unlock_hdl(mutexes, 0, (me + 1) % nproc);
  ARMCI_Barrier();
  ARMCIX_Destroy_mutexes_hdl(mutexes);
}

/* ---- speed: of process 0, MB/s, from and to process 1 -------------------------------------------------- */

typedef enum { kGet, kPut, kGetPatch, kPutPatch } access_t;

static double now(void) { return MPI_Wtime(); }

/* All of the part, in pieces of 1 MiB or patches of 128 rows of 8 KiB. */
static double sweep(access_t how, size_t n, int target) {
  static int far[1] = {32 << 10}, near[1] = {8 << 10}, patch[2] = {8 << 10, 128};
  const double begin = now();
  size_t done = 0;
  if (how == kGet || how == kPut) {
    for (; done + (1 << 20) <= n; done += 1 << 20)
      how == kGet ? ARMCI_Get(part[target] + done, local, 1 << 20, target)
                  : ARMCI_Put(local, part[target] + done, 1 << 20, target);
  } else { /* a matrix whose rows have 32 KiB, in tiles */
    for (size_t row = 0; row + 128 <= n / (32 << 10); row += 128)
      for (int column = 0; column < 4; ++column, done += 1 << 20) {
        char* at = part[target] + row * (32 << 10) + column * (8 << 10);
        how == kGetPatch ? ARMCI_GetS(at, far, local, near, patch, 1, target)
                         : ARMCI_PutS(local, near, at, far, patch, 1, target);
      }
  }
  return done / (now() - begin) / 1e6;
}

static void speed(void) {
  static const char* kName[] = {"get", "put", "get patches", "put patches"};
  for (access_t how = kGet; how <= kPutPatch; ++how)
    for (int target = 1 % nproc; target >= 0; --target) {
      for (int turn = 0; turn < 3; ++turn) {
        ARMCI_Barrier();
        if (me == 0)
          printf("speed: %s of %s: %.0f MB/s\n", kName[how], target == 0 ? "itself" : "another",
                 sweep(how, bytes, target));
        ARMCI_Barrier();
      }
      if (target == 0) break;
    }
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  ARMCI_Init();
  me = armci_msg_me(), nproc = armci_msg_nproc();
  bytes = (size_t)(argc > 1 ? atol(argv[1]) : 40) << 20;
  part = malloc(nproc * sizeof *part);
  if (ARMCI_Malloc((void**)part, bytes + kPage) != 0) ARMCI_Error("no memory", 1);
  char* const mine = part[me];
  for (int p = 0; p < nproc; ++p) part[p] += -(uintptr_t)part[p] & (kPage - 1);
  local = ARMCI_Malloc_local(2 << 20);
  memset(local, 0, 2 << 20);
  fill();
  if (argc > 2) {
    speed();
  } else {
    whole_pages();
    together((me + 1) % nproc, 3 * kPage + 128);
    together(me, 3 * kPage + 128);
    later((me + 1) % nproc, 5 * kPage + 1024);
    later(me, 5 * kPage + 1024);
    unaligned((me + 1) % nproc, 7 * kPage + 1024);
    unaligned(me, 7 * kPage + 1024);
    mutexes_stay();
  }
  armci_msg_igop(&failures, 1, "+");
  if (me == 0 && failures == 0) printf("paging: passed on %d processes\n", nproc);
  ARMCI_Free(mine);
  ARMCI_Free_local(local);
  ARMCI_Finalize();
  MPI_Finalize();
  return failures != 0;
}
