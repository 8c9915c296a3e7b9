/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif
struct cell {
  long value;
  struct cell* next;
};
/* first, first + 1 … */
struct cell* make_list(int first, int n);
long sum_and_free(struct cell* head);
char* repeated(const char* text, int times);
void* aligned(size_t align, size_t bytes);
#ifdef __cplusplus
}
#endif
