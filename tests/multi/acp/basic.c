/* SPDX-License-Identifier: Apache-2.0 */
/* The basic layer and memory: starter memory, addresses, copies between any two ranks, acp_malloc. */
#include "acp_test.h"

/* Each rank tells the next one its number by starter memory, and asks a third one to copy. */
static void starters(void) {
  const int me = acp_rank(), n = acp_procs(), next = (me + 1) % n, last = (me + n - 1) % n;
  acp_ga_t mine = acp_query_starter_ga(me);
  EXPECT(acp_query_rank(mine) == me);
  uint64_t* words = acp_query_address(mine);
  EXPECT(words != NULL && words[0] == 0 && words[KASANE_ACP_STARTER_BYTES / 8 - 1] == 0);
  EXPECT((acp_query_address(acp_query_starter_ga(next)) == NULL) == (next != me));
  words[0] = 100 + (uint64_t)me;
  acp_sync();
  acp_handle_t copy = acp_copy(acp_query_starter_ga(next) + 8, mine, 8, ACP_HANDLE_NULL);
  EXPECT(copy != ACP_HANDLE_NULL);
  acp_complete(copy);
  acp_sync();
  EXPECT(words[1] == 100 + (uint64_t)last);
  /* from one rank to another, by a third; then back, in order */
  const int from = (me + 1) % n, to = (me + 2) % n;
  copy = acp_copy(acp_query_starter_ga(to) + 16, acp_query_starter_ga(from), 8, ACP_HANDLE_NULL);
  copy = acp_copy(acp_query_starter_ga(me) + 24, acp_query_starter_ga(to) + 16, 8, copy);
  acp_complete(ACP_HANDLE_ALL);
  EXPECT(words[3] == 100 + (uint64_t)from);
  acp_complete(copy);
  acp_complete(ACP_HANDLE_NULL);
  acp_sync();
}

/* Blocks of all sizes at all ranks, written and read whole, freed by another rank. */
static void blocks(void) {
  const int me = acp_rank(), n = acp_procs();
  enum { kBlocks = 300 };
  acp_ga_t* const all = acp_query_address(acp_query_starter_ga(me));
  uint64_t* const bytes = calloc(1, 200000);
  for (int i = 0; i < kBlocks; ++i) {
    const size_t size = i % 50 == 0 ? 100000 + (size_t)i : (size_t)(i * i) % 9000;
    all[i] = acp_malloc(size, (me + i) % n);
    EXPECT(all[i] != ACP_GA_NULL && all[i] % 16 == 0 && acp_query_rank(all[i]) == (me + i) % n);
    const acp_ga_t source = acp_malloc(size + 1, me);
    memset(acp_query_address(source), i + me, size);
    acp_complete(acp_copy(all[i], source, size, ACP_HANDLE_NULL));
    acp_free(source);
  }
  for (int i = 0; i < kBlocks; ++i) {
    const size_t size = i % 50 == 0 ? 100000 + (size_t)i : (size_t)(i * i) % 9000;
    const acp_ga_t back = acp_malloc(size + 1, me);
    acp_complete(acp_copy(back, all[i], size, ACP_HANDLE_NULL));
    const unsigned char* p = acp_query_address(back);
    for (size_t k = 0; k < size; ++k) EXPECT(p[k] == (unsigned char)(i + me));
    acp_free(back);
  }
  free(bytes);
  acp_sync();
  const int next = (me + 1) % n;
  for (int i = 0; i < kBlocks; ++i) acp_free(value_at(acp_query_starter_ga(next) + 8 * (size_t)i));
  acp_sync();
}

/* One rank allocates what another one frees: memory goes back by the depot. */
static void producer_and_consumer(void) {
  const int me = acp_rank(), n = acp_procs();
  acp_ga_t* const all = acp_query_address(acp_query_starter_ga(me));
  acp_ga_t first = 0, most = 0;
  for (int round = 0; round < 40; ++round) {
    if (me == 0)
      for (int i = 0; i < 4000; ++i) {
        all[i] = acp_malloc(64, n - 1);
        EXPECT(all[i] != ACP_GA_NULL);
        const acp_ga_t chunk = all[i] / 65536;
        if (first == 0) first = chunk;
        if (chunk - first > most && chunk > first) most = chunk - first;
      }
    acp_sync();
    if (me == n - 1) {
      const acp_ga_t copy = acp_malloc(32000, me);
      acp_complete(acp_copy(copy, acp_query_starter_ga(0), 32000, ACP_HANDLE_NULL));
      for (int i = 0; i < 4000; ++i) acp_free(((acp_ga_t*)acp_query_address(copy))[i]);
      acp_free(copy);
    }
    acp_sync();
  }
  if (me == 0) EXPECT(most < 100); /* of 160 chunks that were filled */
}

static void failures(void) {
  errno = 0;
  EXPECT(acp_malloc(8, acp_procs()) == ACP_GA_NULL && errno == EINVAL);
  EXPECT(acp_malloc(8, -1) == ACP_GA_NULL);
  errno = 0;
  EXPECT(acp_malloc((size_t)1 << 60, 0) == ACP_GA_NULL && errno == ENOMEM);
  EXPECT(acp_malloc(SIZE_MAX, 0) == ACP_GA_NULL);
  EXPECT(acp_query_starter_ga(acp_procs()) == ACP_GA_NULL && acp_query_starter_ga(-1) == ACP_GA_NULL);
  EXPECT(acp_query_rank(ACP_GA_NULL) == -1 && acp_query_rank(12345) == -1);
  EXPECT(acp_query_address(ACP_GA_NULL) == NULL);
  EXPECT(acp_copy(ACP_GA_NULL, acp_query_starter_ga(0), 8, ACP_HANDLE_NULL) == ACP_HANDLE_NULL);
  acp_free(ACP_GA_NULL);
}

int main(int argc, char** argv) {
  EXPECT(acp_init(&argc, &argv) == 0);
  EXPECT(acp_procs() >= 1 && acp_rank() >= 0 && acp_rank() < acp_procs());
  starters();
  blocks();
  producer_and_consumer();
  failures();
  for (int i = 0; i < 100; ++i) EXPECT(acp_sync() == 0);
  EXPECT(acp_finalize() == 0);
  EXPECT(acp_init(&argc, &argv) == 0); /* once more */
  acp_sync();
  EXPECT(acp_finalize() == 0);
  return 0;
}
