/* SPDX-License-Identifier: Apache-2.0 */
/* Each macro of the two macro files of examples/pthreads once, in the spellings that the suites use: with a
 * semicolon and without, CREATE and BARINIT with a number of threads and without. And with Kasane: of threads
 * that CREATE makes, some begin at each rank.
 */
#include MACROS

MAIN_ENV;
EXTERN_ENV;

enum { kThreads = 8, kLast = 99, kRounds = 3, kMostRanks = 64 };

typedef struct {
  LOCKDEC(lock)
  ALOCKDEC(array, 5)
  BARDEC(counted)
  BARDEC(not_counted)
  CONDVARDEC(changed)
  PAUSEDEC(pause)
  SEMDEC(permits)
  GSDEC(numbers)
  NLOCKDEC(other)
} common;

static common* all;
static int ids, sums[5], ready, began_at[kMostRanks], passed;

static int failed(const char* what) {
  printf("%s is wrong\n", what);
  return 1;
}

static void note_rank(void) {
#ifdef KASANE_KASANE_H
  const uint32_t rank = kasane_rank();
#else
  const unsigned rank = 0;
#endif
  LOCK(all->lock)
  ++began_at[rank];
  UNLOCK(all->lock)
}

static void* with_number(void) {
  note_rank();
  int i, home, pid;
  GET_HOME(home);
  GET_PID(pid)
  BARRIER(all->counted, kThreads)
  for (int round = 0; round < kRounds; ++round) {
    for (;;) {
      GETSUB(all->numbers, i, kLast, kThreads);
      if (i < 0) break;
      ALOCK(all->array, i % 5);
      sums[i % 5] += i + (home < 0) + (pid < 0);
      AULOCK(all->array, i % 5)
    }
    BARRIER(all->counted, kThreads);
  }
  LOCK(all->lock);
  if (++ready == kThreads) CONDVARBCAST(all->changed);
  while (ready < kThreads) {
    CONDVARWAIT(all->changed, all->lock);
  }
  UNLOCK(all->lock);
  return 0;
}

/* One at a time from WAITPAUSE to SETPAUSE, the first after main. */
static void without_number(void) {
  BARRIER(all->not_counted, kThreads + 1);
  SEMP(all->permits);
  NLOCK(all->other);
  ++ids;
  if (ids == kThreads) SETPAUSE(all->pause);
  NUNLOCK(all->other)
  LOCK(AGETL(all->array, 3));
  ++passed;
  UNLOCK(AGETL(all->array, 3))
}

static int check_with_number(void) {
  int wrong = 0, sum = 0;
  CREATE(with_number, kThreads);
  WAIT_FOR_END(kThreads);
  for (int i = 0; i < 5; ++i) sum += sums[i];
  if (sum != kRounds * kLast * (kLast + 1) / 2) wrong |= failed("GETSUB, or an array of locks,");
  if (ready != kThreads) wrong |= failed("the condition");
#ifdef KASANE_KASANE_H
  for (uint32_t r = 0; r < kasane_ranks() && r < kThreads; ++r)
    if (began_at[r] == 0) wrong |= failed("where threads begin");
#endif
  return wrong;
}
static int check_without_number(void) {
  for (int i = 0; i < kThreads; ++i) CREATE(without_number);
  BARRIER(all->not_counted, kThreads + 1)
  SEMV(all->permits) /* two of them may go on from the start */
  for (int i = 3; i < kThreads; ++i) SEMV(all->permits);
  SEMV(all->permits);
  WAITPAUSE(all->pause)
  CLEARPAUSE(all->pause)
  WAIT_FOR_END(kThreads)
  return passed == kThreads ? 0 : failed("the pause or the semaphore");
}

int main(int argc, char** argv) {
  MAIN_INITENV(, 80000000)
  unsigned long start, end;
  (void)argc, (void)argv;
  all = (common*)G_MALLOC(sizeof(common));
  char* const large = NU_MALLOC(1 << 20, 0);
  int wrong = 0;
  if (all == NULL || large == NULL) return failed("G_MALLOC");
  memset(large, 1, 1 << 20);
  LOCKINIT(all->lock);
  NLOCKINIT(all->other);
  ALOCKINIT(all->array, 5);
  BARINIT(all->counted, kThreads);
  BARINIT(all->not_counted);
  CONDVARINIT(all->changed);
  PAUSEINIT(all->pause);
  SEMINIT(all->permits, 1);
  GSINIT(all->numbers);
  CLOCK(start);
  SPLASH3_ROI_BEGIN();
  wrong |= check_with_number();
  wrong |= check_without_number();
  SPLASH3_ROI_END();
  FULL_FENCE();
  CLOCK(end);
  if (end < start || end - start > 60000000) wrong |= failed("the clock");
  NU_FREE(large);
  G_FREE(all);
  if (wrong) return 1;
  MAIN_END;
}
