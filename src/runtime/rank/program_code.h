// SPDX-License-Identifier: Apache-2.0
// Where the program's code lies: its executable's, and that of the libraries that --globals-of and --code-of
// name. A thread whose access there has to wait holds no lock of a library's; nor does one in memcpy and its
// like that this code has called.
// Thread safety: find() before other threads exist; runs() from any thread, also in a handler.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "runtime/rank/program_objects.h"

namespace kasane::runtime {

class ProgramCode {
 public:
  /// None, where the executable has the runtime linked in.
  void find();
  /// Does a thread run it, with this instruction and stack pointer?
  [[nodiscard]] bool runs(std::uintptr_t instruction, std::uintptr_t stack_pointer) const noexcept {
    if (holds(instruction)) return true;
    for (const AddressRange& copies : copies_)
      if (copies.holds(instruction)) return is_call(*reinterpret_cast<const std::uintptr_t*>(stack_pointer));
    return false;
  }

 private:
  [[nodiscard]] bool holds(std::uintptr_t instruction) const noexcept {
    for (const AddressRange& range : ranges_)
      if (range.holds(instruction)) return true;
    return false;
  }
  [[nodiscard]] bool is_call(std::uintptr_t return_address) const noexcept;

  std::vector<AddressRange> ranges_;
  std::array<AddressRange, 4> copies_;
};

}  // namespace kasane::runtime
