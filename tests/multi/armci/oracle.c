/* SPDX-License-Identifier: Apache-2.0 */
/* Every one-sided ARMCI call against an oracle. All processes generate the operations of all from one seed
 * and apply them to a model of all segments; each executes its own. A segment has a part for each process,
 * where only that process writes in a phase, and a part where all accumulate. After each phase each process
 * compares its segment, by plain loads, with the model. Usage: oracle SEED PHASES [MIB]: segments of about so
 * many MiB, over which larger operations are spread */
#include <armci.h>
#include <limits.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kNear = 4 << 20, kSum = 40000, kOperations = 24, kMostLevels = 7, kTypes = 6 };

static int me, nproc, failures;
static long seed;
static char **segment, **model; /* by process */
static size_t bytes;
static size_t part = 192 << 10;
static int spread;

typedef struct {
  uint64_t state;
} random_t;
static uint64_t next(random_t* r) {
  r->state += 0x9e3779b97f4a7c15u;
  uint64_t z = r->state;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}
static int upto(random_t* r, int n) { return (int)(next(r) % (uint64_t)n); }

static const int kSize[kTypes] = {4, 8, 4, 8, 8, 16};
static const int kPartSize[kTypes] = {4, 8, 4, 8, 4, 8};

/* kind: 0 put, 1 get, 2 acc. form: 0 contiguous, 1 strided, 2 vector, 3 value, 4 flag. */
typedef struct {
  int kind, form, later, type, target, levels, garbage;
  int count[kMostLevels + 1], far[kMostLevels], near[kMostLevels];
  size_t at, far_extent, near_extent, flag;
  long scale[2];
  int values;
} operation_t;

static void shape(operation_t* o, random_t* r, size_t room) {
  const int unit = kSize[o->type];
  o->levels = o->form == 1 ? upto(r, kMostLevels + 1) : o->form == 2 ? 1 : 0;
  do {
    const int most = o->levels > 4 ? 2 : 4;
    o->count[0] = unit * (1 + upto(r, o->levels == 0 ? (upto(r, 6) == 0 ? 4000 : 60) : 12));
    if (spread && upto(r, 3) == 0) o->count[0] = unit * (1 + upto(r, 300000 / unit)); /* whole pages, too */
    size_t far = o->count[0], near = o->count[0];
    for (int l = 0; l < o->levels; ++l) {
      o->count[l + 1] = 1 + upto(r, most);
      far += upto(r, 3) * unit * (spread ? 1 + upto(r, 9000) : 1), near += upto(r, 3) * unit;
      o->far[l] = far, o->near[l] = near;
      far *= o->count[l + 1], near *= o->count[l + 1];
    }
    o->far_extent = far, o->near_extent = near;
  } while (o->far_extent > room || o->near_extent > kNear - 64);
}

