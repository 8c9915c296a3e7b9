/* SPDX-License-Identifier: Apache-2.0 */
/* What the two files of nbody share. */
#ifndef EXAMPLES_PTHREADS_NBODY_H
#define EXAMPLES_PTHREADS_NBODY_H

enum { kParts = 64, kMostBodyThreads = 256 }; /* parts of the root's cube, 4 x 4 x 4; each has a tree */

typedef struct {
  double x[3];
} vector;

typedef struct body {
  double mass;
  vector position, velocity, acceleration;
  double work; /* bodies and cells that acted on it in the last step */
} body;

/* A cube. Its eight parts are empty (0), a body (index + 1) or a cell (-(index + 1)). */
typedef struct cell {
  double mass;
  vector centre; /* of mass */
  double side;
  int32_t part[8];
} cell;

/* What all threads share. The cells of part p of the root are cells[first_cell[p]] and those behind it. */
extern int bodies, threads;
extern body* all_bodies;
extern cell* cells;
extern vector corner; /* the root's lowest one */
extern double side;   /* the root's */

void tree_begin(void);                      /* main: makes room */
void tree_end(void);                        /* main */
void tree_insert(int me, int from, int to); /* bodies of that range; then a barrier */
void tree_sum(int part);                    /* masses and centres of one part; then a barrier */
void tree_close(void);                      /* one thread: those of the root; then a barrier */
vector tree_pull(int of, double* work);
int tree_cells(void);

#endif
