/* SPDX-License-Identifier: Apache-2.0 */
/* Maps and sets: all calls, changes of all ranks at once, failures. */
#include "acp_test.h"

enum { kMostBytes = 20000 };
static acp_ga_t g_key, g_value;

/* The bytes of key number i, in global memory: of different sizes, which do not tell the number. */
static acp_element_t key(int i) {
  const size_t size = i % 7 == 0 ? 4 : i % 100 == 1 ? 3000 : (size_t)(5 + i % 40);
  unsigned char* p = acp_query_address(g_key);
  memset(p, 'k', size);
  memcpy(p, &i, sizeof i);
  return (acp_element_t){g_key, size};
}
static acp_element_t value(int i, int salt) {
  const size_t size = (size_t)(i % 50) * (size_t)(i % 50);
  memset(acp_query_address(g_value), i + salt, size);
  return (acp_element_t){g_value, size};
}
static acp_pair_t pair(int i, int salt) { return (acp_pair_t){key(i), value(i, salt)}; }

/* The bytes at an address of any rank, at this one. */
static const unsigned char* bytes_at(acp_element_t e) {
  static acp_ga_t place;
  if (place == ACP_GA_NULL) place = acp_malloc(kMostBytes, acp_rank());
  EXPECT(e.ga != ACP_GA_NULL && e.size <= kMostBytes);
  if (e.size != 0) acp_complete(acp_copy(place, e.ga, e.size, ACP_HANDLE_NULL));
  return acp_query_address(place);
}
/* Of an entry. */
static int number_of(acp_element_t k) {
  int i;
  memcpy(&i, bytes_at(k), sizeof i);
  const acp_element_t same = key(i);
  EXPECT(k.size == same.size && memcmp(bytes_at(k), acp_query_address(same.ga), k.size) == 0);
  return i;
}
static void expect_value(acp_element_t v, int i, int salt) {
  EXPECT(v.size == value(i, salt).size);
  EXPECT(memcmp(bytes_at(v), acp_query_address(g_value), v.size) == 0);
}

static void map_calls(int rank) {
  const int both[] = {rank, (rank + 1) % acp_procs()};
  acp_map_t m = acp_create_map(2, both, 128, rank);
  EXPECT(m.ga != ACP_GA_NULL && m.num_ranks == 2 && acp_query_rank(m.ga) == rank);
  EXPECT(acp_empty_map(m) && acp_begin_map(m).elem == acp_end_map(m).elem);
  for (int i = 0; i < 500; ++i) EXPECT(acp_insert_map(m, pair(i, 0)) == 1);
  errno = 0;
  EXPECT(acp_insert_map(m, pair(77, 5)) == 0 && errno == EEXIST); /* the first value stays */
  EXPECT(acp_size_map(m) == 500 && !acp_empty_map(m));
  for (int i = 0; i < 600; ++i) {
    const acp_map_it_t it = acp_find_map(m, key(i));
    EXPECT((it.elem != acp_end_map(m).elem) == (i < 500));
    if (i >= 500) continue;
    const acp_pair_t found = acp_dereference_map_it(it);
    EXPECT(number_of(found.first) == i);
    expect_value(found.second, i, 0);
    const int at = acp_query_rank(found.first.ga);
    EXPECT(at == both[0] || at == both[1]);
  }
  const acp_ga_t room = acp_malloc(kMostBytes, acp_rank());
  EXPECT(acp_retrieve_map(m, (acp_pair_t){key(49), {room, kMostBytes}}) == 49 * 49);
  EXPECT(*(unsigned char*)acp_query_address(room) == 49);
  EXPECT(acp_retrieve_map(m, (acp_pair_t){key(49), {room, 10}}) == 10);
  EXPECT(acp_retrieve_map(m, (acp_pair_t){key(555), {room, 10}}) == 0);
  acp_free(room);
  for (int i = 0; i < 500; i += 2) acp_remove_map(m, key(i));
  acp_remove_map(m, key(1000));
  EXPECT(acp_size_map(m) == 250);
  char seen[500] = {0};
  for (acp_map_it_t it = acp_begin_map(m); it.elem != ACP_GA_NULL; it = acp_increment_map_it(it)) {
    const int i = number_of(acp_dereference_map_it(it).first);
    EXPECT(i % 2 == 1 && seen[i]++ == 0);
  }
  acp_map_t other = acp_create_map(1, both, 1, rank);
  acp_swap_map(m, other);
  EXPECT(acp_empty_map(m) && acp_size_map(other) == 250);
  EXPECT(acp_insert_map(other, pair(2, 9)) == 1);
  expect_value(acp_dereference_map_it(acp_find_map(other, key(2))).second, 2, 9);
  acp_clear_map(other);
  EXPECT(acp_empty_map(other) && acp_find_map(other, key(1)).elem == ACP_GA_NULL);
  EXPECT(acp_insert_map(other, pair(1, 0)) == 1);
  acp_destroy_map(other);
  acp_destroy_map(m);
}

