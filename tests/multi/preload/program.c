// SPDX-License-Identifier: Apache-2.0
// Programs that know nothing of Kasane, one for each kind: preload_test.cpp says what becomes of them.
//
//   threads  four threads add to a variable and to memory from malloc, and say how many processes they are
//   others   something in the file that forbids this
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern int of_library;
extern char** environ;
int count_up(int*);

#ifdef KIND_go
__attribute__((section(".go.buildinfo"), used)) static const char kGo[16] = "go";
#endif
#ifdef KIND_rust
__attribute__((used)) static const char kRust[] = "/rustc/1/library/std/src/panicking.rs";
#endif

enum { kThreads = 4, kSteps = 100 };
static pthread_mutex_t g_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t g_all; /* else the last thread may begin when the first has ended */
static int g_sum = 1;
static int* g_other;
static pid_t g_where[kThreads];

static void* work(void* number) {
  const int n = *(int*)number;
  g_where[n] = getpid();
  pthread_barrier_wait(&g_all);
  for (int i = 0; i < kSteps; ++i) {
    pthread_mutex_lock(&g_mutex);
    ++g_sum;
    ++*g_other;
    pthread_mutex_unlock(&g_mutex);
  }
  return number;
}

static int processes(void) {
  int found = 0;
  for (int i = 0; i < kThreads; ++i) {
    int seen = 0;
    for (int j = 0; j < i; ++j) seen |= g_where[j] == g_where[i];
    found += !seen;
  }
  return found;
}

int main(int argc, char** argv) {
  if (argc > 1 && strcmp(argv[1], "--version") == 0) return puts("pigz 2.61") < 0;
  int wrong = 0;
#ifdef KIND_lock
  __atomic_add_fetch(&g_sum, argc, __ATOMIC_SEQ_CST);
#elif defined KIND_exchange
  g_sum = __atomic_exchange_n(&g_sum, argc, __ATOMIC_SEQ_CST);
#elif defined KIND_environ
  wrong = environ == NULL;
#elif defined KIND_copy
  wrong = of_library != 1;
#elif defined KIND_library || defined KIND_java
  count_up(&g_sum);
#endif
  pthread_t threads[kThreads];
  int numbers[kThreads];
  g_other = calloc(1, sizeof *g_other);
  if (pthread_barrier_init(&g_all, NULL, kThreads) != 0) return 1;
  for (int i = 0; i < kThreads; ++i) {
    numbers[i] = i;
    if (pthread_create(&threads[i], NULL, work, &numbers[i]) != 0) return 1;
  }
  for (int i = 0; i < kThreads; ++i) {
    void* value = NULL;
    if (pthread_join(threads[i], &value) != 0 || value != &numbers[i]) return 1;
  }
  wrong |= g_sum < kThreads * kSteps || *g_other != kThreads * kSteps;
  fprintf(stdout, "%s in %d processes\n", wrong ? "wrong" : "right", processes());
  fflush(stdout);
  return wrong || (argc > 1 && system(argv[1]) != 0);
}
