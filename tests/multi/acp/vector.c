/* SPDX-License-Identifier: Apache-2.0 */
/* Vectors: table 2 of the paper, pushes of all ranks at once, failures. */
#include "acp_test.h"

static void expect_values(acp_vector_t v, size_t n, const uint64_t* values) {
  EXPECT(acp_size_vector(v) == n && acp_empty_vector(v) == (n == 0));
  acp_vector_it_t it = acp_begin_vector(v);
  for (size_t i = 0; i < n; ++i, it = acp_increment_vector_it(it))
    EXPECT(value_at(acp_dereference_vector(v, it)) == values[i]);
  EXPECT(it == acp_end_vector(v));
  EXPECT(acp_dereference_vector(v, it) == ACP_GA_NULL && acp_dereference_vector(v, -1) == ACP_GA_NULL);
}

static void all_calls(int rank) {
  acp_vector_t v = acp_create_vector(2, sizeof(uint64_t), rank);
  EXPECT(v.ga != ACP_GA_NULL && acp_query_rank(v.ga) == rank);
  expect_values(v, 2, (uint64_t[]){0, 0});
  acp_push_back_vector(v, word(7));
  expect_values(v, 3, (uint64_t[]){0, 0, 7});
  const acp_ga_t seven = acp_dereference_vector(v, acp_decrement_vector_it(acp_end_vector(v)));
  EXPECT(acp_query_rank(seven) == rank);
  EXPECT(acp_insert_vector(v, 0, word(1)) == 0);
  EXPECT(acp_insert_vector(v, 4, word(9)) == 4);
  expect_values(v, 5, (uint64_t[]){1, 0, 0, 7, 9});
  EXPECT(acp_erase_vector(v, 1) == 1);
  expect_values(v, 4, (uint64_t[]){1, 0, 7, 9});
  EXPECT(acp_dereference_vector(v, 2) == seven); /* elements stay where they are */
  acp_complete(acp_copy(seven, word(70), sizeof(uint64_t), ACP_HANDLE_NULL));
  expect_values(v, 4, (uint64_t[]){1, 0, 70, 9});
  acp_pop_back_vector(v);
  acp_vector_t copy = acp_duplicate_vector(v, (rank + 1) % acp_procs());
  EXPECT(copy.ga != ACP_GA_NULL &&
         acp_query_rank(acp_dereference_vector(copy, 0)) == (rank + 1) % acp_procs());
  acp_fill_vector(v, 3, word(5));
  expect_values(v, 3, (uint64_t[]){5, 5, 5});
  acp_swap_vector(v, copy);
  expect_values(v, 3, (uint64_t[]){1, 0, 70});
  expect_values(copy, 3, (uint64_t[]){5, 5, 5});
  acp_assign_vector(copy, v, 1, 3);
  expect_values(copy, 2, (uint64_t[]){0, 70});
  acp_assign_vector(v, v, 2, 3); /* of its own elements */
  expect_values(v, 1, (uint64_t[]){70});
  acp_clear_vector(copy);
  expect_values(copy, 0, NULL);
  acp_pop_back_vector(copy);
  acp_push_back_vector(copy, word(3));
  expect_values(copy, 1, (uint64_t[]){3});
  acp_destroy_vector(copy);
  acp_destroy_vector(v);
}

/* Elements of sizes that fit no word, and of none. */
static void sizes(int rank) {
  static const size_t all[] = {0, 1, 3, 17, 240, 5000, 70000};
  for (size_t s = 0; s < sizeof all / sizeof *all; ++s) {
    acp_vector_t v = acp_create_vector(1, all[s], rank);
    const acp_ga_t x = acp_malloc(all[s] + 1, acp_rank());
    unsigned char* bytes = acp_query_address(x);
    for (int i = 0; i < 20; ++i) {
      memset(bytes, i, all[s]);
      acp_push_back_vector(v, x);
    }
    for (int i = 0; i < 20; ++i) {
      memset(bytes, 255, all[s]);
      const acp_ga_t element = acp_dereference_vector(v, i + 1);
      EXPECT(element != ACP_GA_NULL);
      if (all[s] != 0) acp_complete(acp_copy(x, element, all[s], ACP_HANDLE_NULL));
      for (size_t k = 0; k < all[s]; ++k) EXPECT(bytes[k] == i);
    }
    acp_free(x);
    acp_destroy_vector(v);
  }
}

/* ACP loses every seventh of these. */
static void pushes_at_once(void) {
  const int n = acp_procs();
  enum { kPushes = 20000 };
  if (acp_rank() == 0) publish(0, acp_create_vector(0, sizeof(uint64_t), n - 1).ga);
  acp_vector_t v = {published(0)};
  for (uint64_t i = 0; i < kPushes; ++i) acp_push_back_vector(v, word((uint64_t)acp_rank() << 32 | i));
  acp_sync();
  EXPECT(acp_size_vector(v) == (size_t)n * kPushes);
  if (acp_rank() == 0) {
    uint64_t next[64] = {0}; /* each rank's are there once, in its order */
    for (acp_vector_it_t it = acp_begin_vector(v); it != acp_end_vector(v);
         it = acp_increment_vector_it(it)) {
      const uint64_t x = value_at(acp_dereference_vector(v, it));
      EXPECT((int)(x >> 32) < n && next[x >> 32] == (x & 0xFFFFFFFF));
      ++next[x >> 32];
    }
    acp_destroy_vector(v);
  }
  acp_sync();
}

static void failures(void) {
  errno = 0;
  EXPECT(acp_create_vector(0, 8, acp_procs()).ga == ACP_GA_NULL && errno == EINVAL);
  EXPECT(acp_create_vector(0, 8, -1).ga == ACP_GA_NULL);
  errno = 0;
  EXPECT(acp_create_vector(1, (size_t)1 << 60, 0).ga == ACP_GA_NULL && errno == ENOMEM);
  acp_vector_t v = acp_create_vector(1, 8, 0);
  EXPECT(acp_duplicate_vector(v, acp_procs()).ga == ACP_GA_NULL);
  errno = 0;
  EXPECT(acp_insert_vector(v, 2, word(1)) == -1 && errno == EINVAL);
  EXPECT(acp_insert_vector(v, 0, ACP_GA_NULL) == -1 && acp_insert_vector(v, 0, 4096) == -1);
  EXPECT(acp_erase_vector(v, 1) == -1 && acp_erase_vector(v, -1) == -1);
  EXPECT(acp_size_vector(v) == 1);
  acp_destroy_vector(v);
}

int main(int argc, char** argv) {
  EXPECT(acp_init(&argc, &argv) == 0);
  for (int rank = 0; rank < acp_procs(); ++rank) all_calls(rank);
  sizes(acp_procs() - 1);
  pushes_at_once();
  failures();
  EXPECT(acp_finalize() == 0);
  return 0;
}
