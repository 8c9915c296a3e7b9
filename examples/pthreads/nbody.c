/* SPDX-License-Identifier: Apache-2.0 */
/* Bodies that attract each other, by a tree of cubes (J. Barnes and P. Hut, 1986): far cubes act as points.
 *
 *   each step:  the box around all bodies (under a lock)
 *               the tree, part by part (an array of locks)
 *               masses of the parts, which threads take in turns (GETSUB)
 *               pulls of some bodies at a time, which threads take in turns, too
 *               each thread moves its own bodies
 *
 * usage: nbody [-n bodies] [-s steps] [-p threads] [-v]
 */
#include MACROS /* posix/macros.h or kasane/macros.h, from the command line */

#include <float.h>
#include <math.h>

#include "nbody.h"

MAIN_ENV

enum { kPortion = 16 }; /* bodies whose pulls a thread computes at a time */

int bodies = 1024, threads = 4;
body* all_bodies;
cell* cells;
vector corner;
double side;

static int steps = 2, verbose = 0;
static const double time_step = 0.01;

struct box {
  vector low, high;
};
static struct {
  LOCKDEC(lock)
  BARDEC(all)
  GSDEC(parts)
  GSDEC(portions)
  int next_id;
  struct box box; /* of all bodies */
  double work;    /* in all steps */
  int cells;      /* of the last one */
} global;
static const struct box no_box = {{{DBL_MAX, DBL_MAX, DBL_MAX}}, {{-DBL_MAX, -DBL_MAX, -DBL_MAX}}};

static int first_body(int thread) { return (int)((long)bodies * thread / threads); }

static double scattered(uint32_t i, uint32_t what) {
  uint32_t x = i * 2654435761u ^ what * 2246822519u;
  x = (x ^ (x >> 15)) * 3266489917u;
  return (x ^ (x >> 13)) / 4294967296.0;
}
/* Two clouds that fly towards each other, denser in the middle. */
static void place(int b) {
  body* const it = &all_bodies[b];
  const double radius = scattered((uint32_t)b, 1), side_of = b % 2 ? 1 : -1;
  const double up = 2 * scattered((uint32_t)b, 2) - 1, turn = 2 * M_PI * scattered((uint32_t)b, 3);
  const double flat = sqrt(1 - up * up) * radius * radius;
  *it = (body){.mass = 1.0 / bodies};
  it->position = (vector){{flat * cos(turn) + 1.5 * side_of, flat * sin(turn), up * radius * radius}};
  it->velocity = (vector){{-0.2 * side_of, 0.1 * side_of, 0}};
}

static void find_box(int me) {
  struct box mine = no_box;
  for (int b = first_body(me); b < first_body(me + 1); ++b) {
    for (int d = 0; d < 3; ++d) {
      mine.low.x[d] = fmin(mine.low.x[d], all_bodies[b].position.x[d]);
      mine.high.x[d] = fmax(mine.high.x[d], all_bodies[b].position.x[d]);
    }
  }
  LOCK(global.lock)
  for (int d = 0; d < 3; ++d) {
    global.box.low.x[d] = fmin(global.box.low.x[d], mine.low.x[d]);
    global.box.high.x[d] = fmax(global.box.high.x[d], mine.high.x[d]);
  }
  UNLOCK(global.lock)
  BARRIER(global.all, threads)
  if (me == 0) {
    side = 0;
    for (int d = 0; d < 3; ++d) side = fmax(side, global.box.high.x[d] - global.box.low.x[d]);
    side *= 1.0001;
    corner = global.box.low;
    global.box = no_box;
  }
  BARRIER(global.all, threads)
}

static void make_tree(int me) {
  int part;
  tree_insert(me, first_body(me), first_body(me + 1));
  BARRIER(global.all, threads)
  for (;;) {
    GETSUB(global.parts, part, kParts - 1, threads)
    if (part < 0) break;
    tree_sum(part);
  }
  BARRIER(global.all, threads)
  if (me == 0) tree_close();
  BARRIER(global.all, threads)
}

