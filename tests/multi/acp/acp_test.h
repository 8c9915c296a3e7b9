/* SPDX-License-Identifier: Apache-2.0 */
/* What the programs of these tests have in common. */
#ifndef KASANE_TESTS_ACP_TEST_H
#define KASANE_TESTS_ACP_TEST_H

#include <errno.h>
#include <kasane/acp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPECT(condition)                                                                  \
  do {                                                                                     \
    if (!(condition)) {                                                                    \
      fprintf(stderr, "%s:%d: rank %d: %s\n", __FILE__, __LINE__, acp_rank(), #condition); \
      exit(1);                                                                             \
    }                                                                                      \
  } while (0)

/* A word that a rank passes to calls. */
static acp_ga_t g_word;
static inline acp_ga_t word(uint64_t value) {
  if (g_word == ACP_GA_NULL) g_word = acp_malloc(sizeof value, acp_rank());
  EXPECT(g_word != ACP_GA_NULL);
  *(uint64_t*)acp_query_address(g_word) = value;
  return g_word;
}
/* The word at an address of any rank. */
static inline uint64_t value_at(acp_ga_t ga) {
  EXPECT(ga != ACP_GA_NULL);
  acp_complete(acp_copy(word(0), ga, sizeof(uint64_t), ACP_HANDLE_NULL));
  return *(uint64_t*)acp_query_address(g_word);
}

/* Rank 0's word number i, which all ranks read after acp_sync. */
static inline void publish(int i, uint64_t value) {
  EXPECT(acp_rank() == 0);
  ((volatile uint64_t*)acp_query_address(acp_query_starter_ga(0)))[i] = value;
}
static inline uint64_t published(int i) {
  acp_sync();
  const uint64_t value = value_at(acp_query_starter_ga(0) + sizeof(uint64_t) * (size_t)i);
  acp_sync();
  return value;
}

#endif
