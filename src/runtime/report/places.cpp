// SPDX-License-Identifier: Apache-2.0
#include "runtime/report/places.h"

#include <ucontext.h>
#include <unwind.h>

#include <algorithm>
#include <array>
#include <cstddef>

#include "runtime/rank/own_code.h"
#include "runtime/rank/program_objects.h"
#include "traps/signal_dispatch.h"
#include "ult/pool.h"

namespace kasane::runtime {
namespace {

struct Program {
  std::array<AddressRange, 64> code{};  ///< the first `count`
  std::size_t count = 0;
  bool has_runtime = false;  ///< it was linked with the static library
  [[nodiscard]] bool holds(std::uintptr_t address) const noexcept {
    return std::any_of(code.begin(), code.begin() + static_cast<std::ptrdiff_t>(count),
                       [=](const AddressRange& range) { return range.holds(address); });
  }
};
constinit Program g_program;

constexpr int kMostFrames = 64;

struct Walk {
  int frames = 0;
  std::uintptr_t program = 0;  ///< the innermost frame of the program's objects
  std::uintptr_t other = 0;    ///< the innermost one outside of the runtime
};

_Unwind_Reason_Code visit_frame(_Unwind_Context* context, void* argument) {
  auto& walk = *static_cast<Walk*>(argument);
  const std::uintptr_t address = ::_Unwind_GetIP(context);
  if (address == 0 || ++walk.frames > kMostFrames) return _URC_END_OF_STACK;
  if (g_program.holds(address - 1)) {
    walk.program = address;
    return _URC_END_OF_STACK;
  }
  if (walk.other == 0 && !is_code_of_runtime(reinterpret_cast<const void*>(address))) walk.other = address;
  return _URC_NO_REASON;
}

/// Whether the instruction that ends there is a call: e8 with four bytes, or ff /2 with an operand.
bool follows_call(std::uintptr_t address) noexcept {
  const auto* const end = reinterpret_cast<const unsigned char*>(address);
  if (end[-5] == 0xE8) return true;
  for (int bytes = 2; bytes <= 7; ++bytes)
    if (end[-bytes] == 0xFF && (end[1 - bytes] & 0x38) == 0x10) return true;
  return false;
}

/// The place of a fault. The unwinder would touch the program's variables (the pointer to its personality
/// routine lies there), which may be absent, and a fault in a handler cannot be served. So of a fault in a
/// library, such as memcpy's, the return address is looked for: the first word that can be one.
[[gnu::no_sanitize("address")]] std::uintptr_t place_of_fault(const void* ucontext) noexcept {
  constexpr std::uintptr_t kNear = 1024, kStacks = 64 * 1024;  // no stack ends between two multiples
  const auto& machine = static_cast<const ucontext_t*>(ucontext)->uc_mcontext;
#if defined(__x86_64__)
  const auto code = static_cast<std::uintptr_t>(machine.gregs[REG_RIP]),
             sp = static_cast<std::uintptr_t>(machine.gregs[REG_RSP]);
  if (g_program.holds(code)) return code + 1;
  const std::uintptr_t end = std::min(sp + kNear, (sp | (kStacks - 1)) + 1);
  for (std::uintptr_t at = sp; at < end; at += sizeof at) {
    const std::uintptr_t word = *reinterpret_cast<const std::uintptr_t*>(at);
    if (g_program.holds(word - 7) && follows_call(word)) return word;
  }
  return code + 1;
#else
  return machine.pc + 1;
#endif
}

}  // namespace

void know_program() {
  g_program.count = 0;
  for (const Image& image : program_images()) {
    for (const auto& header : image.headers) {
      if (header.p_type != PT_LOAD || (header.p_flags & PF_X) == 0) continue;
      if (g_program.count == g_program.code.size()) return;
      const std::uintptr_t begin = image.base + header.p_vaddr;
      g_program.code[g_program.count++] = {begin, begin + header.p_memsz};
    }
  }
  g_program.has_runtime = g_program.holds(reinterpret_cast<std::uintptr_t>(&know_program));
}

std::uintptr_t place_in_program() noexcept {
  if (const void* const fault = traps::faulting_context()) return place_of_fault(fault);
  if (g_program.has_runtime || ult::Pool::self() == kNoSlot) return 0;
  Walk walk;
  ::_Unwind_Backtrace(visit_frame, &walk);
  return walk.program != 0 ? walk.program : walk.other;
}

}  // namespace kasane::runtime
