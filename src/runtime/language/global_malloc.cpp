// SPDX-License-Identifier: Apache-2.0
#include "runtime/language/global_malloc.h"

#include <dlfcn.h>

#include "runtime/language/malloc/hooks.h"
#include "runtime/language/program_memory.h"
#include "runtime/rank/own_code.h"
#include "ult/pool.h"

namespace kasane::runtime {
namespace {

MallocHooks g_table;  // as constant as the runtime; the library keeps its address

AttachMalloc library() noexcept {
  return reinterpret_cast<AttachMalloc>(::dlsym(RTLD_DEFAULT, kAttachMallocName));
}

void* allocate(std::size_t bytes, std::size_t align, const void* site) {
  auto p = program_allocate(*Runtime::current(), bytes, align, Placement::local, site);
  return p ? *p : nullptr;
}
void release(void* p, const void* site) {
  if (Runtime* runtime = Runtime::current()) program_free(*runtime, p, site);
}
void* reallocate(void* p, std::size_t bytes, const void* site) {
  auto q = program_reallocate(*Runtime::current(), p, bytes, site);
  return q ? *q : nullptr;
}
std::size_t usable_size(const void* p) { return program_usable_size(*Runtime::current(), p); }
bool user_code() { return Runtime::current() != nullptr && ult::Pool::in_program(); }

}  // namespace

Result<void> attach_malloc(Runtime& runtime) {
  if (!runtime.options().malloc_in_space) return {};
  const AttachMalloc attach = library();
  if (attach == nullptr) {
    return fail(Errc::unsupported,
                std::string("--malloc space (KASANE_MALLOC): ") + kMallocLibrary +
                    " is not loaded; start the program by `kasane run`, or set LD_PRELOAD to it");
  }
  g_table = {reinterpret_cast<std::uintptr_t>(runtime.space_base()),
             runtime.options().space_bytes,
             user_code,
             is_code_of_program,
             allocate,
             release,
             reallocate,
             usable_size};
  attach(&g_table);
  return {};
}

void detach_malloc() noexcept {
  if (g_table.base == 0) return;
  if (const AttachMalloc attach = library()) attach(nullptr);
}

}  // namespace kasane::runtime
