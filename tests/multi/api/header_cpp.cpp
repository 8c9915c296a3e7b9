// SPDX-License-Identifier: Apache-2.0
// kasane.hpp needs nothing before it.
#include <kasane/kasane.hpp>

static_assert(sizeof(kasane::mutex) == 8 && sizeof(kasane::thread) == 8);
