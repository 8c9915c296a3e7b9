// SPDX-License-Identifier: Apache-2.0
// The types of ARMCI_Acc as elements of kasane_accumulate.
//
// A complex accumulate is one of its parts: real scales are the scale of each part, and sources are
// multiplied here by others. So an element need not lie in one page, nor be aligned to its own size: Global
// Arrays aligns complex arrays to their parts only. Sources are also multiplied here by scales that no
// double holds. Pure.
#pragma once

#include <kasane/kasane.h>
#include <complex>
#include <cstddef>
#include <cstring>

#include "armci/header.h"

namespace kasane::armci {

struct Scale {
  kasane_element_t element = KASANE_DOUBLE;  ///< what is accumulated
  std::size_t element_bytes = 8;             ///< its size
  std::size_t type_bytes = 8;                ///< of the ARMCI type
  double factor = 1;
  bool multiply_first = false;  ///< `factor` is 1, and multiplied() makes the source
  bool known = true;            ///< false: no such type
};

namespace scale_of {

template <class T>
T value(const void* scale) noexcept {
  T v;
  std::memcpy(&v, scale, sizeof v);
  return v;
}

template <class T>
void multiply(char* to, const char* from, std::size_t bytes, const void* scale) noexcept {
  const T s = value<T>(scale);
  for (std::size_t i = 0; i + sizeof(T) <= bytes; i += sizeof(T)) {
    const T product = value<T>(from + i) * s;
    std::memcpy(to + i, &product, sizeof product);
  }
}

template <class T>
Scale complex(const void* scale, kasane_element_t part) noexcept {
  const auto s = value<std::complex<T>>(scale);
  const bool real = s.imag() == 0;
  return {part, sizeof(T), 2 * sizeof(T), real ? static_cast<double>(s.real()) : 1.0, !real};
}

inline Scale whole(long s) noexcept {
  constexpr long kExact = 1L << 53;
  const bool fits = -kExact <= s && s <= kExact;
  return {KASANE_INT64, 8, 8, fits ? static_cast<double>(s) : 1.0, !fits};
}

}  // namespace scale_of

inline Scale scale_for(int type, const void* scale) noexcept {
  switch (type) {
    case ARMCI_ACC_INT: return {KASANE_INT32, 4, 4, static_cast<double>(scale_of::value<int>(scale))};
    case ARMCI_ACC_LNG: return scale_of::whole(scale_of::value<long>(scale));
    case ARMCI_ACC_FLT: return {KASANE_FLOAT, 4, 4, static_cast<double>(scale_of::value<float>(scale))};
    case ARMCI_ACC_DBL: return {KASANE_DOUBLE, 8, 8, scale_of::value<double>(scale)};
    case ARMCI_ACC_CPL: return scale_of::complex<float>(scale, KASANE_FLOAT);
    case ARMCI_ACC_DCP: return scale_of::complex<double>(scale, KASANE_DOUBLE);
    default: return {.known = false};
  }
}

/// to = scale * from, as elements of the ARMCI type.
inline void multiplied(int type, const void* scale, char* to, const char* from, std::size_t bytes) noexcept {
  switch (type) {
    case ARMCI_ACC_INT: return scale_of::multiply<unsigned>(to, from, bytes, scale);
    case ARMCI_ACC_LNG: return scale_of::multiply<unsigned long>(to, from, bytes, scale);
    case ARMCI_ACC_FLT: return scale_of::multiply<float>(to, from, bytes, scale);
    case ARMCI_ACC_DBL: return scale_of::multiply<double>(to, from, bytes, scale);
    case ARMCI_ACC_CPL: return scale_of::multiply<std::complex<float>>(to, from, bytes, scale);
    default: return scale_of::multiply<std::complex<double>>(to, from, bytes, scale);
  }
}

/// to += scale * from on private memory.
template <class T>
void add_here(char* to, const char* from, std::size_t bytes, const void* scale) noexcept {
  const T s = scale_of::value<T>(scale);
  for (std::size_t i = 0; i + sizeof(T) <= bytes; i += sizeof(T)) {
    const T sum = scale_of::value<T>(to + i) + scale_of::value<T>(from + i) * s;
    std::memcpy(to + i, &sum, sizeof sum);
  }
}

inline void added_here(int type, const void* scale, char* to, const char* from, std::size_t bytes) noexcept {
  switch (type) {
    case ARMCI_ACC_INT: return add_here<unsigned>(to, from, bytes, scale);
    case ARMCI_ACC_LNG: return add_here<unsigned long>(to, from, bytes, scale);
    case ARMCI_ACC_FLT: return add_here<float>(to, from, bytes, scale);
    case ARMCI_ACC_DBL: return add_here<double>(to, from, bytes, scale);
    case ARMCI_ACC_CPL: return add_here<std::complex<float>>(to, from, bytes, scale);
    default: return add_here<std::complex<double>>(to, from, bytes, scale);
  }
}

}  // namespace kasane::armci
