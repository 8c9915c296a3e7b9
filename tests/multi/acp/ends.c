/* SPDX-License-Identifier: Apache-2.0 */
/* What ends the job: rank 0, or the last one, does what the argument says. ends.sh has what is printed. */
#include "acp_test.h"

static acp_vector_t g_vector;
static void* pusher(acp_ga_t ga) { return acp_push_back_vector(g_vector, ga), NULL; }

int main(int argc, char** argv) {
  const char* const what = argc > 1 ? argv[1] : "";
  if (strcmp(what, "early") == 0) acp_malloc(8, 0);
  if (acp_init(&argc, &argv) != 0) return 3;
  if (strcmp(what, "twice") == 0) acp_init(&argc, &argv);
  if (strcmp(what, "again") == 0) acp_finalize();
  if (acp_rank() == acp_procs() - 1) {
    g_vector = acp_create_vector(1, 8, 0);
    const acp_list_t list = acp_create_list(8, 0);
    const acp_vector_t of_4 = acp_create_vector(1, 4, 0);
    if (strcmp(what, "abort") == 0) acp_abort("the reason");
    if (strcmp(what, "null") == 0) acp_push_back_vector((acp_vector_t){ACP_GA_NULL}, word(1));
    if (strcmp(what, "kind") == 0) acp_size_vector((acp_vector_t){list.ga});
    if (strcmp(what, "destroyed") == 0) {
      acp_destroy_list(list);
      acp_empty_list(list);
    }
    if (strcmp(what, "element") == 0) pusher(ACP_GA_NULL);
    if (strcmp(what, "private") == 0) pusher((acp_ga_t)(uintptr_t)malloc(8));
    if (strcmp(what, "sizes") == 0) acp_assign_vector(g_vector, of_4, 0, 1);
    if (strcmp(what, "range") == 0) acp_assign_vector(of_4, of_4, 0, 2);
    if (strcmp(what, "rank") == 0) acp_push_back_list(list, word(1), acp_procs());
    if (strcmp(what, "free") == 0) acp_free(word(1) + 4);
    if (strcmp(what, "twice-freed") == 0) {
      const acp_ga_t large = acp_malloc(100000, 0);
      acp_free(large);
      acp_free(large);
    }
  }
  acp_sync();
  acp_finalize();
  return 0;
}
