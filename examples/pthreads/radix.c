/* SPDX-License-Identifier: Apache-2.0 */
/* A radix sort of n keys, digit by digit, the lowest first.
 *
 *   for each digit:  each thread counts the digits of its part of the keys
 *                    the counts go from thread to thread: each waits for the one before (a pause), adds its
 *                    own, and hands the sums on; the last one knows how many keys have a digit
 *                    each thread puts its keys where they belong; all wait (barrier)
 *
 * usage: radix [-n keys] [-r bits of a digit] [-p threads] [-v]      -v: each thread says what it did
 */
#include MACROS /* posix/macros.h or kasane/macros.h, from the command line */

enum { kBits = 30, kMostDigitBits = 12, kMostSorters = 256 };

MAIN_ENV

typedef uint32_t sort_key;

/* What a thread hands to the next one. */
struct hand_over {
  PAUSEDEC(full)
  long* up_to_here; /* keys of each digit in the parts of the threads up to this one */
};

long keys = 65536;
int digit_bits = 8;
int threads = 4;
int verbose = 0;

static sort_key *from, *to;
static struct hand_over hand_over[kMostSorters];
static long first_place[1 << kMostDigitBits]; /* of the keys of each digit */
static struct {
  LOCKDEC(lock)
  BARDEC(all)
  int next_id;
  long unsorted; /* keys that are smaller than the one before them */
  uint64_t sum_before, sum_after;
} global;

static long first_key(int thread) { return keys * thread / threads; }

/* Key number i. */
static sort_key scattered(long i) {
  uint64_t x = (uint64_t)i * 0x9e3779b97f4a7c15u;
  x ^= x >> 29;
  x *= 0xbf58476d1ce4e5b9u;
  return (sort_key)(x >> (64 - kBits));
}

static void initialise(int me) {
  uint64_t sum = 0;
  for (long i = first_key(me); i < first_key(me + 1); ++i) {
    from[i] = scattered(i);
    to[i] = 0;
    sum += from[i];
  }
  hand_over[me].up_to_here = G_MALLOC(sizeof(long) << digit_bits);
  LOCK(global.lock)
  global.sum_before += sum;
  UNLOCK(global.lock)
}

static void count(int me, int shift, long* counts) {
  const sort_key mask = (1u << digit_bits) - 1;
  memset(counts, 0, sizeof(long) << digit_bits);
  for (long i = first_key(me); i < first_key(me + 1); ++i) ++counts[from[i] >> shift & mask];
}

/* counts becomes where this thread's keys of each digit begin, but for first_place. */
static void add_up(int me, long* counts) {
  const int digits = 1 << digit_bits;
  long* const sums = hand_over[me].up_to_here;
  if (me == 0) {
    for (int d = 0; d < digits; ++d) sums[d] = counts[d];
  } else {
    WAITPAUSE(hand_over[me - 1].full)
    CLEARPAUSE(hand_over[me - 1].full)
    for (int d = 0; d < digits; ++d) sums[d] = hand_over[me - 1].up_to_here[d] + counts[d];
  }
  for (int d = 0; d < digits; ++d) counts[d] = sums[d] - counts[d];
  if (me < threads - 1) {
    SETPAUSE(hand_over[me].full)
  } else {
    long place = 0;
    for (int d = 0; d < digits; ++d) {
      first_place[d] = place;
      place += sums[d];
    }
  }
}

static void place(int me, int shift, long* begin) {
  const sort_key mask = (1u << digit_bits) - 1;
  for (int d = 0; d <= (int)mask; ++d) begin[d] += first_place[d];
  for (long i = first_key(me); i < first_key(me + 1); ++i) to[begin[from[i] >> shift & mask]++] = from[i];
}

static void check(int me) {
  uint64_t sum = 0;
  long unsorted = 0;
  for (long i = first_key(me); i < first_key(me + 1); ++i) {
    if (i > 0 && from[i] < from[i - 1]) ++unsorted;
    sum += from[i];
  }
  if (verbose)
    printf("thread %d: keys %ld to %ld, sum %llu\n", me, first_key(me), first_key(me + 1),
           (unsigned long long)sum);
  LOCK(global.lock)
  global.unsorted += unsorted;
  global.sum_after += sum;
  UNLOCK(global.lock)
}

static void* sort(void) {
  LOCK(global.lock)
  const int me = global.next_id++;
  UNLOCK(global.lock)
  long* const counts = G_MALLOC(sizeof(long) << digit_bits);
  initialise(me);
  BARRIER(global.all, threads)
  for (int shift = 0; shift < kBits; shift += digit_bits) {
    count(me, shift, counts);
    add_up(me, counts);
    BARRIER(global.all, threads)
    place(me, shift, counts);
    BARRIER(global.all, threads)
    if (me == 0) {
      sort_key* const kept = from;
      from = to;
      to = kept;
    }
    BARRIER(global.all, threads)
  }
  check(me);
  G_FREE(counts);
  return NULL;
}

static uint64_t checksum(void) {
  uint64_t sum = 0;
  for (long i = 0; i < keys; ++i) sum = (sum ^ from[i]) * 0x9e3779b97f4a7c15u;
  return sum;
}

static void options(int argc, char* argv[]) {
  int c;
  while ((c = getopt(argc, argv, "n:r:p:v")) != -1) {
    switch (c) {
      case 'n': keys = atol(optarg); break;
      case 'r': digit_bits = atoi(optarg); break;
      case 'p': threads = atoi(optarg); break;
      case 'v': verbose = 1; break;
      default: fprintf(stderr, "usage: radix [-n keys] [-r bits] [-p threads] [-v]\n"); exit(2);
    }
  }
  if (keys < 1 || digit_bits < 1 || digit_bits > kMostDigitBits || threads < 1 || threads > kMostSorters) {
    fprintf(stderr, "radix: 1 to %d bits a digit, 1 to %d threads\n", kMostDigitBits, kMostSorters);
    exit(2);
  }
}

int main(int argc, char* argv[]) {
  unsigned long start, end;
  MAIN_INITENV(, 80000000)
  options(argc, argv);
  from = (sort_key*)G_MALLOC((size_t)keys * sizeof(sort_key));
  to = (sort_key*)G_MALLOC((size_t)keys * sizeof(sort_key));
  LOCKINIT(global.lock)
  BARINIT(global.all, threads)
  for (int i = 0; i < threads; ++i) PAUSEINIT(hand_over[i].full)

  CLOCK(start)
  CREATE(sort, threads)
  WAIT_FOR_END(threads)
  CLOCK(end)

  const int good = global.unsorted == 0 && global.sum_before == global.sum_after;
  printf("time %lu us\n", end - start);
  printf("radix: %ld keys, checksum %016llx: %s\n", keys, (unsigned long long)checksum(),
         good ? "ok" : "FAILED");
  for (int i = 0; i < threads; ++i) G_FREE(hand_over[i].up_to_here);
  G_FREE(from);
  G_FREE(to);
  if (!good) exit(1);
  MAIN_END
}