static void set_calls(int rank) {
  acp_set_t s = acp_create_set(1, &rank, 16, (rank + 1) % acp_procs());
  EXPECT(s.ga != ACP_GA_NULL && acp_empty_set(s));
  for (int i = 0; i < 200; ++i) EXPECT(acp_insert_set(s, key(i)) == 1);
  EXPECT(acp_insert_set(s, key(5)) == 0 && acp_size_set(s) == 200);
  EXPECT(acp_insert_set(s, (acp_element_t){ACP_GA_NULL, 0}) == 1); /* a key without bytes */
  EXPECT(acp_find_set(s, (acp_element_t){ACP_GA_NULL, 0}).elem != ACP_GA_NULL);
  acp_remove_set(s, (acp_element_t){ACP_GA_NULL, 0});
  EXPECT(number_of(acp_dereference_set_it(acp_find_set(s, key(101)))) == 101);
  acp_remove_set(s, key(101));
  EXPECT(acp_find_set(s, key(101)).elem == acp_end_set(s).elem);
  int n = 0;
  for (acp_set_it_t it = acp_begin_set(s); it.elem != ACP_GA_NULL; it = acp_increment_set_it(it)) {
    number_of(acp_dereference_set_it(it));
    ++n;
  }
  EXPECT(n == 199);
  acp_set_t other = acp_create_set(1, &rank, 16, rank);
  acp_swap_set(s, other);
  acp_clear_set(other);
  EXPECT(acp_empty_set(s) && acp_empty_set(other));
  acp_destroy_set(other);
  acp_destroy_set(s);
}

/* All ranks insert the same keys: each key has one inserter. Then all remove, and insert again. */
static void changes_at_once(void) {
  enum { kKeys = 3000 };
  const int n = acp_procs(), me = acp_rank();
  int all[64];
  for (int r = 0; r < n; ++r) all[r] = r;
  if (me == 0) publish(3, acp_create_map(n, all, 64, 0).ga);
  const acp_map_t m = {published(3), (uint64_t)n, 64};
  uint64_t mine = 0;
  for (int i = 0; i < kKeys; ++i) mine += (uint64_t)acp_insert_map(m, pair(i, me));
  *((uint64_t*)acp_query_address(acp_query_starter_ga(me)) + 100) = mine;
  acp_sync();
  uint64_t inserted = 0;
  for (int r = 0; r < n; ++r) inserted += value_at(acp_query_starter_ga(r) + 800);
  EXPECT(inserted == kKeys && acp_size_map(m) == kKeys);
  acp_sync();
  for (int i = 0; i < kKeys; ++i) { /* the same keys, at the same time */
    acp_remove_map(m, key(i));
    if (i % 3 == 0) acp_insert_map(m, pair(i, me));
    if (i % 5 == 0) acp_find_map(m, key(i));
  }
  acp_sync();
  for (int i = 0; i < kKeys; ++i)
    if (i % 3 != 0 || i % 7 == 0) acp_remove_map(m, key(i));
  acp_sync();
  for (int i = 0; i < kKeys; ++i) {
    const acp_map_it_t it = acp_find_map(m, key(i));
    if (i % 3 != 0 || i % 7 == 0) EXPECT(it.elem == ACP_GA_NULL);
    if (it.elem != ACP_GA_NULL) EXPECT(number_of(acp_dereference_map_it(it).first) == i);
  }
  acp_sync();
  if (me == 0) acp_destroy_map(m);
  acp_sync();
}

static void failures(void) {
  const int bad = acp_procs(), good = 0;
  errno = 0;
  EXPECT(acp_create_map(1, &bad, 1, 0).ga == ACP_GA_NULL && errno == EINVAL);
  EXPECT(acp_create_map(1, &good, 1, bad).ga == ACP_GA_NULL &&
         acp_create_map(1, NULL, 1, 0).ga == ACP_GA_NULL);
  EXPECT(acp_create_map(0, &good, 1, 0).ga == ACP_GA_NULL &&
         acp_create_set(-1, &good, 1, 0).ga == ACP_GA_NULL);
  acp_map_t m = acp_create_map(1, &good, 1, 0);
  EXPECT(acp_dereference_map_it(acp_end_map(m)).first.ga == ACP_GA_NULL);
  EXPECT(acp_increment_map_it(acp_end_map(m)).elem == ACP_GA_NULL);
  EXPECT(acp_insert_map(m, pair(1, 0)) == 1);
  errno = 0;
  EXPECT(acp_increment_map_it(acp_find_map(m, key(1))).elem == ACP_GA_NULL && errno == EINVAL);
  errno = 0;
  EXPECT(acp_insert_map(m, (acp_pair_t){{ACP_GA_NULL, 8}, {g_value, 8}}) == 0 && errno == EINVAL);
  EXPECT(acp_insert_map(m, (acp_pair_t){key(2), {ACP_GA_NULL, 8}}) == 0 && acp_size_map(m) == 1);
  acp_destroy_map(m);
}

int main(int argc, char** argv) {
  EXPECT(acp_init(&argc, &argv) == 0);
  g_key = acp_malloc(kMostBytes, acp_rank());
  g_value = acp_malloc(kMostBytes, acp_rank());
  map_calls(acp_procs() - 1);
  set_calls(acp_procs() - 1);
  changes_at_once();
  failures();
  EXPECT(acp_finalize() == 0);
  return 0;
}
