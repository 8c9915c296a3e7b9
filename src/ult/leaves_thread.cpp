// SPDX-License-Identifier: Apache-2.0
#include "ult/leaves_thread.h"

#include <unwind.h>

#include <typeinfo>

#include "base/throw_site.h"

namespace kasane::ult {
namespace {

#if !defined(KASANE_SANITIZER_ADDRESS) && !defined(KASANE_SANITIZER_THREAD)
_Unwind_Reason_Code add_frame(_Unwind_Context* context, void* argument) {
  auto& site = *static_cast<ThrowSite*>(argument);
  if (site.count == ThrowSite::kMost) return _URC_END_OF_STACK;
  site.frames[site.count++] = ::_Unwind_GetIP(context);
  return _URC_NO_REASON;
}

void note(const std::type_info& type, void* object) noexcept {
  if (object == nullptr || type.__is_pointer_p()) return;  // a pointer's object is not the exception
  ThrowSite& site = *throw_site_of(object);
  if (site.magic == ThrowSite::kMagic && site.count == 0) ::_Unwind_Backtrace(add_frame, &site);
}
#else  // exceptions are the sanitizer's
void note(const std::type_info&, void*) noexcept {}
#endif

}  // namespace

class LeavesThreadType final : public std::type_info {
 public:
  LeavesThreadType() : std::type_info("N6kasane3ult12LeavesThreadE") {}
  bool __do_catch(const std::type_info* thrown, void** object, unsigned) const override {
    note(*thrown, *object);
    return false;
  }
};

/// What the compiler names in place of typeid(LeavesThread).
[[gnu::visibility("hidden")]] extern const LeavesThreadType leaves_thread asm(
    "_ZTIN6kasane3ult12LeavesThreadE");
const LeavesThreadType leaves_thread;

}  // namespace kasane::ult
