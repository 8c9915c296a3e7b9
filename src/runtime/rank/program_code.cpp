// SPDX-License-Identifier: Apache-2.0
#include "runtime/rank/program_code.h"

#include <dlfcn.h>

#include <cstddef>

#include "runtime/rank/own_code.h"

namespace kasane::runtime {
namespace {

/// About as long are glibc's functions that copy, with what they jump to. They push nothing, so the caller's
/// address is on top of the stack. Code behind them that is not one of them has something else there.
constexpr std::size_t kBytesOfCopy = 2048;

}  // namespace

void ProgramCode::find() {
  ranges_.clear();
  copies_ = {};
  std::vector<Image> images = program_images();
  images.insert(images.end(), computing_images().begin(), computing_images().end());
  for (const Image& image : images) {
    for (const ElfW(Phdr) & part : image.headers) {
      if (part.p_type != PT_LOAD || (part.p_flags & PF_X) == 0) continue;
      const std::uintptr_t begin = image.base + part.p_vaddr;
      const AddressRange range{begin, begin + part.p_memsz};
      if (!range.holds(reinterpret_cast<std::uintptr_t>(&is_code_of_runtime))) ranges_.push_back(range);
    }
  }
  std::size_t n = 0;
  for (const char* const name : {"memcpy", "memmove", "memset", "memcmp"}) {
    const auto at = reinterpret_cast<std::uintptr_t>(::dlsym(RTLD_DEFAULT, name));
    if (at != 0) copies_[n++] = {at, at + kBytesOfCopy};
  }
}

/// Does it follow an instruction of the program's that calls a named function?
bool ProgramCode::is_call(std::uintptr_t return_address) const noexcept {
  constexpr std::size_t kLongest = 6;
  if (!holds(return_address - kLongest) || !holds(return_address)) return false;
  const auto* const behind = reinterpret_cast<const unsigned char*>(return_address);
  return behind[-5] == 0xe8 || (behind[-6] == 0xff && behind[-5] == 0x15);
}

}  // namespace kasane::runtime
