/* SPDX-License-Identifier: Apache-2.0 */
/* C code that knows nothing of Kasane: lists and texts, made and taken apart with malloc and its kin. */
#include "lists.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct cell* make_list(int first, int n) {
  struct cell* head = NULL;
  for (int i = n - 1; i >= 0; --i) {
    struct cell* cell = i % 2 ? malloc(sizeof *cell) : calloc(1, sizeof *cell);
    if (cell == NULL) abort();
    cell->value = first + i;
    cell->next = head;
    head = cell;
  }
  return head;
}

long sum_and_free(struct cell* head) {
  long sum = 0;
  while (head != NULL) {
    struct cell* next = head->next;
    sum += head->value;
    free(head);
    head = next;
  }
  return sum;
}

char* repeated(const char* text, int times) {
  char* all = NULL;
  size_t n = 0, each = strlen(text);
  for (int i = 0; i < times; ++i) {
    all = realloc(all, n + each + 1);
    if (all == NULL) abort();
    memcpy(all + n, text, each + 1);
    n += each;
  }
  return all;
}

void* aligned(size_t align, size_t bytes) {
  void* p = NULL;
  if (posix_memalign(&p, align, bytes) != 0 || (uintptr_t)p % align != 0) abort();
  return p;
}
