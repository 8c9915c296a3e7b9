// SPDX-License-Identifier: Apache-2.0
// A thread whose last act is a system call that waits: compilers turn it into a jump, so that it returns into
// the runtime. The thread that it waits for runs on the same worker.
#define _GNU_SOURCE
#include <fcntl.h>
#include <kasane/kasane.h>
#include <stdio.h>
#include <unistd.h>

struct Pipe {
  int ends[2];
  char got;
};

static void reads(void* p) {
  struct Pipe* pipe = *(struct Pipe**)p;
  (void)!read(pipe->ends[0], &pipe->got, 1);
}

static void writes(void* p) {
  struct Pipe* pipe = *(struct Pipe**)p;
  (void)!write(pipe->ends[1], "x", 1);
}

static kasane_thread_t fork_on(struct Pipe* pipe, void (*function)(void*)) {
  const kasane_allocated_t t = kasane_thread_allocate(8, sizeof pipe);
  *(struct Pipe**)t.argument = pipe;
  kasane_thread_fork(t, function);
  return t.id;
}

static void go(void* p) {
  struct Pipe* pipe = p;
  if (pipe2(pipe->ends, O_CLOEXEC) != 0) return;
  const kasane_thread_t reader = fork_on(pipe, reads), writer = fork_on(pipe, writes);
  kasane_thread_join(reader);
  kasane_thread_join(writer);
}

int main(void) {
  struct Pipe pipe = {{-1, -1}, 0};
  const int status = kasane_run(go, &pipe);
  puts(pipe.got == 'x' ? "right" : "wrong");
  return status != 0 || pipe.got != 'x';
}
