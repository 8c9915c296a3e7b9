// SPDX-License-Identifier: Apache-2.0
// Headers of .npy files. What is read is written and read again, with the same result.
#include "arrays/npy_header.h"

#include "fuzz.h"

using namespace kasane::arrays;
using kasane::fuzz::expect;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  const std::string_view all(reinterpret_cast<const char*>(bytes), size);
  const std::size_t header = npy_header_bytes(all.substr(0, kNpyPrefix));
  NpyHeader h;
  // The file is shorter, or it is no .npy file: the text may still be a dictionary.
  if (!parse_npy(header == 0 || header > size ? all : all.substr(0, header), h)) return 0;
  // A type of NumPy's has no quotes, and is none of the keys; who reads an array refuses others.
  if (h.type.find_first_of("'\"\\") != std::string::npos) return 0;
  for (const char* key : {"descr", "fortran_order", "shape"})
    if (h.type == key) return 0;
  const std::string text = npy_text(h);
  expect(npy_header_bytes(text) == text.size(), "the length of a header that was written");
  expect(text.size() % 64 == 0, "the data begin at a multiple of 64");
  NpyHeader again;
  expect(parse_npy(text, again), "a header that was written is read");
  expect(again.type == h.type && again.extents == h.extents && again.fortran_order == h.fortran_order,
         "a header that was written says the same");
  return 0;
}