/* Puts and accumulates take places of their own, one after the other in the part of the process. */
static int generate(operation_t* o, random_t* r, int actor, size_t* used) {
  memset(o, 0, sizeof *o);
  o->kind = upto(r, 3);
  o->form = upto(r, o->kind == 2 ? 3 : 5);
  o->later = upto(r, 2);
  o->type = upto(r, kTypes);
  o->target = upto(r, nproc);
  o->garbage = upto(r, 3);
  o->values = upto(r, 1000);
  o->scale[0] = upto(r, 7) - 3, o->scale[1] = upto(r, 2) ? 0 : upto(r, 5) - 2;
  const long large[4] = {(1L << 60) + 1, (1L << 53) + 1, -(1L << 53) - 1, LONG_MIN}; /* no doubles but one */
  if (o->type == ARMCI_ACC_LNG && upto(r, 4) == 0) o->scale[0] = large[upto(r, 4)];
  if (o->form == 3) o->type = upto(r, 4); /* int, long, float, double */
  if (o->form == 3) o->later = o->kind == 0 ? o->later : 0;
  if (o->kind == 2 && upto(r, 2)) { /* in the common part, which has a place for each type */
    shape(o, r, kSum / kTypes / 16 * 16);
    const size_t room = kSum / kTypes / 16 * 16 - o->far_extent;
    o->at = (size_t)nproc * part + o->type * (kSum / kTypes / 16 * 16) + upto(r, room / 16 + 1) * 16;
    if (o->type == ARMCI_ACC_LNG) o->scale[0] %= 4;
    return 1;
  }
  shape(o, r, part / 4);
  if (o->form == 3) o->count[0] = kSize[o->type], o->far_extent = o->near_extent = o->count[0];
  const size_t gap = spread ? (size_t)upto(r, 2 * (int)(part / kOperations) / 3) : 0;
  const size_t place = (*used + gap + 15) / 16 * 16 + (upto(r, 9) == 0 ? 3 : upto(r, 2) * kPartSize[o->type]);
  if (place + o->far_extent + 32 > part) return 0;
  o->at = (size_t)actor * part + place;
  *used = place + o->far_extent;
  if (o->form == 4) {
    o->flag = (size_t)actor * part + (*used + 3) / 4 * 4;
    *used = (*used + 3) / 4 * 4 + 4;
  }
  return 1;
}

static void set(int type, char* at, long i) {
  const int n = (int)(i % 9);
  switch (type) {
    case ARMCI_ACC_INT: memcpy(at, &n, 4); break;
    case ARMCI_ACC_LNG: memcpy(at, &(long){n}, 8); break;
    case ARMCI_ACC_FLT: memcpy(at, &(float){n}, 4); break;
    case ARMCI_ACC_DBL: memcpy(at, &(double){n}, 8); break;
    case ARMCI_ACC_CPL: memcpy(at, (float[2]){n, 1}, 8); break;
    default: memcpy(at, (double[2]){n, 1}, 16);
  }
}

static void add(int type, char* at, const char* from, const long* s) {
  unsigned i, x;
  unsigned long l, y;
  float f[2], g[2];
  double d[2], e[2];
  memcpy(&i, at, 4), memcpy(&x, from, 4);
  switch (type) {
    case ARMCI_ACC_INT: i += x * (unsigned)s[0], memcpy(at, &i, 4); break;
    case ARMCI_ACC_LNG: memcpy(&l, at, 8), memcpy(&y, from, 8), l += y * s[0], memcpy(at, &l, 8); break;
    case ARMCI_ACC_FLT: memcpy(f, at, 4), memcpy(g, from, 4), *f += *g * s[0], memcpy(at, f, 4); break;
    case ARMCI_ACC_DBL: memcpy(d, at, 8), memcpy(e, from, 8), *d += *e * s[0], memcpy(at, d, 8); break;
    case ARMCI_ACC_CPL:
      memcpy(f, at, 8), memcpy(g, from, 8);
      f[0] += g[0] * s[0] - g[1] * s[1], f[1] += g[0] * s[1] + g[1] * s[0], memcpy(at, f, 8);
      break;
    default:
      memcpy(d, at, 16), memcpy(e, from, 16);
      d[0] += e[0] * s[0] - e[1] * s[1], d[1] += e[0] * s[1] + e[1] * s[0], memcpy(at, d, 16);
  }
}

/* Calls row(far, near, bytes, context) for each row. */
typedef void (*row_t)(char*, char*, int, const operation_t*);
static void each_row(const operation_t* o, int level, char* far, char* near, row_t row) {
  if (level == 0) {
    row(far, near, o->count[0], o);
    return;
  }
  for (int i = 0; i < o->count[level]; ++i)
    each_row(o, level - 1, far + (long)i * o->far[level - 1], near + (long)i * o->near[level - 1], row);
}
static void row_fill(char* far, char* near, int n, const operation_t* o) {
  (void)far;
  for (int i = 0; i < n; i += kSize[o->type]) set(o->type, near + i, o->values + i);
}
static void row_put(char* far, char* near, int n, const operation_t* o) { (void)o, memcpy(far, near, n); }
static void row_acc(char* far, char* near, int n, const operation_t* o) {
  for (int i = 0; i < n; i += kSize[o->type]) add(o->type, far + i, near + i, o->scale);
}
static int right;
static void row_compare(char* far, char* near, int n, const operation_t* o) {
  (void)o;
  right &= memcmp(far, near, n) == 0;
}

