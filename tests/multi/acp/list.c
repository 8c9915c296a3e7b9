/* SPDX-License-Identifier: Apache-2.0 */
/* Lists: table 3 of the paper, pushes and erasures of all ranks at once, failures. */
#include "acp_test.h"

static void expect_values(acp_list_t l, size_t n, const uint64_t* values) {
  EXPECT(acp_size_list(l) == n && acp_empty_list(l) == (n == 0));
  acp_list_it_t it = acp_begin_list(l);
  for (size_t i = 0; i < n; ++i, it = acp_increment_list_it(it)) {
    EXPECT(it.elem != ACP_GA_NULL && acp_dereference_list(l, it) == it.elem);
    EXPECT(value_at(it.elem) == values[i]);
  }
  EXPECT(it.elem == acp_end_list(l).elem && acp_increment_list_it(it).elem == ACP_GA_NULL);
  for (size_t i = n; i-- > 0;) {
    it = acp_decrement_list_it(it);
    EXPECT(value_at(it.elem) == values[i]);
  }
  EXPECT(acp_decrement_list_it(it).elem == it.elem);
}

static bool less(const acp_ga_t a, const acp_ga_t b) {
  const uint64_t *x = acp_query_address(a), *y = acp_query_address(b);
  EXPECT(x != NULL && y != NULL);
  return *x / 10 < *y / 10;
}

static void all_calls(int rank) {
  const int other = (rank + 1) % acp_procs();
  acp_list_t l = acp_create_list(sizeof(uint64_t), rank);
  EXPECT(l.ga != ACP_GA_NULL);
  expect_values(l, 0, NULL);
  acp_push_back_list(l, word(1), rank);
  acp_push_back_list(l, word(2), other);
  acp_push_front_list(l, word(3), other);
  expect_values(l, 3, (uint64_t[]){3, 1, 2});
  acp_list_it_t it = acp_begin_list(l);
  EXPECT(acp_query_rank(acp_dereference_list(l, it)) == other);
  it = acp_increment_list_it(it);
  EXPECT(acp_query_rank(acp_dereference_list(l, it)) == rank);
  acp_list_it_t four = acp_insert_list(l, it, word(4), other);
  EXPECT(value_at(four.elem) == 4);
  EXPECT(value_at(acp_insert_list(l, acp_end_list(l), word(5), rank).elem) == 5);
  expect_values(l, 5, (uint64_t[]){3, 4, 1, 2, 5});
  EXPECT(value_at(acp_erase_list(l, it).elem) == 2);
  expect_values(l, 4, (uint64_t[]){3, 4, 2, 5});
  /* an iterator of what was erased, also where its memory is used again */
  acp_push_back_list(l, word(6), rank);
  errno = 0;
  EXPECT(acp_dereference_list(l, it) == ACP_GA_NULL && errno == ESTALE);
  errno = 0;
  EXPECT(acp_increment_list_it(it).elem == ACP_GA_NULL && errno == ESTALE);
  EXPECT(acp_decrement_list_it(it).elem == ACP_GA_NULL && acp_erase_list(l, it).elem == ACP_GA_NULL);
  EXPECT(acp_insert_list(l, it, word(7), rank).elem == ACP_GA_NULL && acp_size_list(l) == 5);
  acp_pop_back_list(l);
  acp_pop_front_list(l);
  expect_values(l, 3, (uint64_t[]){4, 2, 5});
  acp_list_t second = acp_create_list(sizeof(uint64_t), other);
  acp_assign_list(second, l, four, acp_end_list(l), rank);
  expect_values(second, 3, (uint64_t[]){4, 2, 5});
  acp_fill_list(l, 2, word(8), other);
  expect_values(l, 2, (uint64_t[]){8, 8});
  acp_swap_list(l, second);
  expect_values(l, 3, (uint64_t[]){4, 2, 5});
  acp_assign_list(l, l, acp_increment_list_it(acp_begin_list(l)), acp_end_list(l), other);
  expect_values(l, 2, (uint64_t[]){2, 5});
  acp_clear_list(l);
  expect_values(l, 0, NULL);
  acp_pop_front_list(l);
  acp_pop_back_list(l);
  static const uint64_t drawn[] = {51, 13, 42, 10, 55, 14, 33};
  for (int i = 0; i < 7; ++i) acp_push_back_list(l, word(drawn[i]), i % acp_procs());
  acp_sort_list(l, less);
  expect_values(l, 7, (uint64_t[]){13, 10, 14, 33, 42, 51, 55}); /* equal ones keep their order */
  acp_destroy_list(second);
  acp_destroy_list(l);
}

