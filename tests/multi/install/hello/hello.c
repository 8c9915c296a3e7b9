/* SPDX-License-Identifier: Apache-2.0 */
#include <kasane/kasane.h>
#include <stdio.h>

/* A thread's argument is built on its own stack; what it writes lies in global memory. */
typedef struct {
  int from;
  int* to;
} task;

static void work(void* argument) {
  const task* t = argument;
  *t->to = t->from * t->from;
}

static void first(void* sum) {
  enum { n = 100 };
  int* squares = kasane_malloc(n * sizeof *squares);
  kasane_thread_t threads[n];
  for (int i = 0; i < n; ++i) {
    const kasane_allocated_t made = kasane_thread_allocate(_Alignof(task), sizeof(task));
    *(task*)made.argument = (task){i, &squares[i]};
    threads[i] = made.id;
    kasane_thread_fork(made, work);
  }
  for (int i = 0; i < n; ++i) {
    kasane_thread_join(threads[i]);
    *(int*)sum += squares[i];
  }
  kasane_free(squares);
}

int main(void) {
  int sum = 0;
  kasane_run(first, &sum);
  printf("the sum of 100 squares is %d (%u ranks)\n", sum, kasane_ranks());
  return sum == 328350 ? 0 : 1;
}