static void row_zero(char* far, char* near, int n, const operation_t* o) {
  (void)o, memset(far, 0, n), memset(near, 0, n);
}
static void row_zero_near(char* far, char* near, int n, const operation_t* o) {
  (void)o, (void)far, memset(near, 0, n);
}
/* An accumulate where puts have left bytes of any type. */
static int in_own_part(const operation_t* o) { return o->kind == 2 && o->at < (size_t)nproc * part; }

static void apply(const operation_t* o, char* near) {
  char* far = model[o->target] + o->at;
  if (in_own_part(o)) each_row(o, o->levels, far, near, row_zero);
  if (o->kind != 1) each_row(o, o->levels, far, near, row_fill);
  if (o->kind == 0) each_row(o, o->levels, far, near, row_put);
  if (o->kind == 2) each_row(o, o->levels, far, near, row_acc);
  if (o->kind != 1 && o->form == 4) memcpy(model[o->target] + o->flag, &o->values, 4);
}

static void scale_of(const operation_t* o, void* scale) {
  switch (o->type) {
    case ARMCI_ACC_INT: *(int*)scale = (int)o->scale[0]; break;
    case ARMCI_ACC_LNG: *(long*)scale = o->scale[0]; break;
    case ARMCI_ACC_FLT: *(float*)scale = o->scale[0]; break;
    case ARMCI_ACC_DBL: *(double*)scale = o->scale[0]; break;
    case ARMCI_ACC_CPL: ((float*)scale)[0] = o->scale[0], ((float*)scale)[1] = o->scale[1]; break;
    default: ((double*)scale)[0] = o->scale[0], ((double*)scale)[1] = o->scale[1];
  }
}

static void contiguous(const operation_t* o, char* far, char* near, armci_hdl_t* h) {
  const int n = o->count[0], p = o->target;
  double scale[2];
  scale_of(o, scale);
  if (o->kind == 0) o->later ? ARMCI_NbPut(near, far, n, p, h) : ARMCI_Put(near, far, n, p);
  if (o->kind == 1) o->later ? ARMCI_NbGet(far, near, n, p, h) : ARMCI_Get(far, near, n, p);
  if (o->kind == 2)
    o->later ? ARMCI_NbAcc(o->type, scale, near, far, n, p, h) : ARMCI_Acc(o->type, scale, near, far, n, p);
}

static void strided(operation_t* o, char* far, char* near, armci_hdl_t* h) {
  const int l = o->levels, p = o->target;
  int *fs = o->far, *ns = o->near, *c = o->count;
  double scale[2];
  scale_of(o, scale);
  if (o->kind == 0)
    o->later ? ARMCI_NbPutS(near, ns, far, fs, c, l, p, h) : ARMCI_PutS(near, ns, far, fs, c, l, p);
  if (o->kind == 1)
    o->later ? ARMCI_NbGetS(far, fs, near, ns, c, l, p, h) : ARMCI_GetS(far, fs, near, ns, c, l, p);
  if (o->kind == 2)
    o->later ? ARMCI_NbAccS(o->type, scale, near, ns, far, fs, c, l, p, h)
             : ARMCI_AccS(o->type, scale, near, ns, far, fs, c, l, p);
}

