/* SPDX-License-Identifier: Apache-2.0 */
/* The tree of nbody. The two levels below the root always exist; each of the 64 cubes of the second has a
 * tree of its own, a lock and a stock of cells. A thread sorts its bodies by cube and puts them into one tree
 * after another, each under its lock. What tree results depends on the bodies alone, not on their order,
 * since a leaf is one body.
 */
#include MACROS

#include <math.h>

#include "nbody.h"

EXTERN_ENV

enum { kDeepest = 48 };
static const double opening =
    0.7; /* a cube that is less than so many times its distance wide acts as a point */
static const double softening = 1e-3;

static struct {
  ALOCKDEC(lock, kParts) /* of each part's tree and stock */
  int stock;             /* cells of a part */
  int used[kParts];
  int sorted_room;
} tree;
static int* sorted[kMostBodyThreads]; /* each thread's bodies, by part */
static cell root, middle[8];          /* root's part is a part of its own; middle[i].part, of those below */

void tree_begin(void) {
  ALOCKINIT(tree.lock, kParts)
  tree.stock = bodies + 64; /* whatever the distribution is: cells of bodies that are apart are fewer */
  tree.sorted_room = bodies / threads + 1;
  cells = G_MALLOC((size_t)kParts * (size_t)tree.stock * sizeof *cells);
  for (int i = 0; i < threads; ++i) sorted[i] = G_MALLOC((size_t)tree.sorted_room * sizeof **sorted);
}
void tree_end(void) {
  for (int i = 0; i < threads; ++i) G_FREE(sorted[i]);
  G_FREE(cells);
}

static cell* first_cell(int part) { return cells + (size_t)part * (size_t)tree.stock; }

/* Which of the 4 x 4 x 4 cubes `p` is in: the eighth of the root, and the eighth of that. */
static int part_of(const vector* p) {
  int high = 0, low = 0;
  for (int d = 0; d < 3; ++d) {
    int at = (int)((p->x[d] - corner.x[d]) / side * 4);
    at = at < 0 ? 0 : at > 3 ? 3 : at;
    high |= (at >> 1) << d;
    low |= (at & 1) << d;
  }
  return high * 8 + low;
}
static vector corner_of(int part) {
  vector c = corner;
  for (int d = 0; d < 3; ++d) c.x[d] += ((part >> 3 >> d & 1) * 2 + (part >> d & 1)) * (side / 4);
  return c;
}
/* The eighth of a cube with this corner and side where `p` is; the corner becomes that of the eighth. */
static int eighth(const vector* p, vector* c, double half) {
  int which = 0;
  for (int d = 0; d < 3; ++d) {
    if (p->x[d] >= c->x[d] + half) {
      which |= 1 << d;
      c->x[d] += half;
    }
  }
  return which;
}

static int32_t new_cell(int part, double its_side) {
  if (tree.used[part] == tree.stock) {
    fprintf(stderr, "nbody: part %d has no cell left\n", part);
    exit(1);
  }
  const int32_t index = tree.used[part]++;
  first_cell(part)[index] = (cell){.side = its_side};
  return index;
}

/* Under the part's lock. */
static void insert(int part, int b) {
  cell* const of_part = first_cell(part);
  vector at = corner_of(part);
  double half = side / 8;
  int32_t now = 0;
  for (int depth = 0; depth < kDeepest; ++depth, half /= 2) {
    const int which = eighth(&all_bodies[b].position, &at, half);
    int32_t* const place = &of_part[now].part[which];
    if (*place == 0) {
      *place = b + 1;
      return;
    }
    if (*place > 0) { /* a body: it goes into a new cell, and this one after it */
      const int other = *place - 1;
      vector unused = at;
      const int32_t added = new_cell(part, half);
      of_part[added].part[eighth(&all_bodies[other].position, &unused, half / 2)] = other + 1;
      *place = -(added + 1);
    }
    now = -*place - 1;
  }
  fprintf(stderr, "nbody: bodies at the same place\n");
  exit(1);
}

