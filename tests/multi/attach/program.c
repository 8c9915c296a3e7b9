/* SPDX-License-Identifier: Apache-2.0 */
/* A program with a start of its own that attaches to Kasane, in each of several ways: `program CASE`. It is
 * built for each MPI, and without one (then it is one rank). A failed check ends the job by abort(). */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <kasane/kasane.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#ifdef WITH_MPI
#include <mpi.h>
#endif
#ifdef _OPENMP
#include <omp.h>
#endif

#define FAIL(...) fail(__LINE__, __VA_ARGS__)
#define CHECK(condition) ((condition) ? (void)0 : FAIL("%s", #condition))
#define OK(call)                                                              \
  do {                                                                        \
    const int code_ = (call);                                                 \
    if (code_ != 0) FAIL("%s: %d, %s", #call, code_, kasane_error_message()); \
  } while (0)

static uint32_t me, ranks;

static void fail(int line, const char* format, ...) {
  va_list rest;
  va_start(rest, format);
  fprintf(stderr, "attach program: rank %u, line %d: ", me, line);
  vfprintf(stderr, format, rest);
  fputc('\n', stderr);
  abort();
}

static uint32_t next_rank(void) { return (me + 1) % ranks; }
static uint32_t previous_rank(void) { return (me + ranks - 1) % ranks; }

static void attach(void) {
  OK(kasane_attach(NULL));
  me = kasane_rank();
  ranks = kasane_ranks();
}

static void* allocate(size_t bytes) {
  void* p = kasane_malloc(bytes);
  if (p == NULL) FAIL("%s", kasane_error_message());
  return p;
}

/* Each rank's part of a collective allocation. */
static uint64_t** parts_of(uint64_t* mine) {
  uint64_t** all = malloc(ranks * sizeof *all);
  OK(kasane_ranks_allgather(&mine, all, sizeof mine));
  return all;
}

static uint64_t value(uint32_t rank, size_t i, uint64_t round) {
  return (rank + 1) * 0x9e3779b97f4a7c15u + i * 31 + round * 0x10001u;
}

static void fill(uint64_t* words, size_t n, uint32_t rank, uint64_t round) {
  for (size_t i = 0; i < n; ++i) words[i] = value(rank, i, round);
}
static void expect(const uint64_t* words, size_t n, uint32_t rank, uint64_t round, const char* what) {
  for (size_t i = 0; i < n; ++i)
    if (words[i] != value(rank, i, round))
      FAIL("%s: word %zu is %llx, not %llx", what, i, (unsigned long long)words[i],
           (unsigned long long)value(rank, i, round));
}

/* ---- one frame: the owner's loads and stores, everybody's direct access, no fence -------------------- */

static void test_memory(size_t words) {
  uint64_t *const mine = allocate(words * 8), *const buffer = malloc(words * 8);
  uint64_t** const all = parts_of(mine);
  for (uint64_t round = 0; round < 3; ++round) {
    fill(mine, words, me, round);  // by stores
    OK(kasane_ranks_barrier());
    OK(kasane_get(buffer, all[next_rank()], words * 8));
    expect(buffer, words, next_rank(), round, "get");
    OK(kasane_ranks_barrier());
    fill(buffer, words, me, round + 7);
    OK(kasane_put(all[next_rank()], buffer, words * 8));
    OK(kasane_ranks_barrier());
    expect(mine, words, previous_rank(), round + 7, "a load after a put");
    OK(kasane_get(buffer, mine, words * 8));
    expect(buffer, words, previous_rank(), round + 7, "a get of one's own");
    OK(kasane_ranks_barrier());
  }
  kasane_free(mine);
  free(buffer);
  free(all);
}

/* Without a barrier: the owner polls a word by plain loads, the other rank by gets. */
static void test_polling(void) {
  uint64_t* const mine = allocate(1 << 16);
  memset(mine, 0, 1 << 16);
  uint64_t** const all = parts_of(mine);
  volatile uint64_t* const flag = mine;
  OK(kasane_ranks_barrier());
  for (uint64_t round = 1; round <= 200; ++round) {
    const uint64_t data = value(me, 5, round);
    OK(kasane_put(all[next_rank()] + 8, &data, 8));
    OK(kasane_put(all[next_rank()], &round, 8));
    while (*flag < round) sched_yield();
    if (*flag == round) CHECK(mine[8] == value(previous_rank(), 5, round) || *flag > round);
    flag[16] = round;  // the owner's plain store, which the other rank gets
    uint64_t seen = 0;
    while (seen < round) OK(kasane_get(&seen, all[next_rank()] + 16, 8));
    OK(kasane_ranks_barrier());
  }
  kasane_free(mine);
  free(all);
}

static void test_operations(void) {
  enum { kWords = 4096 };
  uint64_t* const mine = allocate(kWords * 8);
  uint64_t** const all = parts_of(mine);
  double* const sums = (double*)mine;
  for (int i = 0; i < kWords; ++i) sums[i] = 1;
  OK(kasane_ranks_barrier());
  double part[64];
  for (int i = 0; i < 64; ++i) part[i] = i;
  const double scale[2] = {2, 0};
  for (uint32_t r = 0; r < ranks; ++r)
    OK(kasane_accumulate((double*)all[r] + 100, part, 64, KASANE_DOUBLE, scale, NULL));
  OK(kasane_ranks_barrier());
  for (int i = 0; i < 64; ++i) CHECK(sums[100 + i] == 1 + 2.0 * i * ranks);
  OK(kasane_ranks_barrier());

  mine[0] = 0;
  OK(kasane_ranks_barrier());
  uint64_t old = 0;
  for (int i = 0; i < 1000; ++i) OK(kasane_atomic(KASANE_FETCH_ADD, 8, all[0], 1, 0, &old, NULL));
  OK(kasane_ranks_barrier());
  if (me == 0) CHECK(mine[0] == 1000u * ranks);

  // 16 rows of 8 words, each 32 words behind the one before
  kasane_strides_t shape = {.dimensions = 2, .count = {64, 16}, .global_stride = {256}, .local_stride = {64}};
  uint64_t patch[128];
  fill(patch, 128, me, 3);
  OK(kasane_put_strided(all[next_rank()] + 1024, patch, &shape, NULL));
  OK(kasane_ranks_barrier());
  for (size_t i = 0; i < 128; ++i) CHECK(mine[1024 + i / 8 * 32 + i % 8] == value(previous_rank(), i, 3));

  kasane_pending_t pending = {0};
  fill(patch, 128, me, 4);
  OK(kasane_put_async(all[next_rank()] + 2048, patch, sizeof patch, &pending));
  OK(kasane_wait(&pending));
  OK(kasane_put_async(all[next_rank()] + 3072, patch, sizeof patch, NULL));
  OK(kasane_flush());
  OK(kasane_ranks_barrier());
  expect(mine + 2048, 128, previous_rank(), 4, "put_async");
  expect(mine + 3072, 128, previous_rank(), 4, "put_async and flush");
  OK(kasane_ranks_barrier());
  kasane_free(mine);
  free(all);
}

/* Loads and stores of others' pages: coherent at barriers. Placements, views, advice, moves. */
static void test_views(void) {
  const size_t bytes = 4 << 20, words = bytes / 8, each = words / ranks;
  uint64_t* array = NULL;
  if (me == 0) array = kasane_allocate(bytes, 64, KASANE_PLACEMENT_BLOCK);
  OK(kasane_ranks_broadcast(&array, sizeof array, 0));
  CHECK(array != NULL);
  const uint64_t first = next_rank() * each;
  fill(array + first, each, me, 1);  // into the next rank's pages
  OK(kasane_ranks_barrier());
  for (uint32_t r = 0; r < ranks; ++r)
    expect(array + (r + 1) % ranks * each, each, r, 1, "a load of what another rank stored");
  OK(kasane_ranks_barrier());
  OK(kasane_view(array + first, each * 8, KASANE_READ_WRITE));
  fill(array + first, each, me, 2);
  OK(kasane_end_view(array + first, each * 8));
  OK(kasane_advise(array, bytes, KASANE_SEQUENTIAL));
  OK(kasane_prefetch(array, bytes, KASANE_READ));
  OK(kasane_ranks_barrier());
  for (uint32_t r = 0; r < ranks; ++r)
    expect(array + (r + 1) % ranks * each, each, r, 2, "what was stored in a view");
  OK(kasane_ranks_barrier());
  OK(kasane_own(array + me * each, 65536));
  uint32_t owner = 99;
  OK(kasane_where(array + me * each, &owner));
  CHECK(owner == me);
  if (me == 0) OK(kasane_give(array, 65536, ranks - 1));
  OK(kasane_ranks_barrier());
  OK(kasane_where(array, &owner));
  CHECK(owner == ranks - 1);
  OK(kasane_ranks_barrier());
  // pages stay: the whole array is used by one rank for a while
  for (int round = 0; round < 50 && me == ranks - 1; ++round) {
    for (size_t i = 0; i < words; i += 512) array[i] += 1;
    kasane_release_all();
  }
  OK(kasane_ranks_barrier());
  if (ranks > 1) {
    OK(kasane_where(array + each / 2, &owner));
    CHECK(owner == 0);
  }
  OK(kasane_ranks_barrier());
  if (me == 0) kasane_free(array);
}

static void test_refusals(void) {
  CHECK(kasane_attach(NULL) == EPERM);
  CHECK(kasane_run(NULL, NULL) == EPERM && strstr(kasane_error_message(), "attached") != NULL);
  CHECK(kasane_thread_allocate(8, 8).id == 0 && kasane_error_code() == EPERM);
  kasane_mutex_t mutex;
  CHECK(kasane_mutex_init(&mutex) == EPERM);
  CHECK(kasane_ranks_broadcast(&mutex, 8, ranks) == EINVAL);
  uint64_t word = 0;
  CHECK(kasane_get(&word, &word, 8) == EINVAL);  // not in global memory
}

/* The buffers of collectives in global memory. */
static void test_collectives(void) {
  const size_t bytes = 300000;
  unsigned char* const data = allocate(bytes);
  unsigned char* const all = allocate(bytes * ranks);
  memset(data, (int)me + 1, bytes);
  OK(kasane_ranks_allgather(data, all, bytes));
  for (uint32_t r = 0; r < ranks; ++r) CHECK(all[r * bytes] == r + 1 && all[(r + 1) * bytes - 1] == r + 1);
  OK(kasane_ranks_broadcast(data, bytes, ranks - 1));
  CHECK(data[0] == ranks && data[bytes - 1] == ranks);
  OK(kasane_ranks_broadcast(NULL, 0, 0));
  OK(kasane_ranks_barrier());
  kasane_free(data);
  kasane_free(all);
}

/* Written and read by all ranks together; errors come to all. */
static void test_checkpoint(void) {
  const size_t words = 1 << 18;
  uint64_t* array = NULL;
  char name[64] = "/tmp/kasane-attach-checkpoint-XXXXXX";
  if (me == 0) {
    array = kasane_allocate(words * 8, 64, KASANE_PLACEMENT_CYCLIC);
    const int fd = mkstemp(name);
    CHECK(fd >= 0 && close(fd) == 0);
  }
  OK(kasane_ranks_broadcast(&array, sizeof array, 0));
  OK(kasane_ranks_broadcast(name, sizeof name, 0));
  for (size_t i = me; i < words; i += ranks) array[i] = value(me, i, 11);
  OK(kasane_ranks_barrier());
  const kasane_checkpoint_t contents = {.count = words, .element_bytes = 8};
  CHECK(kasane_persist(array, &contents, "/nowhere/at/all") == ENOENT);
  OK(kasane_persist(array, &contents, name));
  for (size_t i = me; i < words; i += ranks) array[i] = 0;
  OK(kasane_ranks_barrier());
  CHECK(array[words - 1] == 0);
  OK(kasane_restore(array, &contents, name));
  for (size_t i = 0; i < words; i += 7) CHECK(array[i] == value(i % ranks, i, 11));
  OK(kasane_ranks_barrier());
  if (me == 0) {
    CHECK(unlink(name) == 0);
    kasane_free(array);
  }
}

static void all_of_memory(void) {
  test_memory(1 << 16);
  test_polling();
  test_operations();
  test_views();
  test_refusals();
  test_collectives();
  test_checkpoint();
}

/* ---- more data than DRAM ----------------------------------------------------------------------------- */

/* KASANE_DRAM is an eighth of it. */
static size_t words_out_of_core(void) {
  const char* dram = getenv("KASANE_DRAM");
  CHECK(dram != NULL);
  char* unit = NULL;
  size_t bytes = strtoul(dram, &unit, 10);
  if (*unit == 'M') bytes <<= 20;
  return bytes * 8 / ranks / 8;
}

static void test_out_of_core(void) {
  const size_t words = words_out_of_core(), part = 1 << 15;
  uint64_t *const mine = allocate(words * 8), *const buffer = malloc(part * 8);
  uint64_t** const all = parts_of(mine);
  fill(mine, words, me, 0);
  OK(kasane_ranks_barrier());
  for (size_t at = 0; at < words; at += part) {
    OK(kasane_get(buffer, all[next_rank()] + at, part * 8));
    for (size_t i = 0; i < part; ++i) CHECK(buffer[i] == value(next_rank(), at + i, 0));
  }
  OK(kasane_ranks_barrier());
  // The owner stores even words while the other rank puts odd ones, in the same blocks, with no fence.
  for (size_t at = 0; at < words; at += 1024) {
    for (size_t i = 0; i < 8; i += 2) mine[at + i] = value(me, at + i, 1);
    for (size_t i = 1; i < 8; i += 2) {
      const uint64_t word = value(me, at + i, 2);
      OK(kasane_put(all[next_rank()] + at + i, &word, 8));
    }
  }
  OK(kasane_ranks_barrier());
  for (size_t at = 0; at < words; at += 1024)
    for (size_t i = 0; i < 8; ++i)
      CHECK(mine[at + i] == (i % 2 == 0 ? value(me, at + i, 1) : value(previous_rank(), at + i, 2)));
  OK(kasane_ranks_barrier());
  const double one[2] = {1, 0};
  int64_t ones[64];
  for (int i = 0; i < 64; ++i) ones[i] = 1;
  for (size_t at = 0; at < words; at += words / 64)
    for (uint32_t r = 0; r < ranks; ++r)
      OK(kasane_accumulate(all[r] + at + 16, ones, 64, KASANE_INT64, one, NULL));
  OK(kasane_ranks_barrier());
  for (size_t at = 0; at < words; at += words / 64)
    for (size_t i = 16; i < 80; ++i) CHECK(mine[at + i] == value(me, at + i, 0) + ranks);
  uint64_t evicted = 0;
  OK(kasane_counter_by_name("bytes_spilled", KASANE_ALL_RANKS, &evicted));
  CHECK(evicted != 0);
  OK(kasane_ranks_barrier());
  kasane_free(mine);
  free(buffer);
  free(all);
}

/* ---- system calls, threads, children ----------------------------------------------------------------- */

/* Makes pages absent where the tiers are: they go to SSD. */
static void make_absent(void* p, size_t bytes) { OK(kasane_evict(p, bytes)); }

static void test_system_calls(void) {
  const size_t words = 1 << 17;
  uint64_t* const mine = allocate(words * 8);
  uint64_t** const all = parts_of(mine);
  fill(mine, words, me, 5);
  make_absent(mine, words * 8);
  OK(kasane_ranks_barrier());
  char name[] = "/tmp/kasane-attach-XXXXXX";
  const int fd = mkstemp(name);
  CHECK(fd >= 0 && unlink(name) == 0);
  // own pages on SSD; then those of another rank, never loaded here
  CHECK(pwrite(fd, mine, words * 8, 0) == (ssize_t)(words * 8));
  const uint64_t* const other = all[next_rank()];
  CHECK(pwrite(fd, other, words * 8, (off_t)(words * 8)) == (ssize_t)(words * 8));
  uint64_t* const back = malloc(words * 8);
  CHECK(pread(fd, back, words * 8, 0) == (ssize_t)(words * 8));
  expect(back, words, me, 5, "write() of own absent pages");
  CHECK(pread(fd, back, words * 8, (off_t)(words * 8)) == (ssize_t)(words * 8));
  expect(back, words, next_rank(), 5, "write() of another rank's pages");
  OK(kasane_ranks_barrier());
  make_absent(mine, words * 8);
  CHECK(pread(fd, mine, words * 8, (off_t)(words * 8)) == (ssize_t)(words * 8));
  expect(mine, words, next_rank(), 5, "read() into absent pages");
  FILE* const file = tmpfile();
  CHECK(file != NULL && fwrite(mine, 8, words, file) == words && fflush(file) == 0);
  close(fd);
  fclose(file);
  OK(kasane_ranks_barrier());
  kasane_free(mine);
  free(back);
  free(all);
}

static void test_child(void) {
  char line[64] = "";
  FILE* const pipe = popen("echo from a child", "r");
  CHECK(pipe != NULL && fgets(line, sizeof line, pipe) != NULL && strcmp(line, "from a child\n") == 0);
  CHECK(pclose(pipe) == 0 && system("true") == 0);
  uint64_t* const mine = allocate(65536);
  mine[3] = 7;
  mine[4000] = 9;
  const pid_t child = fork();
  if (child == 0) _exit(mine[3] == 7 && mine[4000] == 9 ? 0 : 1);
  int status = -1;
  CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
  kasane_free(mine);
}

struct Work {
  uint64_t** all;
  uint32_t number;
};

static void* work(void* argument) {
  const struct Work* const w = argument;
  const double one[2] = {1, 0};
  const int64_t two = 2;
  uint64_t seen[512];
  for (int i = 0; i < 100; ++i) {
    OK(kasane_accumulate(w->all[next_rank()], &two, 1, KASANE_INT64, one, NULL));
    OK(kasane_get(seen, w->all[next_rank()] + 512, sizeof seen));
  }
  uint64_t* const p = allocate(100000);
  p[w->number] = w->number;
  uint64_t back = 0;
  OK(kasane_get(&back, p + w->number, 8));
  CHECK(back == w->number);
  kasane_free(p);
  return NULL;
}

static pthread_mutex_t early_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t early_go = PTHREAD_COND_INITIALIZER;
static struct Work* early_work;

/* Made before the process attaches. */
static void* early_thread(void* unused) {
  (void)unused;
  pthread_mutex_lock(&early_lock);
  while (early_work == NULL) pthread_cond_wait(&early_go, &early_lock);
  struct Work* const w = early_work;
  pthread_mutex_unlock(&early_lock);
  return work(w);
}

static void test_threads(pthread_t early) {
  uint64_t* const mine = allocate(65536);
  memset(mine, 0, 65536);
  uint64_t** const all = parts_of(mine);
  OK(kasane_ranks_barrier());
  struct Work w[4];
  pthread_t threads[4];
  for (uint32_t i = 0; i < 4; ++i) {
    w[i] = (struct Work){all, i};
    CHECK(pthread_create(&threads[i], NULL, work, &w[i]) == 0);
  }
  pthread_mutex_lock(&early_lock);
  early_work = &w[0];
  pthread_cond_signal(&early_go);
  pthread_mutex_unlock(&early_lock);
  for (int i = 0; i < 4; ++i) CHECK(pthread_join(threads[i], NULL) == 0);
  CHECK(pthread_join(early, NULL) == 0);
  early_work = NULL;
  OK(kasane_ranks_barrier());
  CHECK(mine[0] == 5 * 100 * 2);
  uint64_t made = 5;
#ifdef _OPENMP
  OK(kasane_ranks_barrier());
#pragma omp parallel num_threads(3)
  {
    struct Work o = {all, (uint32_t)omp_get_thread_num()};
    work(&o);
  }
  made += 3;
  OK(kasane_ranks_barrier());
  CHECK(mine[0] == made * 100 * 2);
#endif
  // more than there are places for, one after the other
  for (int i = 0; i < 1500; ++i) {
    CHECK(pthread_create(&threads[0], NULL, (void* (*)(void*))kasane_release_all, NULL) == 0);
    CHECK(pthread_join(threads[0], NULL) == 0);
  }
  OK(kasane_ranks_barrier());
  kasane_free(mine);
  free(all);
}

static void threads_case(void) {
  for (int again = 0; again < 2; ++again) {
    pthread_t early;
    CHECK(pthread_create(&early, NULL, early_thread, NULL) == 0);
    attach();
    test_threads(early);
    OK(kasane_detach());
  }
}

/* ---- attaching again, and to parts ------------------------------------------------------------------- */

static long lines_of(const char* name) {
  FILE* const file = fopen(name, "r");
  CHECK(file != NULL);
  long lines = 0;
  for (int c; (c = fgetc(file)) != EOF;) lines += c == '\n';
  fclose(file);
  return lines;
}

static long descriptors(void) {
  DIR* const folder = opendir("/proc/self/fd");
  CHECK(folder != NULL);
  long n = 0;
  while (readdir(folder) != NULL) ++n;
  closedir(folder);
  return n;
}

static void again_case(void) {
  long before = 0, open_before = 0;
  for (int round = 0; round < 12; ++round) {
    CHECK(kasane_ranks_barrier() == EPERM && kasane_malloc(8) == NULL && kasane_error_code() == EPERM);
    CHECK(kasane_detach() == EPERM);
    attach();
    test_memory(1 << 13);
    OK(kasane_detach());
    CHECK(kasane_rank() == 0 && kasane_ranks() == 1);
    if (round == 3) before = lines_of("/proc/self/maps"), open_before = descriptors();
  }
  if (descriptors() != open_before)
    FAIL("%ld descriptors after 4 rounds, %ld after 12", open_before, descriptors());
  const long after = lines_of("/proc/self/maps");
  if (after > before + 8) FAIL("%ld mappings after 4 rounds, %ld after 12", before, after);
}

#ifdef WITH_MPI
static void parts_case(void) {
  int rank = 0, size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  for (int round = 0; round < 3; ++round) {
    MPI_Comm part;
    // halves, in the order of the ranks and in the opposite one; then all, turned round
    MPI_Comm_split(MPI_COMM_WORLD, round == 2 ? 0 : rank % 2, round == 0 ? rank : -rank, &part);
    int in_part = 0;
    MPI_Comm_rank(part, &in_part);
    const kasane_attach_options_t options = {NULL, &part};
    OK(kasane_attach(&options));
    me = kasane_rank();
    ranks = kasane_ranks();
    CHECK((int)me == in_part && (int)ranks == (round == 2 ? size : (size + 1 - rank % 2) / 2));
    MPI_Comm_free(&part);
    test_memory(1 << 13);
    test_polling();
    MPI_Barrier(MPI_COMM_WORLD);
    OK(kasane_detach());
  }
}

/* Messages from and to pages that are absent, evicted or another rank's, of all of an MPI's protocols. */
static void mpi_case(void) {
  attach();
  const size_t words = 1 << 18;
  uint64_t *const from = allocate(words * 8), *const to = allocate(words * 8);
  uint64_t** const all = parts_of(from);
  for (uint64_t round = 0; round < 2; ++round) {
    fill(from, words, me, round);
    make_absent(from, words * 8);
    OK(kasane_ranks_barrier());
    for (size_t n = 1; n <= words; n *= 8) {
      make_absent(to, words * 8);
      MPI_Sendrecv(from, (int)n, MPI_UINT64_T, (int)next_rank(), 1, to, (int)n, MPI_UINT64_T,
                   (int)previous_rank(), 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      expect(to, n, previous_rank(), round, "a message");
    }
    // from another rank's pages, never loaded here
    MPI_Sendrecv(all[next_rank()], (int)words, MPI_UINT64_T, (int)next_rank(), 2, to, (int)words,
                 MPI_UINT64_T, (int)previous_rank(), 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    expect(to, words, me, round, "a message of pages of another rank");
    make_absent(to, words * 8);
    MPI_Allreduce(from, to, (int)words, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    for (size_t i = 0; i < words; ++i) {
      uint64_t sum = 0;
      for (uint32_t r = 0; r < ranks; ++r) sum += value(r, i, round);
      CHECK(to[i] == sum);
    }
    OK(kasane_ranks_barrier());
  }
  test_system_calls();
  kasane_free(from);
  kasane_free(to);
  free(all);
  OK(kasane_detach());
}
#endif

static void system_case(void) {
  attach();
  test_system_calls();
  test_child();
  OK(kasane_detach());
}

/* ---- ends -------------------------------------------------------------------------------------------- */

/* The last rank ends while the others wait for it. */
static void lose_last(const char* how) {
  attach();
  test_memory(1 << 13);
  OK(kasane_ranks_barrier());
  if (me == ranks - 1) {
    const struct timespec pause = {0, 200000000};
    nanosleep(&pause, NULL);
    if (strcmp(how, "killed") == 0) kill(getpid(), SIGKILL);
    exit(3);
  }
  OK(kasane_ranks_barrier());
  FAIL("a rank went on without another one");
}

static void wild(void) {
  attach();
  uint64_t* const mine = allocate(65536);
  mine[0] = 1;
  OK(kasane_detach());
  fprintf(stderr, "%llu\n", (unsigned long long)*(volatile uint64_t*)mine);
}

static int run(const char* name) {
  if (strcmp(name, "memory") == 0) {
    attach();
    all_of_memory();
    OK(kasane_detach());
  } else if (strcmp(name, "out_of_core") == 0) {
    attach();
    test_out_of_core();
    test_memory(1 << 16);
    OK(kasane_detach());
  } else if (strcmp(name, "system") == 0) {
    system_case();
  } else if (strcmp(name, "threads") == 0) {
    threads_case();
  } else if (strcmp(name, "again") == 0) {
    again_case();
  } else if (strcmp(name, "finalize") == 0) {  // MPI_Finalize detaches
    attach();
    test_memory(1 << 13);
  } else if (strcmp(name, "killed") == 0 || strcmp(name, "left") == 0) {
    lose_last(name);
  } else if (strcmp(name, "wild") == 0) {
    wild();
  } else if (strcmp(name, "exit") == 0) {  // every rank, without an end of anything
    attach();
    test_memory(1 << 13);
    exit(0);
#ifdef WITH_MPI
  } else if (strcmp(name, "parts") == 0) {
    parts_case();
  } else if (strcmp(name, "mpi") == 0) {
    mpi_case();
#endif
  } else {
    return 2;
  }
  return 0;
}

int main(int argc, char** argv) {
  const char* const name = argc > 1 ? argv[1] : "memory";
#ifdef WITH_MPI
  const kasane_attach_options_t other = {"another", NULL};
  if (strcmp(name, "refused") == 0) {
    CHECK(kasane_attach(NULL) == EINVAL && strstr(kasane_error_message(), "MPI_Init") != NULL);
    CHECK(kasane_attach(&other) == EINVAL);
    const kasane_attach_options_t wrong = {WITH_MPI[0] == 'o' ? "mpich" : "openmpi", NULL};
    CHECK(kasane_attach(&wrong) == EINVAL && strstr(kasane_error_message(), "use one MPI") != NULL);
  }
  MPI_Init(&argc, &argv);
  if (strcmp(name, "refused") == 0) {
    setenv("KASANE_TRANSPORT", "mpi", 1);
    CHECK(kasane_attach(NULL) == EINVAL && strstr(kasane_error_message(), "--transport mpi") != NULL);
    MPI_Finalize();
    return 0;
  }
#else
  if (strcmp(name, "refused") == 0) { /* all ranks, which have met by then; they may end as they like */
    setenv("KASANE_SPACE", "64T", 1);
    CHECK(kasane_attach(NULL) == EINVAL && strstr(kasane_error_message(), "--space") != NULL);
    return 0;
  }
#endif
  const int status = run(name);
#ifdef WITH_MPI
  MPI_Finalize();
  if (strcmp(name, "finalize") == 0) CHECK(kasane_ranks_barrier() == EPERM);
#endif
  if (me == 0 && status == 0) printf("attach: %s passed\n", name);
  return status;
}
