// SPDX-License-Identifier: Apache-2.0
// The count of an exception object, which std::exception_ptr shares. libstdc++.so changes it by the CPU, so
// another rank's copy of the object would be changed. Here are the functions that do so, defined again with
// the program's atomics (runtime/language/atomics.h); libstdc++ calls them through its table of addresses.
//
//   count −128 | type −112 | destructor −104 | … | unwinder's class −32 | its cleanup −24 | object 0
//
// (__cxa_refcounted_exception of libstdc++ on 64-bit targets.) A thrown object's cleanup, which a catch block
// calls at its end, is replaced when the object gets its first exception_ptr, by the only thread that knows
// it.
//
// Thread safety: as exception_ptr.
#if !defined(KASANE_SANITIZER_ADDRESS) && !defined(KASANE_SANITIZER_THREAD)

#include <cxxabi.h>
#include <unwind.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>

#include "runtime/language/atomics.h"

namespace {

/// An exception that rethrow_exception throws: it refers to the object. As libstdc++ has it.
struct Dependent {
  void* primary;
  void* padding;
  std::terminate_handler unexpected, terminate;
  void* next;
  int handlers, switch_value;
  const unsigned char *action, *language_data;
  std::uintptr_t catch_temporary;
  void* adjusted;
  _Unwind_Exception unwinder;
};
static_assert(sizeof(Dependent) == 112);
struct Globals {
  void* caught;
  unsigned uncaught;
};
constexpr std::uint64_t kDependentClass = 0x474E5543432B2B01;  // "GNUCC++" 1

[[nodiscard]] std::byte* count_of(void* object) noexcept { return static_cast<std::byte*>(object) - 128; }

void release(void* object) noexcept {
  if (kasane::runtime::add_atomic(count_of(object), -1) != 1) return;
  void (*destructor)(void*);
  std::memcpy(&destructor, static_cast<std::byte*>(object) - 104, sizeof destructor);
  if (destructor != nullptr) destructor(object);
  abi::__cxa_free_exception(object);
}

void end_primary(_Unwind_Reason_Code reason, _Unwind_Exception* unwinder) noexcept {
  if (reason != _URC_FOREIGN_EXCEPTION_CAUGHT && reason != _URC_NO_REASON) std::terminate();
  release(unwinder + 1);
}

void end_dependent(_Unwind_Reason_Code reason, _Unwind_Exception* unwinder) noexcept {
  if (reason != _URC_FOREIGN_EXCEPTION_CAUGHT && reason != _URC_NO_REASON) std::terminate();
  auto* const dependent = reinterpret_cast<Dependent*>(unwinder + 1) - 1;
  void* const object = dependent->primary;
  abi::__cxa_free_dependent_exception(reinterpret_cast<abi::__cxa_dependent_exception*>(dependent));
  release(object);
}

}  // namespace

extern "C" {

// std::__exception_ptr::exception_ptr::_M_addref() and _M_release(); std::rethrow_exception(exception_ptr),
// whose argument is passed by its address.
void kasane_exception_addref(void** pointer) noexcept
    asm("_ZNSt15__exception_ptr13exception_ptr9_M_addrefEv");
void kasane_exception_addref(void** pointer) noexcept {
  void* const object = *pointer;
  if (object == nullptr) return;
  auto* const unwinder = static_cast<_Unwind_Exception*>(object) - 1;
  if (unwinder->exception_cleanup != end_primary) unwinder->exception_cleanup = end_primary;
  kasane::runtime::add_atomic(count_of(object), 1);
}

void kasane_exception_release(void** pointer) noexcept
    asm("_ZNSt15__exception_ptr13exception_ptr10_M_releaseEv");
void kasane_exception_release(void** pointer) noexcept {
  void* const object = *pointer;
  if (object == nullptr) return;
  *pointer = nullptr;
  release(object);
}

[[noreturn]] void kasane_rethrow_exception(void** pointer) asm(
    "_ZSt17rethrow_exceptionNSt15__exception_ptr13exception_ptrE");
void kasane_rethrow_exception(void** pointer) {
  auto* const dependent = reinterpret_cast<Dependent*>(abi::__cxa_allocate_dependent_exception());
  dependent->primary = *pointer;
  kasane::runtime::add_atomic(count_of(*pointer), 1);
  dependent->unexpected = dependent->terminate = std::get_terminate();
  dependent->unwinder.exception_class = kDependentClass;
  dependent->unwinder.exception_cleanup = end_dependent;
  ++reinterpret_cast<Globals*>(abi::__cxa_get_globals())->uncaught;
  _Unwind_RaiseException(&dependent->unwinder);
  // No handler.
  abi::__cxa_begin_catch(&dependent->unwinder);
  std::terminate();
}

}  // extern "C"

#endif
