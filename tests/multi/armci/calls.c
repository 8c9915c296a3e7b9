/* SPDX-License-Identifier: Apache-2.0 */
/* ARMCI beside its one-sided calls: memory, polling, mutexes, groups, messages, domains, and its errors.
 * Usage: calls passed | wild | ended | alone | together */
#define _GNU_SOURCE
#include <armci.h>
#include <armcix.h>
#include <message.h>
#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static int me, nproc, failures;
static void expect(int right, const char* what) {
  if (right) return;
  ++failures;
  fprintf(stderr, "calls: process %d: wrong: %s\n", me, what);
}

static void memory(void) {
  void** parts = malloc(nproc * sizeof *parts);
  expect(ARMCI_Malloc(parts, me % 2 ? 0 : 100000) == 0, "malloc");
  for (int p = 0; p < nproc; ++p) expect((parts[p] == NULL) == (p % 2), "0 bytes are NULL");
  expect(ARMCI_Free(parts[me]) == 0, "free");
  /* One process wants too much: all fail. */
  expect(ARMCI_Malloc(parts, me == nproc - 1 ? 1L << 60 : 1000) != 0, "too much");
  for (int p = 0; p < nproc; ++p) expect(parts[p] == NULL, "nothing was allocated");
  char* mine = ARMCI_Malloc_local(1000);
  int four = 4, got = 0; /* in private memory of the process itself */
  ARMCI_Put(&four, mine, 4, me);
  ARMCI_Acc(ARMCI_ACC_INT, &four, &four, mine, 4, me);
  ARMCI_Rmw(ARMCI_FETCH_AND_ADD, &got, mine, 1, me);
  expect(got == 20 && *(int*)mine == 21, "private memory of the process itself");
  ARMCI_Free_local(mine);
  for (int round = 0; round < 20; ++round) {
    expect(ARMCI_Malloc(parts, 1000 << (round % 8)) == 0, "malloc again");
    memset(parts[me], round, 1000);
    ARMCI_Barrier();
    char c = 0;
    ARMCI_Get((char*)parts[(me + 1) % nproc] + 999, &c, 1, (me + 1) % nproc);
    expect(c == round, "memory that was used before");
    ARMCI_Free(parts[me]);
  }
  free(parts);
}