static void vector(operation_t* o, char* far, char* near, armci_hdl_t* h) {
  void *f[8], *n[8];
  for (int i = 0; i < o->count[1]; ++i) f[i] = far + (long)i * o->far[0], n[i] = near + (long)i * o->near[0];
  armci_giov_t iov[2] = {{o->kind == 1 ? f : n, o->kind == 1 ? n : f, o->count[0], o->count[1]}};
  int length = 1;
  if (o->count[1] > 1) { /* as two vectors */
    iov[1] = iov[0], length = 2;
    iov[0].ptr_array_len = 1, --iov[1].ptr_array_len, ++iov[1].src_ptr_array, ++iov[1].dst_ptr_array;
  }
  double scale[2];
  scale_of(o, scale);
  const int p = o->target;
  if (o->kind == 0) o->later ? ARMCI_NbPutV(iov, length, p, h) : ARMCI_PutV(iov, length, p);
  if (o->kind == 1) o->later ? ARMCI_NbGetV(iov, length, p, h) : ARMCI_GetV(iov, length, p);
  if (o->kind == 2)
    o->later ? ARMCI_NbAccV(o->type, scale, iov, length, p, h) : ARMCI_AccV(o->type, scale, iov, length, p);
}

#define VALUE(type, Name)                         \
  do {                                            \
    type v;                                       \
    memcpy(&v, near, sizeof v);                   \
    if (o->kind == 1)                             \
      v = ARMCI_GetValue##Name(far, p);           \
    else if (o->later)                            \
      ARMCI_NbPutValue##Name(v, far, p, h);       \
    else                                          \
      ARMCI_PutValue##Name(v, far, p);            \
    if (o->kind == 1) memcpy(near, &v, sizeof v); \
  } while (0)
static void value(const operation_t* o, char* far, char* near, armci_hdl_t* h) {
  const int p = o->target;
  switch (o->type) {
    case 0: VALUE(int, Int); break;
    case 1: VALUE(long, Long); break;
    case 2: VALUE(float, Float); break;
    default: VALUE(double, Double);
  }
}

static void with_flag(operation_t* o, char* far, char* near, armci_hdl_t* h) {
  int* flag = (int*)(segment[o->target] + o->flag);
  if (o->kind == 1) return contiguous(o, far, near, h);
  if (o->levels == 0 && o->values % 2) {
    ARMCI_Put_flag(near, far, o->count[0], flag, o->values, o->target);
  } else {
    ARMCI_PutS_flag(near, o->near, far, o->far, o->count, o->levels, flag, o->values, o->target);
  }
}

static void execute(operation_t* o, char* near) {
  static armci_hdl_t aggregate;
  armci_hdl_t handle, *h = o->garbage == 0 ? NULL : o->garbage == 1 ? &handle : &aggregate;
  memset(&handle, o->values, sizeof handle); /* garbage */
  char* far = segment[o->target] + o->at;
  if (in_own_part(o)) {
    each_row(o, o->levels, near, near, row_zero_near);
    ARMCI_PutS(near, o->near, far, o->far, o->count, o->levels, o->target);
  }
  if (o->kind != 1) each_row(o, o->levels, far, near, row_fill);
  switch (o->form) {
    case 0: contiguous(o, far, near, h); break;
    case 1: strided(o, far, near, h); break;
    case 2: vector(o, far, near, h); break;
    case 3: value(o, far, near, h); break;
    default: with_flag(o, far, near, h);
  }
  if (o->later && o->form != 4) {
    if (o->garbage == 1) ARMCI_Wait(&handle);
    if (o->garbage == 0) o->values % 2 ? ARMCI_WaitProc(o->target) : ARMCI_WaitAll();
    if (o->garbage == 2 && o->kind == 1) ARMCI_Wait(&aggregate);
    if (ARMCI_Test(&handle) != 0 && o->garbage == 1) ++failures;
  }
  if (o->kind != 1) return;
  right = 1;
  each_row(o, o->levels, model[o->target] + o->at, near, row_compare);
  if (right) return;
  ++failures;
  fprintf(stderr, "oracle: seed %ld: process %d: a get of form %d, type %d, %d levels from %d is wrong\n",
          seed, me, o->form, o->type, o->levels, o->target);
}

