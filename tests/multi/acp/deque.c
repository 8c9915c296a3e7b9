/* SPDX-License-Identifier: Apache-2.0 */
/* Deques: all calls, pushes and pops of all ranks at once, failures. */
#include "acp_test.h"

static void expect_values(acp_deque_t d, size_t n, const uint64_t* values) {
  EXPECT(acp_size_deque(d) == n && acp_empty_deque(d) == (n == 0));
  acp_deque_it_t it = acp_begin_deque(d);
  for (size_t i = 0; i < n; ++i, it = acp_increment_deque_it(it))
    EXPECT(value_at(acp_dereference_deque(d, it)) == values[i]);
  EXPECT(it == acp_end_deque(d));
  EXPECT(acp_dereference_deque(d, it) == ACP_GA_NULL && acp_dereference_deque(d, -1) == ACP_GA_NULL);
}

static void all_calls(int rank) {
  acp_deque_t d = acp_create_deque(1, sizeof(uint64_t), rank);
  EXPECT(d.ga != ACP_GA_NULL && acp_query_rank(acp_dereference_deque(d, 0)) == rank);
  acp_push_back_deque(d, word(1));
  acp_push_front_deque(d, word(2));
  expect_values(d, 3, (uint64_t[]){2, 0, 1});
  EXPECT(acp_insert_deque(d, 1, word(8)) == 1 && acp_insert_deque(d, 4, word(9)) == 4);
  expect_values(d, 5, (uint64_t[]){2, 8, 0, 1, 9});
  EXPECT(acp_erase_deque(d, 2) == 2 && acp_erase_deque(d, acp_decrement_deque_it(acp_end_deque(d))) == 3);
  expect_values(d, 3, (uint64_t[]){2, 8, 1});
  acp_deque_t copy = acp_duplicate_deque(d, (rank + 1) % acp_procs());
  acp_pop_front_deque(d);
  acp_pop_back_deque(d);
  expect_values(d, 1, (uint64_t[]){8});
  acp_swap_deque(d, copy);
  expect_values(d, 3, (uint64_t[]){2, 8, 1});
  acp_fill_deque(copy, 4, word(6));
  expect_values(copy, 4, (uint64_t[]){6, 6, 6, 6});
  acp_assign_deque(copy, d, 1, 3);
  expect_values(copy, 2, (uint64_t[]){8, 1});
  acp_clear_deque(copy);
  acp_pop_front_deque(copy);
  acp_pop_back_deque(copy);
  expect_values(copy, 0, NULL);
  acp_destroy_deque(copy);
  acp_destroy_deque(d);
}

/* Each rank pushes at both ends, and pops half of it: what is left are as many. */
static void ends_at_once(void) {
  const int n = acp_procs();
  enum { kTimes = 2000 };
  if (acp_rank() == 0) publish(1, acp_create_deque(0, sizeof(uint64_t), n - 1).ga);
  acp_deque_t d = {published(1)};
  for (uint64_t i = 0; i < kTimes; ++i) {
    acp_push_back_deque(d, word(2 * i));
    acp_push_front_deque(d, word(2 * i + 1));
    if (i % 2 == 0) acp_pop_back_deque(d);
    if (i % 2 == 1) acp_pop_front_deque(d);
  }
  acp_sync();
  EXPECT(acp_size_deque(d) == (size_t)n * kTimes);
  acp_sync();
  if (acp_rank() == 0) acp_destroy_deque(d);
  acp_sync();
}

static void failures(void) {
  EXPECT(acp_create_deque(0, 8, acp_procs()).ga == ACP_GA_NULL);
  acp_deque_t d = acp_create_deque(1, 8, 0);
  errno = 0;
  EXPECT(acp_insert_deque(d, 2, word(1)) == -1 && errno == EINVAL && acp_erase_deque(d, 1) == -1);
  EXPECT(acp_duplicate_deque(d, -1).ga == ACP_GA_NULL);
  acp_destroy_deque(d);
}

int main(int argc, char** argv) {
  EXPECT(acp_init(&argc, &argv) == 0);
  for (int rank = 0; rank < acp_procs(); ++rank) all_calls(rank);
  ends_at_once();
  failures();
  EXPECT(acp_finalize() == 0);
  return 0;
}
