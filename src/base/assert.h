// SPDX-License-Identifier: Apache-2.0
// Two levels of assertion. KASANE_CHECK: in every build, against loss of data. KASANE_ASSERT: in debug builds
// (KASANE_ASSERT_LEVEL 1). A failure prints the expression, both operands of a comparison (KASANE_CHECK_OP),
// file and line, the rank and thread, and aborts. It neither allocates nor takes a lock, so it may fail
// anywhere, also in a fault handler.
#pragma once

#include <cstdint>

#ifndef KASANE_ASSERT_LEVEL
#ifdef NDEBUG
#define KASANE_ASSERT_LEVEL 0
#else
#define KASANE_ASSERT_LEVEL 1
#endif
#endif

namespace kasane {
[[noreturn, gnu::cold, gnu::noinline]] void check_failed(const char* expr, const char* file, int line,
                                                         const char* hint = nullptr) noexcept;
[[noreturn, gnu::cold, gnu::noinline]] void check_op_failed(const char* expr, const char* file, int line,
                                                            std::uint64_t left, std::uint64_t right) noexcept;
}  // namespace kasane

#define KASANE_CHECK(cond, ...) \
  ((cond) ? (void)0 : ::kasane::check_failed(#cond, __FILE__, __LINE__ __VA_OPT__(, ) __VA_ARGS__))
#define KASANE_CHECK_OP(a, op, b)                                                                    \
  (((a)op(b)) ? (void)0                                                                              \
              : ::kasane::check_op_failed(#a " " #op " " #b, __FILE__, __LINE__, (std::uint64_t)(a), \
                                          (std::uint64_t)(b)))
#if KASANE_ASSERT_LEVEL >= 1
#define KASANE_ASSERT(cond, ...) KASANE_CHECK(cond __VA_OPT__(, ) __VA_ARGS__)
#else
#define KASANE_ASSERT(cond, ...) ((void)sizeof(!(cond)))
#endif
