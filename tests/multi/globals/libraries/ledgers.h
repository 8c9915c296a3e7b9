// SPDX-License-Identifier: Apache-2.0
// A C++ library that needs the library of names, also in its constructors and destructors.
#pragma once

#include <vector>

namespace ledgers {

extern std::vector<long> amounts;  ///< 65536 times 2, made before main
extern thread_local long of_worker;

void book(long index, long amount);
long balance();

}  // namespace ledgers
