/* SPDX-License-Identifier: Apache-2.0 */
/* What foreign.cpp loads in main. */
int kasane_foreign_twice(int x);
int kasane_foreign_twice(int x) { return 2 * x; }
