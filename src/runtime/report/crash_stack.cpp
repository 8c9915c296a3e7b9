// SPDX-License-Identifier: Apache-2.0
// Frames come from the unwinder (it knows code without frame pointers, and the signal frame); where it fails,
// as after a jump to a wild address, from the chain of frame pointers, read by a system call that fails on a
// bad address instead of faulting. Names come from the ELF symbol table of the object's file: the dynamic
// symbols that dladdr(3) knows lack most functions of a program, and dladdr takes the loader's lock.
#include "runtime/report/crash_stack.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <setjmp.h>
#include <sys/uio.h>
#include <ucontext.h>
#include <unistd.h>
#include <unwind.h>

#include <cstring>

#include "base/call_selector.h"
#include "base/throw_site.h"
#include "runtime/rank/symbols.h"

namespace kasane::runtime {
namespace {

// ---- frames ----

/// False: there is no room for more.
bool add(Backtrace& trace, std::uintptr_t address, bool exact) noexcept {
  if (trace.count > 0 && trace.frames[trace.count - 1].address == address) {
    ++trace.frames[trace.count - 1].times;
    return true;
  }
  if (trace.count == kMaxFrames) return false;
  trace.frames[trace.count++] = {address, exact, 1};
  return true;
}

_Unwind_Reason_Code visit(_Unwind_Context* context, void* argument) {
  auto& trace = *static_cast<Backtrace*>(argument);
  int exact = 0;
  const std::uintptr_t address = ::_Unwind_GetIPInfo(context, &exact);
  if (exact != 0) {
    trace.count = 0;  // the frames below are the handler's
    trace.stack_pointer = ::_Unwind_GetCFA(context);
  }
  return address != 0 && add(trace, address, exact != 0) ? _URC_NO_REASON : _URC_END_OF_STACK;
}

bool read_memory(std::uintptr_t from, void* to, std::size_t bytes) noexcept {
  const iovec local{to, bytes};
  const iovec remote{reinterpret_cast<void*>(from), bytes};  // NOLINT: an address that may be anything
  return ::process_vm_readv(::getpid(), &local, 1, &remote, 1, 0) == static_cast<ssize_t>(bytes);
}

struct Registers {
  std::uintptr_t pc = 0, sp = 0, fp = 0;
};

Registers registers_of(const void* context) noexcept {
  [[maybe_unused]] const auto& machine = static_cast<const ucontext_t*>(context)->uc_mcontext;
#if defined(__x86_64__)
  return {static_cast<std::uintptr_t>(machine.gregs[REG_RIP]),
          static_cast<std::uintptr_t>(machine.gregs[REG_RSP]),
          static_cast<std::uintptr_t>(machine.gregs[REG_RBP])};
#elif defined(__aarch64__)
  return {machine.pc, machine.sp, machine.regs[29]};
#else
  return {};
#endif
}

bool object_of(std::uintptr_t address, dl_find_object& object) noexcept {
  return ::_dl_find_object(reinterpret_cast<void*>(address), &object) == 0;  // NOLINT: any address
}

void follow(const Registers& r, Backtrace& trace) noexcept {
  trace.count = 0;
  trace.stack_pointer = r.sp;
  add(trace, r.pc, true);
  std::uintptr_t fp = r.fp;
  dl_find_object object;
  std::uintptr_t top = 0;
  // A call to a wild address has pushed its return address, and no frame.
  if (!object_of(r.pc, object) && read_memory(r.sp, &top, sizeof top) && object_of(top, object))
    add(trace, top, false);
  for (;;) {
    std::uintptr_t link[2];  // the caller's frame pointer, the return address
    if (fp % sizeof fp != 0 || !read_memory(fp, link, sizeof link) || !object_of(link[1], object)) return;
    if (!add(trace, link[1], false) || link[0] <= fp) return;  // stacks grow down: other values are no chain
    fp = link[0];
  }
}

// ---- names ----

/// Adds "name+0x12" of the function (or variable: "name" alone at its beginning) at address, relative to the
/// object's load address. False if no symbol of this type covers it.
bool add_symbol(CrashText& text, const MappedFile& file, unsigned type, std::uintptr_t address,
                std::uintptr_t shown) noexcept {
  bool added = false;
  for_each_symbol(file, type, SymbolTables::any, [&](const ElfW(Sym) & symbol, const char* name) {
    if (address < symbol.st_value || address - symbol.st_value >= symbol.st_size) return false;
    if (name == nullptr) return true;
    text.add(name);
    if (type == STT_FUNC || shown != symbol.st_value) text.add("+").hex(shown - symbol.st_value);
    return added = true;
  });
  return added;
}

/// The file of an object, and its path to show.
class ObjectFile {
 public:
  explicit ObjectFile(const dl_find_object& object) noexcept
      : path_(object.dlfo_link_map->l_name), program_(path_ == nullptr || *path_ == 0) {
    if (!program_) return;
    const ssize_t n = ::readlink("/proc/self/exe", program_path_, sizeof program_path_ - 1);
    program_path_[n > 0 ? n : 0] = 0;
  }
  [[nodiscard]] const char* shown() const noexcept { return program_ ? program_path_ : path_; }
  [[nodiscard]] const char* opened() const noexcept { return program_ ? "/proc/self/exe" : path_; }

