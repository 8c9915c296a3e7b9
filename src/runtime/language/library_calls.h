// SPDX-License-Identifier: Apache-2.0
// What ranks share of libstdc++'s own: words among the variables of the executable (runtime/entry), and the
// functions of libstdc++ that libkasane.so defines (library_calls.cpp).
#pragma once

#include <pthread.h>

#include <array>
#include <cstdint>
#include <locale>

namespace kasane::runtime {

struct LibraryWords {
  /// For what libstdc++ guards by a mutex of each process. Recursive: the end of a facet may end a locale.
  pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
  /// Kinds of facets that libstdc++ has not numbered: the addresses of their ids, in the order of first use.
  std::array<std::uint64_t, 64> kinds{};
  std::uint64_t first_kind = 0;         ///< 0: no kind yet; the number of kinds[0], plus one
  std::uint64_t first_stream_word = 0;  ///< 0: none yet; of ios_base::xalloc
  std::uint32_t stream_words = 0;       ///< that follow the first
  /// Of the lists of iterators that -D_GLIBCXX_DEBUG keeps, by the address of the container.
  std::array<pthread_mutex_t, 64> iterator_locks = {};
};

/// Called once, before all constructors. Until then, and without it, libstdc++ has its own.
void share_library_words(LibraryWords&) noexcept;

/// libstdc++ has made one more reference to this locale by the CPU: it becomes one by the program's atomics.
/// Thread safety: any thread of the program.
void correct_count_of(const std::locale&) noexcept;

}  // namespace kasane::runtime
