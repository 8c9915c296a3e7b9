// SPDX-License-Identifier: Apache-2.0
#include "runtime/report/own_thread_locals.h"

#include <asm/prctl.h>
#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "base/raw_call.h"
#include "runtime/rank/process_state.h"
#include "runtime/rank/program_objects.h"
#include "runtime/report/crash_stack.h"

extern "C" {
// Absent before glibc 2.35.
[[gnu::weak]] extern const std::ptrdiff_t __rseq_offset;
[[gnu::weak]] extern const unsigned int __rseq_size;
}

namespace kasane::runtime {
namespace {

using ThreadWord = std::uintptr_t;

constexpr ThreadWord kFirstRanks = 0x170000000000;  ///< below all that mem/space.cpp may take
constexpr ThreadWord kOfEachRank = ThreadWord{1} << 30;
constexpr ThreadWord kKept =
    (ThreadWord{2} << 20) - 1;  ///< bits of the thread pointer that no alignment needs changed
constexpr long kRseqSignature = 0x53053053;

/// Where this rank's thread_locals were moved to.
constinit ThreadWord g_pointer = 0;  ///< the thread pointer
constinit ThreadWord g_below = 0;    ///< how far below it the program's thread_locals begin

/// What libc tells sanitizers and debuggers of the thread that runs: its block, and what lies where behind
/// the thread pointer.
struct ThreadBlock {
  ThreadWord pointer = 0, begin = 0, end = 0;
  std::uint32_t list = 0, id = 0;
};

ThreadBlock find_block() noexcept {
  const auto known = [](const char* name, std::size_t i) -> std::uint32_t {
    const auto* words = static_cast<const std::uint32_t*>(::dlsym(RTLD_DEFAULT, name));
    return words != nullptr ? words[i] : 0;
  };
  ThreadBlock block;
  asm volatile("mov %%fs:0, %0" : "=r"(block.pointer));
  using Sizes = void (*)(std::size_t*, std::size_t*);
  const auto sizes = reinterpret_cast<Sizes>(::dlsym(RTLD_DEFAULT, "_dl_get_tls_static_info"));
  std::size_t bytes = 0, alignment = 0;
  if (sizes != nullptr) sizes(&bytes, &alignment);
  block.end = block.pointer + known("_thread_db_sizeof_pthread", 0);
  block.begin = block.end - bytes;
  // (size, number, offset) of a field
  block.list = known("_thread_db_pthread_list", 2);
  block.id = known("_thread_db_pthread_tid", 2);
  return block;
}

/// The copy, `by` further, becomes the thread's. Nothing of libc is called: it knows the thread by its
/// pointer.
void enter_copy(const ThreadBlock& old, ThreadWord by, ThreadWord robust_mutexes, long rseq_bytes) noexcept {
  const auto follow = [&](ThreadWord& word) {
    if (word - old.begin < old.end - old.begin) word += by;
  };
  const auto words_at = [](ThreadWord at) { return reinterpret_cast<ThreadWord*>(at); };
  for (ThreadWord at = old.begin + by; at < old.end + by; at += sizeof at) follow(*words_at(at));
  ThreadWord* const blocks = words_at(words_at(old.pointer)[1]);  // pairs; [-1] begins with their number
  for (ThreadWord i = 2; i < 2 * (blocks[-2] + 1); ++i) follow(blocks[i]);
  const ThreadWord* const in_list =
      words_at(old.pointer + old.list);  // of all threads: the next, the one before
  follow(words_at(in_list[0])[1]);
  follow(words_at(in_list[1])[0]);
  follow(robust_mutexes);
  const auto pointer = static_cast<long>(old.pointer + by);
  raw_call(SYS_arch_prctl, ARCH_SET_FS, pointer);
  raw_call(SYS_set_robust_list, static_cast<long>(robust_mutexes), 3 * sizeof(ThreadWord));
  raw_call(SYS_set_tid_address, pointer + old.id);
  if (rseq_bytes > 0) raw_call(SYS_rseq, pointer + __rseq_offset, rseq_bytes, 0, kRseqSignature);
}

}  // namespace

long leave_rseq() noexcept {
  if (&__rseq_size == nullptr || __rseq_size == 0) return 0;
  constexpr long kUnregister = 1;
  const long area = reinterpret_cast<long>(__builtin_thread_pointer()) + __rseq_offset;
  for (long bytes = 32; bytes <= 256; bytes += 32) {  // the registered length is not known
    if (raw_call(SYS_rseq, area, bytes, kUnregister, kRseqSignature) == 0) return bytes;
  }
  return -1;
}

void take_own_thread_locals(Rank rank) noexcept {
  const ThreadBlock old = find_block();
  const std::size_t bytes = old.end - old.begin;
  if (old.end == old.pointer || old.list == 0 || old.id == 0 || bytes - 1 >= kOfEachRank / 4) return;
  const ThreadWord pointer = kFirstRanks + raw(rank) * kOfEachRank + kOfEachRank / 2 + (old.pointer & kKept);
  const ThreadWord by = pointer - old.pointer, page = 4096, first = (old.begin + by) / page * page;
  const auto program = reinterpret_cast<ThreadWord>(loaded_images().front().thread_locals().data());
  ThreadWord robust_mutexes = 0, length = 0;
  raw_call(SYS_get_robust_list, 0, reinterpret_cast<long>(&robust_mutexes), reinterpret_cast<long>(&length));
  void* const room = ::mmap(reinterpret_cast<void*>(first), old.end + by - first, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  const long rseq_bytes = room == reinterpret_cast<void*>(first) ? leave_rseq() : -1;
  if (rseq_bytes < 0) return;
  std::memcpy(reinterpret_cast<void*>(old.begin + by), reinterpret_cast<void*>(old.begin), bytes);
  enter_copy(old, by, robust_mutexes, rseq_bytes);
  g_pointer = pointer;
  g_below = old.pointer - program;
}

bool follow_errno(const void* address, void* context) noexcept {
  const auto named = reinterpret_cast<ThreadWord>(address), here = reinterpret_cast<ThreadWord>(&errno);
  // It lies as far from the thread pointer in all OS threads.
  const ThreadWord errno_of_first =
      g_pointer + here - reinterpret_cast<ThreadWord>(__builtin_thread_pointer());
  if (g_pointer == 0 || (named - kFirstRanks) / kOfEachRank >= process().ranks ||
      (named - errno_of_first) % kOfEachRank != 0)
    return false;
  greg_t* const registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  const auto is = static_cast<greg_t>(named);
  const bool found = std::count(registers + REG_R8, registers + REG_RSP, is) != 0;
  std::replace(registers + REG_R8, registers + REG_RSP, is, static_cast<greg_t>(here));
  return found;
}

bool describe_foreign_thread_local(CrashText& text, const void* address) noexcept {
  const ThreadWord at = reinterpret_cast<ThreadWord>(address) - kFirstRanks, rank = at / kOfEachRank;
  if (g_pointer == 0 || rank >= process().ranks) return false;
  CrashText name;
  text.add("that is a thread_local variable");
  if (describe_thread_local(name, at % kOfEachRank - g_pointer % kOfEachRank + g_below))
    text.add(", ").add(name.data(), name.size()).add(",");
  text.add(" of the first OS thread of rank ").decimal(rank);
  text.add(", and no other rank has it. Give threads its value, or share a variable that is none\n");
  return true;
}

}  // namespace kasane::runtime