/* ACP loses some of these. */
static void pushes_at_once(void) {
  const int n = acp_procs(), me = acp_rank();
  enum { kPushes = 20000 };
  if (me == 0) publish(2, acp_create_list(sizeof(uint64_t), n - 1).ga);
  acp_list_t l = {published(2)};
  for (uint64_t i = 0; i < kPushes; ++i)
    acp_push_back_list(l, word((uint64_t)me << 32 | i), (int)(i % (uint64_t)n));
  acp_sync();
  EXPECT(acp_size_list(l) == (size_t)n * kPushes);
  if (me == 0) {
    uint64_t next[64] = {0};
    for (acp_list_it_t it = acp_begin_list(l); it.elem != ACP_GA_NULL; it = acp_increment_list_it(it)) {
      const uint64_t x = value_at(acp_dereference_list(l, it));
      EXPECT((int)(x >> 32) < n && next[x >> 32] == (x & 0xFFFFFFFF));
      EXPECT(acp_query_rank(it.elem) == (int)((x & 0xFFFFFFFF) % (uint64_t)n));
      ++next[x >> 32];
    }
  }
  acp_sync();
  /* Each rank erases its own, and inserts one for each tenth, while others do the same. Where another one
     has erased the next element meanwhile, the walk begins anew. */
  size_t erased = 0;
  for (acp_list_it_t it = acp_begin_list(l), next; erased < 500; it = next) {
    if (it.elem == ACP_GA_NULL) it = acp_begin_list(l);
    const bool mine = (int)(value_at(it.elem) >> 32) == me;
    if (mine && erased % 10 == 0) EXPECT(acp_insert_list(l, it, word((uint64_t)n << 32), me).elem != 0);
    errno = 0;
    next = mine ? acp_erase_list(l, it) : acp_increment_list_it(it);
    EXPECT(errno == 0 || errno == ESTALE);
    erased += mine;
  }
  EXPECT(erased == 500);
  acp_sync();
  EXPECT(acp_size_list(l) == (size_t)n * (kPushes - 450));
  acp_sync();
  if (me == 0) acp_destroy_list(l);
  acp_sync();
}

static void failures(void) {
  errno = 0;
  EXPECT(acp_create_list(8, acp_procs()).ga == ACP_GA_NULL && errno == EINVAL);
  acp_list_t l = acp_create_list(8, 0);
  EXPECT(acp_insert_list(l, acp_end_list(l), word(1), acp_procs()).elem == ACP_GA_NULL);
  EXPECT(acp_insert_list(l, acp_end_list(l), ACP_GA_NULL, 0).elem == ACP_GA_NULL);
  errno = 0;
  EXPECT(acp_dereference_list(l, acp_end_list(l)) == ACP_GA_NULL && errno == EINVAL);
  EXPECT(acp_erase_list(l, acp_end_list(l)).elem == ACP_GA_NULL && acp_empty_list(l));
  const acp_list_it_t none = {0};
  EXPECT(acp_increment_list_it(none).elem == ACP_GA_NULL && acp_decrement_list_it(none).elem == ACP_GA_NULL);
  acp_destroy_list(l);
}

int main(int argc, char** argv) {
  EXPECT(acp_init(&argc, &argv) == 0);
  for (int rank = 0; rank < acp_procs(); ++rank) all_calls(rank);
  pushes_at_once();
  failures();
  EXPECT(acp_finalize() == 0);
  return 0;
}
