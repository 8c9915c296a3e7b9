// SPDX-License-Identifier: Apache-2.0
// ARMCI_Malloc and its forms: each process of the group allocates its part at itself, and all get the
// addresses of all parts, which are the same everywhere. If one process has no room, all fail.
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "armci/library.h"
#include "armci/pending.h"

namespace kasane::armci {
namespace {

constexpr std::size_t kAlignment = 64;

struct Part {
  void* address;
  long failed;  ///< not 0: there was no room
};

int allocate(const char* call, void** addresses, armci_size_t bytes, const ARMCI_Group& group) {
  need_started(call);
  Part mine = {nullptr, 0};
  if (bytes > 0) mine.address = kasane_aligned_alloc(kAlignment, static_cast<std::size_t>(bytes));
  mine.failed = bytes < 0 || (bytes > 0 && mine.address == nullptr) ? 1 : 0;
  if (mine.failed != 0) {
    std::fprintf(stderr, "[%d] %s of %ld bytes: %s\n", library.me, call, bytes,
                 bytes < 0 ? "a negative size" : kasane_error_message());
  }
  std::vector<Part> parts(static_cast<std::size_t>(group.size));
  group_gather(group, &mine, parts.data(), sizeof mine);
  bool failed = false;
  for (std::size_t p = 0; p < parts.size(); ++p) {
    addresses[p] = parts[p].address;
    failed |= parts[p].failed != 0;
  }
  if (!failed) return 0;
  kasane_free(mine.address);
  for (std::size_t p = 0; p < parts.size(); ++p) addresses[p] = nullptr;
  return 1;
}

/// After the barrier no process of the group accesses the memory.
int release(const char* call, void* address, const ARMCI_Group& group) {
  need_started(call);
  wait_all(call);
  group_barrier(group);
  kasane_free(address);
  return 0;
}

}  // namespace
}  // namespace kasane::armci

using kasane::armci::allocate, kasane::armci::release, kasane::armci::library;

extern "C" {

int PARMCI_Malloc(void** base_ptrs, armci_size_t size) {
  return allocate("ARMCI_Malloc", base_ptrs, size, library.world);
}
int PARMCI_Malloc_memdev(void** ptr_arr, armci_size_t bytes, const char*) {
  return allocate("ARMCI_Malloc_memdev", ptr_arr, bytes, library.world);
}
int ARMCI_Malloc_group(void** ptr_arr, armci_size_t bytes, ARMCI_Group* group) {
  return allocate("ARMCI_Malloc_group", ptr_arr, bytes, *group);
}
int PARMCI_Malloc_group_memdev(void** ptr_arr, armci_size_t bytes, ARMCI_Group* group, const char*) {
  return allocate("ARMCI_Malloc_group_memdev", ptr_arr, bytes, *group);
}
int PARMCI_Free(void* ptr) { return release("ARMCI_Free", ptr, library.world); }
int PARMCI_Free_memdev(void* ptr) { return release("ARMCI_Free_memdev", ptr, library.world); }
int ARMCI_Free_group(void* ptr, ARMCI_Group* group) { return release("ARMCI_Free_group", ptr, *group); }

// Private memory, which is not paged.
void* PARMCI_Malloc_local(armci_size_t size) {
  void* memory = nullptr;
  if (size < 0 || ::posix_memalign(&memory, kasane::armci::kAlignment, static_cast<std::size_t>(size)) != 0)
    return nullptr;
  return memory;
}
int PARMCI_Free_local(void* ptr) { return std::free(ptr), 0; }

// The owner's loads and stores and direct access meet in one frame: nothing is to be done.
void PARMCI_Access_begin(void*) {}
void PARMCI_Access_end(void*) {}

}  // extern "C"

KASANE_WEAK_ALIAS(ARMCI_Malloc, PARMCI_Malloc);
KASANE_WEAK_ALIAS(ARMCI_Malloc_memdev, PARMCI_Malloc_memdev);
KASANE_WEAK_ALIAS(ARMCI_Malloc_group_memdev, PARMCI_Malloc_group_memdev);
KASANE_WEAK_ALIAS(ARMCI_Free, PARMCI_Free);
KASANE_WEAK_ALIAS(ARMCI_Free_memdev, PARMCI_Free_memdev);
KASANE_WEAK_ALIAS(ARMCI_Malloc_local, PARMCI_Malloc_local);
KASANE_WEAK_ALIAS(ARMCI_Free_local, PARMCI_Free_local);
KASANE_WEAK_ALIAS(ARMCI_Access_begin, PARMCI_Access_begin);
KASANE_WEAK_ALIAS(ARMCI_Access_end, PARMCI_Access_end);
