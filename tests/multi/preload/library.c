// SPDX-License-Identifier: Apache-2.0
// A library of a program that knows nothing of Kasane.
int of_library = 1;
int count_up(int* p);
int count_up(int* p) {
#ifdef KIND_lock
  return __atomic_add_fetch(p, 1, __ATOMIC_SEQ_CST);
#else
  return ++*p;
#endif
}
