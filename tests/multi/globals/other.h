// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace other {
extern long total;
void add(long);
}  // namespace other
