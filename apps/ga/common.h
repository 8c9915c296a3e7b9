/* SPDX-License-Identifier: Apache-2.0 */
/* What the applications in Global Arrays C share: a start, options of one letter with a number each, times,
 * and the JSON object that process 0 prints, which has the form of docs/guide/apps.md.
 * Thread safety: none needed; a process has one thread. */
#ifndef KASANE_APPS_GA_COMMON_H
#define KASANE_APPS_GA_COMMON_H

#include <ga.h>
#include <macdecls.h>
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { kMostRepetitions = 99 };

/* An option: its letter, where its value goes, the least value that makes sense, and what it means. */
typedef struct {
  char letter;
  long* value;
  long least;
  const char* what;
} option_t;

static int me, processes;

/* Collective: process 0 says why, and all end. */
static void give_up(const char* why) {
  if (me == 0) fprintf(stderr, "%s\n", why);
  GA_Terminate();
  MPI_Finalize();
  exit(2);
}

/* Starts the MPI, Global Arrays and MA, which gets ma_doubles of stack and heap each. */
static void start(int* argc, char*** argv, long ma_doubles) {
  MPI_Init(argc, argv);
  GA_Initialize();
  MA_init(C_DBL, ma_doubles, ma_doubles);
  me = GA_Nodeid(), processes = GA_Nnodes();
}

static void read_options(int argc, char** argv, const char* name, const option_t* options, int n) {
  char letters[64] = "", usage[1024];
  int length = snprintf(usage, sizeof usage, "usage: %s", name);
  for (int i = 0; i < n; ++i) {
    letters[2 * i] = options[i].letter, letters[2 * i + 1] = ':', letters[2 * i + 2] = 0;
    length += snprintf(usage + length, sizeof usage - (size_t)length, "\n  -%c %-8ld %s", options[i].letter,
                       *options[i].value, options[i].what);
  }
  opterr = 0;
  for (int letter; (letter = getopt(argc, argv, letters)) != -1;) {
    const option_t* found = NULL;
    for (int i = 0; i < n; ++i)
      if (options[i].letter == letter) found = &options[i];
    if (found == NULL) give_up(usage);
    char* end;
    *found->value = strtol(optarg, &end, 10);
    if (*end != 0 || *found->value < found->least) give_up(usage);
  }
  if (optind != argc) give_up(usage);
}

static double* doubles(long n) {
  double* p = malloc((size_t)n * sizeof *p);
  if (p == NULL) GA_Error("out of private memory", 0);
  return p;
}

static int compare_doubles(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return x < y ? -1 : x > y;
}

/* The largest of the processes' values. */
static double largest(double value) {
  char operation[] = "max";
  GA_Dgop(&value, 1, operation);
  return value;
}

/* Prints the object; returns the exit status. flops: of one repetition. */
static int report(const char* app, const char* parameters, double flops, const double* seconds, long runs,
                  double error, double most_error) {
  const int verified = error <= most_error; /* not if it is no number */
  double sorted[kMostRepetitions];
  memcpy(sorted, seconds, (size_t)runs * sizeof *sorted);
  qsort(sorted, (size_t)runs, sizeof *sorted, compare_doubles);
  const double median = sorted[runs / 2];
  if (me == 0) {
    printf("{\"app\": \"%s\", \"parameters\": {%s}, \"ranks\": %d, \"seconds\": %.6f, \"seconds_all\": [",
           app, parameters, processes, median);
    for (long r = 0; r < runs; ++r) printf("%s%.6f", r == 0 ? "" : ", ", seconds[r]);
    printf("], \"result\": {\"gigaflops\": %.4f, \"error\": %.3g}, \"verified\": %s}\n", flops / median / 1e9,
           error, verified ? "true" : "false");
    fflush(stdout);
  }
  return verified ? 0 : 1;
}

static int finish(int status) {
  GA_Terminate();
  MPI_Finalize();
  return status;
}

#endif