/* A process waits in a barrier, or for memory, while another receives what it has begun to send. */
static void begun_to_send(void) {
  enum { kBytes = 2 << 20 };
  char* data = calloc(1, kBytes);
  void** parts = malloc(nproc * sizeof *parts);
  for (int round = 0; round < 2 && nproc > 1; ++round) {
    MPI_Request request = MPI_REQUEST_NULL;
    if (me == 0) MPI_Isend(data, kBytes, MPI_BYTE, 1, round, MPI_COMM_WORLD, &request);
    if (me == 1) MPI_Recv(data, kBytes, MPI_BYTE, 0, round, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (round == 0) {
      ARMCI_Barrier();
    } else {
      expect(ARMCI_Malloc(parts, 64) == 0, "memory while a message is sent");
      ARMCI_Free(parts[me]);
    }
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  }
  free(parts), free(data);
}

/* A token goes round: each process spins on a word of its own. */
static void polling(void) {
  void** parts = malloc(nproc * sizeof *parts);
  ARMCI_Malloc(parts, 64);
  memset(parts[me], 0, 64);
  ARMCI_Barrier();
  volatile int* word = parts[me];
  for (int round = 1; round <= 50; ++round) {
    int data = round * 7;
    if (me != 0 || round != 1) {
      const int before = me == 0 ? round - 1 : round;
      while (*word != before) usleep(1);
      expect(((int*)parts[me])[1] == before * 7, "data before the flag");
    }
    void* next = parts[(me + 1) % nproc];
    ARMCI_Put_flag(&data, (int*)next + 1, sizeof data, next, round, (me + 1) % nproc);
  }
  ARMCI_Barrier();
  ARMCI_Free(parts[me]);
  free(parts);
}

static void mutexes(void) {
  void** parts = malloc(nproc * sizeof *parts);
  ARMCI_Malloc(parts, 64);
  memset(parts[me], 0, 64);
  expect(ARMCI_Create_mutexes(me + 1) == 0, "create mutexes");
  ARMCI_Barrier();
  const int owner = nproc - 1;
  for (int i = 0; i < 100; ++i) {
    long n = 0;
    ARMCI_Lock(owner, owner);
    ARMCI_Get(parts[0], &n, sizeof n, 0);
    ++n;
    ARMCI_NbPut(&n, parts[0], sizeof n, 0, NULL); /* complete before the next holder */
    ARMCI_Unlock(owner, owner);
  }
  ARMCI_Barrier();
  expect(ARMCI_GetValueLong(parts[0], 0) == 100L * nproc, "a counter under a mutex");
  expect(ARMCI_Destroy_mutexes() == 0, "destroy mutexes");
  ARMCI_Group world;
  ARMCI_Group_get_world(&world);
  armcix_mutex_hdl_t h = ARMCIX_Create_mutexes_hdl(2, &world);
  if (me == 0) {
    ARMCIX_Lock_hdl(h, 1, owner);
    expect(ARMCIX_Trylock_hdl(h, 0, owner) == 0, "another mutex is free");
    ARMCIX_Unlock_hdl(h, 0, owner);
  }
  ARMCI_Barrier();
  if (me != 0) expect(ARMCIX_Trylock_hdl(h, 1, owner) != 0, "a mutex that is held");
  ARMCI_Barrier();
  if (me == 0) ARMCIX_Unlock_hdl(h, 1, owner);
  ARMCI_Barrier();
  if (me == owner) expect(ARMCIX_Trylock_hdl(h, 1, owner) == 0, "a mutex that was unlocked");
  ARMCI_Barrier();
  ARMCIX_Destroy_mutexes_hdl(h);
  ARMCI_Free(parts[me]);
  free(parts);
}

static void members(ARMCI_Group* group, int first, int size) {
  int rank = -1, count = 0, sum[2] = {me, 1};
  expect(ARMCI_Group_rank(group, &rank) == 0 && rank == me - first, "rank in the group");
  ARMCI_Group_size(group, &count);
  expect(count == size && ARMCI_Absolute_id(group, size - 1) == first + size - 1, "size of the group");
  armci_msg_group_igop(sum, 2, "+", group);
  expect(sum[1] == size && sum[0] == size * first + size * (size - 1) / 2, "sum in the group");
  void** parts = malloc(size * sizeof *parts);
  expect(ARMCI_Malloc_group(parts, 5000, group) == 0, "malloc in the group");
  long mine = me * 11, theirs = 0;
  memcpy(parts[rank], &mine, sizeof mine);
  armci_msg_group_barrier(group);
  ARMCI_Get(parts[(rank + 1) % size], &theirs, sizeof theirs, ARMCI_Absolute_id(group, (rank + 1) % size));
  expect(theirs == ARMCI_Absolute_id(group, (rank + 1) % size) * 11L, "get in the group");
  char text[4] = "";
  if (me == first) strcpy(text, "abc");
  armci_msg_group_bcast_scope(SCOPE_ALL, text, 4, first, group);
  expect(strcmp(text, "abc") == 0, "broadcast in the group");
  ARMCI_Free_group(parts[rank], group);
  free(parts);
}

static void groups(void) {
  const int half = nproc / 2, upper = me >= half, size = upper ? nproc - half : half;
  int list[64];
  for (int i = 0; i < size; ++i) list[i] = (upper ? half : 0) + i;
  ARMCI_Group world, mine, child, split;
  ARMCI_Group_get_world(&world);
  ARMCI_Group_create(size, list, &mine); /* by its members alone */
  members(&mine, list[0], size);
  int first[1] = {0}; /* in numbers of the parent */
  ARMCI_Group_create_child(1, first, &child, &mine);
  int rank = 0;
  expect((ARMCI_Group_rank(&child, &rank) == 0) == (me == list[0]), "members of the child");
  if (me == list[0]) members(&child, me, 1);
  if (me == list[0]) ARMCI_Group_free(&child);
  ARMCIX_Group_split(&world, upper, me, &split);
  members(&split, list[0], size);
  ARMCI_Group_free(&split);
  ARMCI_Group_set_default(&mine);
  ARMCI_Group_get_default(&split);
  expect(split.comm == mine.comm, "default group");
  ARMCI_Group_set_default(&world);
  ARMCI_Group_free(&mine);
}

static void messages(void) {
  expect(armci_msg_nproc() == nproc && armci_msg_me() == me, "numbers");
  double d[2] = {me - 1.5, 2};
  armci_msg_dgop(d, 2, "absmin");
  expect(d[0] == (nproc > 1 ? 0.5 : 1.5) && d[1] == 2, "absmin");
  long long l = me + 1;
  armci_msg_llgop(&l, 1, "max");
  expect(l == nproc, "max");
  int bits = 1 << me;
  armci_msg_igop(&bits, 1, "or");
  expect(bits == (1 << nproc) - 1, "or");
  struct {
    double value;
    int where;
  } x = {me == nproc / 2 ? -5 : me, me};
  armci_msg_sel(&x, sizeof x, "min", ARMCI_DOUBLE, me != 0 || nproc == 1);
  expect(nproc == 1 || (x.value == -5 && x.where == nproc / 2), "select");
  int number = me, length = 0;
  if (nproc > 1 && me == 0) armci_msg_snd(5, &number, sizeof number, nproc - 1);
  if (nproc > 1 && me == nproc - 1) {
    armci_msg_rcv(5, &number, sizeof number, &length, 0);
    expect(number == 0 && length == 4, "message");
  }
  int root, up, left, right, sum = 1;
  armci_msg_bintree(SCOPE_ALL, &root, &up, &left, &right);
  expect(root == 0 && (up >= 0) == (me != 0), "tree");
  armci_msg_reduce(&sum, 1, "+", ARMCI_INT);
  expect(me != 0 || sum == nproc, "reduce");
  expect(armci_domain_count(ARMCI_DOMAIN_SMP) == nproc && armci_domain_my_id(ARMCI_DOMAIN_SMP) == me,
         "domains");
  expect(ARMCI_Same_node(me) && !ARMCI_Uses_shm(), "node");
  int stride[1] = {12}, count[2] = {4, 3};
  char packed[12], rows[36] = "abcd........efgh........ijkl.......";
  armci_write_strided(rows, 1, stride, count, packed);
  expect(memcmp(packed, "abcdefghijkl", 12) == 0, "pack");
  memset(rows, '.', 36);
  armci_read_strided(rows, 1, stride, count, packed);
  expect(memcmp(rows, "abcd........efgh........ijkl", 28) == 0, "unpack");
}

/* Two processes share one processor, or have one each. */
static void bind_to(int together) {
  cpu_set_t allowed;
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  sched_getaffinity(getppid(), sizeof allowed, &allowed); /* of mpirun, which binds this process */
  int skip = together ? 0 : rank, cpu = 0;
  while (cpu < CPU_SETSIZE && (!CPU_ISSET(cpu, &allowed) || skip-- > 0)) ++cpu;
  CPU_ZERO(&allowed);
  CPU_SET(cpu, &allowed);
  expect(sched_setaffinity(0, sizeof allowed, &allowed) == 0, "bound to a processor");
}

static double seconds(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return t.tv_sec + t.tv_nsec * 1e-9;
}

/* Process 1 is 2 ms late at a barrier: process 0 does not sleep where it has a processor, as the MPI, and
 * leaves it to process 1 where they share it. */
static void waits(int together) {
  enum { kBarriers = 100 };
  const double work = 2e-3;
  double used = 0;
  int slept = 0, shorter = 0;
  for (int i = 0; i < kBarriers; ++i) {
    struct rusage before, after;
    ARMCI_Barrier();
    const double begin = seconds(CLOCK_THREAD_CPUTIME_ID), wall = seconds(CLOCK_MONOTONIC);
    while (me == 1 && seconds(CLOCK_THREAD_CPUTIME_ID) - begin < work) continue;
    getrusage(RUSAGE_THREAD, &before);
    ARMCI_Barrier();
    getrusage(RUSAGE_THREAD, &after);
    used += seconds(CLOCK_THREAD_CPUTIME_ID) - begin;
    if (seconds(CLOCK_MONOTONIC) - wall > 2 * work) continue; /* the machine is busy with others */
    ++shorter;
    slept += after.ru_nvcsw != before.ru_nvcsw;
  }
  if (me != 0) return;
  printf("calls: %d waits, %d slept; %.2f ms used of each\n", shorter, slept, used / kBarriers * 1e3);
  if (together) expect(used < kBarriers * work / 4, "the other process gets the processor");
  if (!together) expect(slept <= shorter / 10 && used > kBarriers * work / 8, "a short wait is not asleep");
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const char* name = argc > 1 ? argv[1] : "passed";
  const int together = strcmp(name, "together") == 0, alone = strcmp(name, "alone") == 0;
  if (alone || together) bind_to(together);
  expect(ARMCI_Initialized() == 0, "not initialised");
  ARMCI_Init_args(&argc, &argv);
  ARMCI_Init(); /* counts */
  me = armci_msg_me(), nproc = armci_msg_nproc();
  if (strcmp(name, "wild") == 0) {
    char c = 0;
    ARMCI_Put(&c, (void*)0x1234560, 1, (me + 1) % nproc);
  }
  if (alone || together) waits(together);
  memory();
  polling();
  begun_to_send();
  mutexes();
  groups();
  messages();
  ARMCI_Finalize();
  expect(ARMCI_Initialized() != 0, "initialised once more");
  ARMCI_Finalize();
  if (strcmp(name, "ended") == 0) ARMCI_Barrier();
  int all = 0;
  MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (me == 0 && all == 0) printf("calls: passed on %d processes\n", nproc);
  MPI_Finalize();
  return all != 0;
}
