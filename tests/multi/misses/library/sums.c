// SPDX-License-Identifier: Apache-2.0
// A library that only computes, and knows nothing of Kasane.
#include <stddef.h>
#include <stdint.h>
#include <string.h>

uint64_t library_sum(const uint64_t* first, size_t stride, size_t n) {
  uint64_t sum = 0;
  for (size_t i = 0; i < n; ++i) sum += first[i * stride];
  return sum;
}

/// Returns the first word. memcpy is not called last, which would be a jump from where the caller's call led.
uint64_t library_copy(uint64_t* to, const uint64_t* from, size_t bytes) {
  memcpy(to, from, bytes);
  return to[0];
}
