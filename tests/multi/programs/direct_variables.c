/* SPDX-License-Identifier: Apache-2.0 */
/* Every call that takes global memory takes the program's variables, on one rank as on many. */
#include <kasane/kasane.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { kWords = 1024 };
static int64_t words[kWords], others[kWords];
static int64_t initialised[2] = {41, 42};

static void succeed(int code, int line) {
  if (code == 0) return;
  fprintf(stderr, "line %d: %s\n", line, kasane_error_message());
  exit(1);
}
static void expect(int64_t want, int64_t got, int line) {
  if (want == got) return;
  fprintf(stderr, "line %d: %lld instead of %lld\n", line, (long long)got, (long long)want);
  exit(1);
}
#define OK(call) succeed(call, __LINE__)
#define IS(want, got) expect(want, got, __LINE__)

static void get_and_put(void) {
  int64_t value = 7, read = 0;
  kasane_pending_t pending = {0};
  OK(kasane_get(&read, &initialised[1], sizeof read));
  IS(42, read);
  OK(kasane_put(&words[0], &value, sizeof value));
  OK(kasane_put_async(&words[1], &value, sizeof value, &pending));
  OK(kasane_put_async(&words[2], &value, sizeof value, NULL));
  OK(kasane_wait(&pending));
  OK(kasane_flush());
  for (int i = 0; i < 3; ++i) {
    read = 0;
    OK(kasane_get_async(&read, &words[i], sizeof read, &pending));
    OK(kasane_wait(&pending));
    IS(7, read);
  }
}

/* Pieces of one operation in a variable and in the heap. */
static void many_pieces(void) {
  int64_t* const heap = kasane_calloc(8, sizeof *heap);
  const int64_t from[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  int64_t to[8] = {0};
  const kasane_piece_t out[] = {{&words[10], (void*)from, 16}, {heap, (void*)(from + 2), 24}};
  const kasane_piece_t in[] = {{heap, to, 24}, {&words[10], to + 3, 16}};
  const kasane_strides_t patch = {
      .dimensions = 2, .count = {8, 4}, .global_stride = {32}, .local_stride = {16}};
  OK(kasane_put_vector(out, 2, NULL));
  OK(kasane_get_vector(in, 2, NULL));
  IS(3, to[0]);
  IS(5, to[2]);
  IS(1, to[3]);
  IS(2, to[4]);
  OK(kasane_put_strided(&words[20], from, &patch, NULL));
  OK(kasane_get_strided(to, &words[20], &patch, NULL));
  IS(7, to[6]);
  OK(kasane_get(to, &words[32], sizeof to[0]));
  IS(7, to[0]);
  OK(kasane_copy(heap, &words[20], sizeof *heap, NULL));
  OK(kasane_copy(&others[0], heap, sizeof *heap, NULL));
  OK(kasane_copy(&others[1], &others[0], sizeof *heap, NULL));
  OK(kasane_get(to, &others[1], sizeof to[0]));
  IS(1, to[0]);
  kasane_free(heap);
}

static void change(void) {
  uint64_t old = 0;
  const double doubled[2] = {2, 0};
  int64_t ones[300];
  for (int i = 0; i < 300; ++i) ones[i] = 1;
  OK(kasane_atomic(KASANE_SWAP, 8, &words[100], 5, 0, NULL, NULL));
  OK(kasane_atomic(KASANE_FETCH_ADD, 8, &words[100], 3, 0, &old, NULL));
  IS(5, (int64_t)old);
  OK(kasane_atomic(KASANE_COMPARE_SWAP, 4, &words[100], 9, 8, &old, NULL));
  IS(8, (int64_t)old);
  IS(EINVAL, kasane_atomic(KASANE_FETCH_ADD, 8, (char*)&words[100] + 4, 1, 0, &old, NULL));
  OK(kasane_accumulate(&words[200], ones, 300, KASANE_INT64, doubled, NULL));
  OK(kasane_accumulate(&words[200], ones, 300, KASANE_INT64, NULL, NULL));
  OK(kasane_get(ones, &words[200], sizeof ones));
  for (int i = 0; i < 300; ++i) IS(3, ones[i]);
  IS(EINVAL, kasane_get(ones, (void*)1, 8));
}

static void wait_for_word(void* p) { OK(kasane_atomic_wait(8, *(int64_t**)p, 0)); }

static void wait_and_place(void) {
  const kasane_allocated_t t = kasane_thread_allocate(8, 8);
  const uint32_t last = kasane_ranks() - 1;
  uint32_t rank = 99;
  *(int64_t**)t.argument = &words[600];
  kasane_thread_fork(t, wait_for_word);
  OK(kasane_atomic(KASANE_FETCH_ADD, 8, &words[600], 1, 0, NULL, NULL));
  OK(kasane_atomic_notify_all(&words[600]));
  OK(kasane_thread_join(t.id));
  OK(kasane_own(others, sizeof others));
  OK(kasane_give(others, sizeof others, last));
  OK(kasane_where(others, &rank));
  IS(last, rank);
  IS(EINVAL, kasane_give(others, sizeof others, last + 1));
  OK(kasane_thread_move_near(others));
}

static void save(void) {
  char path[] = "/tmp/kasane_direct_variables_XXXXXX";
  const kasane_checkpoint_t contents = {kWords, sizeof words[0], 0, 0};
  close(mkstemp(path));
  others[kWords - 1] = 77;
  OK(kasane_persist(others, &contents, path));
  others[kWords - 1] = 0;
  OK(kasane_restore(others, &contents, path));
  IS(77, others[kWords - 1]);
  remove(path);
}

static void run(void* unused) {
  (void)unused;
  get_and_put();
  many_pieces();
  change();
  wait_and_place();
  save();
}

int main(void) {
  OK(kasane_run(run, NULL));
  return 0;
}