void tree_insert(int me, int from, int to) {
  int end[kParts] = {0};
  for (int b = from; b < to; ++b) ++end[part_of(&all_bodies[b].position)];
  for (int p = 1; p < kParts; ++p) end[p] += end[p - 1];
  int next[kParts];
  for (int p = 0; p < kParts; ++p) next[p] = p == 0 ? 0 : end[p - 1];
  for (int b = from; b < to; ++b) sorted[me][next[part_of(&all_bodies[b].position)]++] = b;
  for (int i = 0; i < kParts; ++i) {
    const int p = (i + me * (kParts / threads)) % kParts; /* each thread begins elsewhere */
    const int begin = p == 0 ? 0 : end[p - 1];
    if (begin == end[p]) continue;
    ALOCK(tree.lock, p)
    if (tree.used[p] == 0) new_cell(p, side / 4);
    for (int at = begin; at < end[p]; ++at) insert(p, sorted[me][at]);
    AULOCK(tree.lock, p)
  }
}

static void add(cell* to, double mass, const vector* at) {
  to->mass += mass;
  for (int d = 0; d < 3; ++d) to->centre.x[d] += mass * at->x[d];
}
static void finish(cell* c) {
  if (c->mass > 0)
    for (int d = 0; d < 3; ++d) c->centre.x[d] /= c->mass;
}
static void sum_up(int part, int32_t index) {
  cell* const c = first_cell(part) + index;
  c->mass = 0;
  c->centre = (vector){{0, 0, 0}};
  for (int i = 0; i < 8; ++i) {
    if (c->part[i] > 0) {
      const body* const b = &all_bodies[c->part[i] - 1];
      add(c, b->mass, &b->position);
    } else if (c->part[i] < 0) {
      const int32_t below = -c->part[i] - 1;
      sum_up(part, below);
      add(c, first_cell(part)[below].mass, &first_cell(part)[below].centre);
    }
  }
  finish(c);
}
void tree_sum(int part) {
  if (tree.used[part] > 0) sum_up(part, 0);
}
void tree_close(void) {
  root = (cell){.side = side};
  for (int i = 0; i < 8; ++i) {
    middle[i] = (cell){.side = side / 2};
    for (int j = 0; j < 8; ++j) {
      const int part = i * 8 + j;
      if (tree.used[part] > 0) add(&middle[i], first_cell(part)->mass, &first_cell(part)->centre);
    }
    finish(&middle[i]);
    add(&root, middle[i].mass, &middle[i].centre);
  }
  finish(&root);
}
int tree_cells(void) {
  int n = 0;
  for (int p = 0; p < kParts; ++p) {
    n += tree.used[p];
    tree.used[p] = 0;
  }
  return n;
}

struct pull {
  int of;
  vector at, sum;
  double work;
};
static void act(struct pull* p, double mass, const vector* from) {
  vector d;
  double square = softening;
  for (int i = 0; i < 3; ++i) {
    d.x[i] = from->x[i] - p->at.x[i];
    square += d.x[i] * d.x[i];
  }
  const double factor = mass / (square * sqrt(square));
  for (int i = 0; i < 3; ++i) p->sum.x[i] += factor * d.x[i];
  p->work += 1;
}
static int far_away(const struct pull* p, const cell* c) {
  double square = 0;
  for (int i = 0; i < 3; ++i) square += (c->centre.x[i] - p->at.x[i]) * (c->centre.x[i] - p->at.x[i]);
  return c->side * c->side < opening * opening * square;
}
static void pull_of_cell(struct pull* p, int part, int32_t index) {
  const cell* const c = first_cell(part) + index;
  if (far_away(p, c)) {
    act(p, c->mass, &c->centre);
    return;
  }
  for (int i = 0; i < 8; ++i) {
    if (c->part[i] < 0) {
      pull_of_cell(p, part, -c->part[i] - 1);
    } else if (c->part[i] > 0 && c->part[i] - 1 != p->of) {
      act(p, all_bodies[c->part[i] - 1].mass, &all_bodies[c->part[i] - 1].position);
    }
  }
}
vector tree_pull(int of, double* work) {
  struct pull p = {.of = of, .at = all_bodies[of].position};
  for (int i = 0; i < 8; ++i) {
    if (middle[i].mass == 0) continue;
    if (far_away(&p, &middle[i])) {
      act(&p, middle[i].mass, &middle[i].centre);
      continue;
    }
    for (int part = i * 8; part < i * 8 + 8; ++part)
      if (tree.used[part] > 0) pull_of_cell(&p, part, 0);
  }
  *work = p.work;
  return p.sum;
}
