/* SPDX-License-Identifier: Apache-2.0 */
/* ACP's data library: one list, to which all ranks push at once. main runs on each:
 *     kasane run -n 4 --main all -- build/release/examples/acp_list */
#include <kasane/acp.h>
#include <stdio.h>

static bool less(const acp_ga_t a, const acp_ga_t b) {
  return *(const long*)acp_query_address(a) < *(const long*)acp_query_address(b);
}

int main(int argc, char** argv) {
  if (acp_init(&argc, &argv) != 0) return 1;
  const int me = acp_rank(), n = acp_procs();
  /* Rank 0 makes the list, and shows its address in its starter memory. */
  const acp_ga_t shown = acp_query_starter_ga(0);
  if (me == 0) *(acp_ga_t*)acp_query_address(shown) = acp_create_list(sizeof(long), 0).ga;
  acp_sync();
  const acp_ga_t mine = acp_malloc(sizeof(long), me);
  long* const x = acp_query_address(mine);
  acp_complete(acp_copy(mine, shown, sizeof(acp_ga_t), ACP_HANDLE_NULL));
  const acp_list_t list = {(acp_ga_t)*x};
  /* Each element lies at the rank that pushes it. */
  for (long i = 0; i < 1000; ++i) {
    *x = i * n + me;
    acp_push_back_list(list, mine, me);
  }
  acp_sync();
  int wrong = 0;
  if (me == 0) {
    acp_sort_list(list, less);
    long i = 0;
    for (acp_list_it_t it = acp_begin_list(list); it.elem != ACP_GA_NULL;
         it = acp_increment_list_it(it), ++i) {
      acp_complete(acp_copy(mine, acp_dereference_list(list, it), sizeof(long), ACP_HANDLE_NULL));
      wrong += *x != i;
    }
    printf("%ld elements of %d ranks, %d of them wrong\n", i, n, wrong);
    wrong += i != 1000L * n;
    acp_destroy_list(list);
  }
  acp_free(mine);
  acp_finalize();
  return wrong != 0;
}
