/* SPDX-License-Identifier: Apache-2.0
 * The version of these headers; CMake reads it, too. Before 1.0 each minor version may change the interface
 * (CHANGELOG.md). The library's file name has major and minor, so that a program does not run with another
 * one than it was built for. */
#ifndef KASANE_VERSION_H
#define KASANE_VERSION_H

#define KASANE_VERSION_MAJOR 0
#define KASANE_VERSION_MINOR 2
#define KASANE_VERSION_PATCH 0

/** One number to compare: 0.2.0 is 200. */
#define KASANE_VERSION (KASANE_VERSION_MAJOR * 10000 + KASANE_VERSION_MINOR * 100 + KASANE_VERSION_PATCH)

#ifdef __cplusplus
extern "C"
#endif
    /** The version of the library that runs, as text ("0.2.0"). Any thread may ask. */
    const char*
    kasane_version(void);

#endif