 private:
  const char* path_;
  bool program_;
  char program_path_[256];
};

bool in_runtime(std::uintptr_t address) noexcept {
  dl_find_object object, own;
  return object_of(address, object) && object_of(reinterpret_cast<std::uintptr_t>(&in_runtime), own) &&
         object.dlfo_link_map == own.dlfo_link_map;
}

}  // namespace

namespace {

void drop(Backtrace& trace, std::size_t first) noexcept {
  for (std::size_t i = first; i < trace.count; ++i) trace.frames[i - first] = trace.frames[i];
  trace.count -= first;
}

/// libc, libstdc++, libgcc_s, and sanitizers, which have an abort() of their own.
bool in_system(std::uintptr_t address) noexcept {
  dl_find_object object;
  if (!object_of(address, object)) return false;
  const char* const slash = std::strrchr(object.dlfo_link_map->l_name, '/');
  const char* const name = slash != nullptr ? slash + 1 : object.dlfo_link_map->l_name;
  for (const char* const system : {"libc.so", "libstdc++.so", "libgcc_s.so", "libasan.so", "libtsan.so"})
    if (std::strncmp(name, system, std::strlen(system)) == 0) return true;
  return false;
}

}  // namespace

void leave_out_runtime(Backtrace& trace) noexcept {
  while (trace.count > 0 && in_runtime(trace.frames[trace.count - 1].address)) --trace.count;
  std::size_t first = 0;
  while (first < trace.count && in_runtime(trace.frames[first].address)) ++first;
  drop(trace, first);
}

void leave_out_end(Backtrace& trace) noexcept {
  std::size_t first = 0;
  while (first < trace.count && in_runtime(trace.frames[first].address)) ++first;
  const std::size_t own = first;
  while (first < trace.count && in_system(trace.frames[first].address)) ++first;
  if (first != own && first != trace.count) drop(trace, first);
}

void find_throw(Backtrace& trace) noexcept {
  trace.count = 0;
  // As libstdc++ has them. A dependent exception, of std::rethrow_exception, begins with its primary one.
  struct Exception {
    void* primary;
    char other[72];
    std::uint64_t kind;
    char rest[24];
  } copy;
  constexpr std::uint64_t kDependent = 1;  // in the last byte of "GNUCC++", as a number the lowest
  const auto* const handled = *reinterpret_cast<const Exception* const*>(abi::__cxa_get_globals());
  if (handled == nullptr || !read_memory(reinterpret_cast<std::uintptr_t>(handled), &copy, sizeof copy))
    return;
  void* const thrown = (copy.kind & 0xff) == kDependent ? copy.primary : const_cast<Exception*>(handled) + 1;
  ThrowSite site;
  if (!read_memory(reinterpret_cast<std::uintptr_t>(throw_site_of(thrown)), &site, sizeof site) ||
      site.magic != ThrowSite::kMagic || site.count > ThrowSite::kMost)
    return;
  for (std::size_t i = 0; i < site.count; ++i) add(trace, site.frames[i], false);
  leave_out_end(trace);
}

bool describe_variable(CrashText& text, const void* address) noexcept {
  dl_find_object object;
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  if (!object_of(at, object)) return false;
  const std::uintptr_t relative = at - object.dlfo_link_map->l_addr;
  return add_symbol(text, MappedFile(ObjectFile(object).opened()), STT_OBJECT, relative, relative);
}

bool describe_thread_local(CrashText& text, std::uintptr_t offset) noexcept {
  return add_symbol(text, MappedFile("/proc/self/exe"), STT_TLS, offset, offset);
}

CrashText& describe_data(CrashText& text, const void* address) noexcept {
  CrashText name;
  text.address(address);
  return describe_variable(name, address) ? text.add(" (").add(name.data(), name.size()).add(")") : text;
}

void follow_frame_pointers(const void* registers, Backtrace& out) noexcept {
  follow(registers_of(registers), out);
}

std::uintptr_t stack_pointer_of(const void* registers) noexcept { return registers_of(registers).sp; }

void unwind(const void* registers, Backtrace& out) noexcept {
  out.count = 0;
  Registers r;
  dl_find_object object;
  if (registers != nullptr) {
    r = registers_of(registers);
    // The unwinder reads instruction bytes of code without tables, which are absent after a jump to a wild
    // address.
    if (!object_of(r.pc, object)) return follow(r, out);
  }
  ::_Unwind_Backtrace(visit, &out);
  if (registers == nullptr || out.count > 1) return;
  follow(r, out);  // it stopped at the first step: the frame pointers may lead further
}

// initial-exec: the access must not call the dynamic linker in a handler.
[[gnu::tls_model("initial-exec")]] static constinit thread_local sigjmp_buf* t_try = nullptr;

bool try_unwind(const void* registers, Backtrace& out) noexcept {
  const PassedInHandler passed;  // its end undoes what a handler that does not return leaves
  sigjmp_buf here;
  const bool done = sigsetjmp(here, 1) == 0;
  t_try = done ? &here : nullptr;
  if (done) unwind(registers, out);
  t_try = nullptr;
  return done;
}

void leave_try_unwind() noexcept {
  if (t_try != nullptr) ::siglongjmp(*t_try, 1);
}

std::optional<CodeInFile> code_in_file(std::uintptr_t address) {
  dl_find_object object;
  if (!object_of(address, object)) return std::nullopt;
  return CodeInFile{ObjectFile(object).shown(), address - object.dlfo_link_map->l_addr};
}

void describe(CrashText& text, Frame frame) noexcept {
  dl_find_object object;
  if (!object_of(frame.address, object)) {
    text.add("?? (no code is mapped there)");
    return;
  }
  const std::uintptr_t relative = frame.address - object.dlfo_link_map->l_addr;
  const ObjectFile names(object);
  const MappedFile file(names.opened());
  // A return address may already be the next function's: a call that never returns is its function's last
  // instruction.
  if (!add_symbol(text, file, STT_FUNC, frame.exact ? relative : relative - 1, relative)) text.add("??");
  text.add(" (").add(names.shown()).add("+").hex(relative).add(")");
}

}  // namespace kasane::runtime
