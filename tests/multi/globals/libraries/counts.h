/* SPDX-License-Identifier: Apache-2.0 */
/* A C library with variables of every kind, and a constructor and a destructor. */
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

extern long counts_total; /* 1000 before main, from the file */
extern long counts_table[65536];

void counts_add(int index, long by);
long counts_sum(void);
/* Once a job: 7, from the constructor. */
int counts_constructed(void);
/* What a pointer among the variables points to. */
long* counts_first(void);

#ifdef __cplusplus
}
#endif
