divert(-1)
SPDX-License-Identifier: Apache-2.0
The macro file for suites that m4 expands. m4 leaves all macros to macros.h, which the compiler includes first
(-include), but for two: programs write these with and without a semicolon behind them.
define(G_MALLOC, `anl_allocate($1);')
define(NU_MALLOC, `anl_allocate($1);')
divert(0)dnl
