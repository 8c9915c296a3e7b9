/* SPDX-License-Identifier: Apache-2.0 */
/* The interface in C: threads whose arguments lie on their own stacks, global memory, a mutex, counters. */
#include <kasane/kasane.h>
#include <stdio.h>

enum { kThreads = 16, kNumbers = 100000 };

struct part {
  const int* numbers;
  int first, last;
  long* sum;
  kasane_mutex_t* mutex;
};

static void add_part(void* argument) {
  const struct part* p = argument;
  long sum = 0;
  for (int i = p->first; i < p->last; ++i) sum += p->numbers[i];
  kasane_mutex_lock(p->mutex);
  *p->sum += sum;
  kasane_mutex_unlock(p->mutex);
}

static void root(void* result) {
  int* numbers = kasane_allocate(kNumbers * sizeof *numbers, 64, KASANE_PLACEMENT_BLOCK);
  if (numbers == NULL) {
    fprintf(stderr, "%s\n", kasane_error_message());
    return;
  }
  for (int i = 0; i < kNumbers; ++i) numbers[i] = i;
  long sum = 0;
  kasane_mutex_t mutex;
  kasane_thread_t threads[kThreads];
  if (kasane_mutex_init(&mutex) != 0) return;
  for (int t = 0; t < kThreads; ++t) {
    kasane_allocated_t thread = kasane_thread_allocate(_Alignof(struct part), sizeof(struct part));
    if (thread.id == 0) return;
    *(struct part*)thread.argument =
        (struct part){numbers, kNumbers / kThreads * t, kNumbers / kThreads * (t + 1), &sum, &mutex};
    threads[t] = thread.id;
    kasane_thread_fork(thread, add_part);
  }
  for (int t = 0; t < kThreads; ++t) kasane_thread_join(threads[t]);
  kasane_mutex_destroy(&mutex);
  kasane_free(numbers);
  *(long*)result = sum;
}

int main(void) {
  long sum = 0;
  if (kasane_run(root, &sum) != 0) {
    fprintf(stderr, "%s\n", kasane_error_message());
    return 1;
  }
  uint64_t threads = 0;
  if (kasane_counter_by_name("threads", KASANE_ALL_RANKS, &threads) != 0 || threads < kThreads) return 2;
  const long expected = (long)kNumbers * (kNumbers - 1) / 2;
  printf("c_api: %s\n", sum == expected ? "ok" : "FAILED");
  return sum != expected;
}
