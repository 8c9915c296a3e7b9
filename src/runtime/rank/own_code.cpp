// SPDX-License-Identifier: Apache-2.0
#include "runtime/rank/own_code.h"

#include <link.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

// Where this library's code lies.
extern "C" [[gnu::visibility("hidden")]] const char __ehdr_start, etext;

namespace kasane::runtime {
namespace {

constinit std::array<AddressRange, 64> g_added = {};
constinit std::size_t g_ranges = 0;

}  // namespace

bool is_code_of_runtime(const void* code) noexcept {
  return reinterpret_cast<std::uintptr_t>(code) - reinterpret_cast<std::uintptr_t>(&__ehdr_start) <
         static_cast<std::uintptr_t>(&etext - &__ehdr_start);
}

void add_code_of_program(AddressRange range) noexcept {
  if (g_ranges < g_added.size()) g_added[g_ranges++] = range;
}

bool is_code_of_program(const void* code) noexcept {
  struct Search {
    std::uintptr_t code;
    bool found;
  } search{reinterpret_cast<std::uintptr_t>(code), false};
  ::dl_iterate_phdr(
      [](dl_phdr_info* object, std::size_t, void* p) {  // the executable is the first
        auto& s = *static_cast<Search*>(p);
        for (int i = 0; i < object->dlpi_phnum; ++i) {
          const auto& part = object->dlpi_phdr[i];
          s.found |= part.p_type == PT_LOAD && s.code - object->dlpi_addr - part.p_vaddr < part.p_memsz;
        }
        return 1;
      },
      &search);
  return search.found || std::any_of(g_added.begin(), g_added.begin() + g_ranges,
                                     [&](const AddressRange& r) { return r.holds(search.code); });
}

}  // namespace kasane::runtime