static double pull_all(void) {
  const int portions = (bodies + kPortion - 1) / kPortion;
  double work = 0;
  for (;;) {
    int portion;
    GETSUB(global.portions, portion, portions - 1, threads)
    if (portion < 0) return work;
    for (int b = portion * kPortion; b < bodies && b < (portion + 1) * kPortion; ++b) {
      all_bodies[b].acceleration = tree_pull(b, &all_bodies[b].work);
      work += all_bodies[b].work;
    }
  }
}

static void move(int me) {
  for (int b = first_body(me); b < first_body(me + 1); ++b) {
    body* const it = &all_bodies[b];
    for (int d = 0; d < 3; ++d) {
      it->velocity.x[d] += time_step * it->acceleration.x[d];
      it->position.x[d] += time_step * it->velocity.x[d];
    }
  }
}

static void slave(void) {
  LOCK(global.lock)
  const int me = global.next_id++;
  UNLOCK(global.lock)
  for (int b = first_body(me); b < first_body(me + 1); ++b) place(b);
  BARRIER(global.all, threads)
  for (int s = 0; s < steps; ++s) {
    find_box(me);
    make_tree(me);
    const double work = pull_all();
    if (verbose) printf("step %d, thread %d: %.0f pulls\n", s, me, work);
    LOCK(global.lock)
    global.work += work;
    UNLOCK(global.lock)
    BARRIER(global.all, threads)
    if (me == 0) global.cells = tree_cells();
    move(me);
    BARRIER(global.all, threads)
  }
}

/* The sum of mass × velocity, which pulls of bodies on each other hardly change. */
static double momentum(int d) {
  double sum = 0;
  for (int b = 0; b < bodies; ++b) sum += all_bodies[b].mass * all_bodies[b].velocity.x[d];
  return sum;
}
static uint64_t checksum(void) {
  uint64_t sum = 0;
  for (int b = 0; b < bodies; ++b) {
    uint64_t bits[3];
    memcpy(bits, &all_bodies[b].position, sizeof bits);
    for (int d = 0; d < 3; ++d) sum = (sum ^ bits[d]) * 0x9e3779b97f4a7c15u;
  }
  return sum;
}

static void options(int argc, char** argv) {
  int c;
  while ((c = getopt(argc, argv, "n:s:p:v")) != -1) {
    switch (c) {
      case 'n': bodies = atoi(optarg); break;
      case 's': steps = atoi(optarg); break;
      case 'p': threads = atoi(optarg); break;
      case 'v': verbose = 1; break;
      default: fprintf(stderr, "usage: nbody [-n bodies] [-s steps] [-p threads] [-v]\n"); exit(2);
    }
  }
  if (bodies < 2 || steps < 1 || threads < 1 || threads > kMostBodyThreads) {
    fprintf(stderr, "nbody: two bodies and a step at least, 1 to %d threads\n", kMostBodyThreads);
    exit(2);
  }
}

int main(int argc, char** argv) {
  unsigned long start, end;
  MAIN_INITENV(, 40000000, )
  options(argc, argv);
  all_bodies = (body*)G_MALLOC((size_t)bodies * sizeof(body));
  tree_begin();
  LOCKINIT(global.lock)
  BARINIT(global.all, threads)
  GSINIT(global.parts)
  GSINIT(global.portions)
  global.box = no_box;

  CLOCK(start)
  CREATE(slave, threads)
  WAIT_FOR_END(threads)
  CLOCK(end)

  const double drift = fabs(momentum(0)) + fabs(momentum(1)) + fabs(momentum(2));
  const int good = drift < 1e-2;
  printf("time %lu us\n", end - start);
  printf("nbody: %d bodies, %d cells, %.0f pulls, checksum %016llx: %s\n", bodies, global.cells, global.work,
         (unsigned long long)checksum(), good ? "ok" : "FAILED");
  tree_end();
  G_FREE(all_bodies);
  if (!good) exit(1);
  MAIN_END
}