static void phase(int number, char* near) {
  /* First all of the process's own are executed and seen by the model, then those of the others. */
  for (int turn = 0; turn < nproc; ++turn) {
    const int actor = (me + turn) % nproc;
    random_t r = {(uint64_t)seed * 1000003 + number * 1009 + actor};
    size_t used = 0;
    for (int i = 0; i < kOperations; ++i) {
      operation_t o;
      if (!generate(&o, &r, actor, &used)) break;
      if (o.kind == 1 && o.form == 4) o.form = 0;
      apply(&o, near);
      if (actor == me) execute(&o, near);
    }
  }
  ARMCI_Barrier();
  if (memcmp(segment[me], model[me], bytes) == 0) {
    ARMCI_Barrier();
    return;
  }
  size_t at = 0;
  while (segment[me][at] == model[me][at]) ++at;
  ++failures;
  fprintf(stderr, "oracle: seed %ld phase %d: process %d: byte %zu is wrong\n", seed, number, me, at);
  ARMCI_Barrier();
}

/* All processes add to counters of all, and swap tokens. */
static void atomics(void) {
  ARMCI_Barrier();
  memset(segment[me], 0, 64);
  ARMCI_Barrier();
  long got = 0;
  int small = 0, sum = 0;
  for (int i = 0; i < 300; ++i) {
    char* at = segment[i % nproc];
    ARMCI_Rmw(ARMCI_FETCH_AND_ADD_LONG, &got, at, 3, i % nproc);
    ARMCI_Rmw(ARMCI_FETCH_AND_ADD, &small, at + 8, -1, i % nproc);
    long token = me + 1;
    ARMCI_Rmw(ARMCI_SWAP_LONG, &token, at + 16, 0, i % nproc);
    int mine = 1;
    ARMCI_Rmw(ARMCI_SWAP, &mine, at + 24, 0, i % nproc);
    sum += mine;
  }
  ARMCI_Barrier();
  long total = 0;
  int minus = 0;
  for (int p = 0; p < nproc; ++p) {
    total += ARMCI_GetValueLong(segment[p], p), minus += ARMCI_GetValueInt(segment[p] + 8, p);
    sum += me == 0 ? ARMCI_GetValueInt(segment[p] + 24, p) : 0;
  }
  armci_msg_igop(&sum, 1, "+");
  /* Each swap takes out what one before has put in; the first of each word a zero. */
  if (total != 900L * nproc || minus != -300 * nproc || sum != 300 * nproc) ++failures;
  ARMCI_Barrier();
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  ARMCI_Init();
  me = armci_msg_me(), nproc = armci_msg_nproc();
  seed = argc > 1 ? atol(argv[1]) : 1;
  const int phases = argc > 2 ? atoi(argv[2]) : 20;
  spread = argc > 3;
  if (spread) part = (size_t)atol(argv[3]) * (1 << 20) / nproc;
  bytes = (size_t)nproc * part + kSum;
  segment = malloc(nproc * sizeof *segment), model = malloc(nproc * sizeof *model);
  if (ARMCI_Malloc((void**)segment, bytes) != 0) ARMCI_Error("no memory", 1);
  for (int p = 0; p < nproc; ++p) model[p] = calloc(1, bytes);
  memset(segment[me], 0, bytes);
  char* near = ARMCI_Malloc_local(kNear);
  memset(near, 0, kNear);
  ARMCI_Barrier();
  for (int i = 0; i < phases; ++i) phase(i, near);
  atomics();
  armci_msg_igop(&failures, 1, "+");
  if (me == 0 && failures == 0) printf("oracle: passed on %d processes, seed %ld\n", nproc, seed);
  ARMCI_Free(segment[me]);
  ARMCI_Free_local(near);
  ARMCI_Finalize();
  MPI_Finalize();
  return failures != 0;
}
