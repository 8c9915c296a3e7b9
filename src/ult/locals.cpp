// SPDX-License-Identifier: Apache-2.0
#include "ult/locals.h"

#include <string>
#include <system_error>

#include "base/assert.h"
#include "ult/pool_core.h"

namespace kasane::ult {
namespace {

constexpr Rank kKeysRank{0};

constexpr std::size_t field(std::uint32_t key) noexcept {
  return offsetof(SlotControl, locals) + key * sizeof(Word);
}

}  // namespace

std::uint32_t Locals::create_key(void (*destructor)(void*)) {
  Words& words = worker_of_thread().core->pool->words();
  Word used = words.load(kKeysRank, Layout::local_keys());
  do {
    if (used == kLocalKeys)
      throw std::system_error(
          std::make_error_code(std::errc::resource_unavailable_try_again),
          "kasane: all " + std::to_string(kLocalKeys) + " thread-local keys of the job are in use");
    const Word found = words.compare_swap(kKeysRank, Layout::local_keys(), used, used + 1);
    if (found == used) break;
    used = found;
  } while (true);
  const auto key = static_cast<std::uint32_t>(used);
  words.store(kKeysRank, Layout::local_destructor(key), reinterpret_cast<Word>(destructor));
  return key;
}

void* Locals::get(std::uint32_t key) {
  KASANE_CHECK_OP(key, <, kLocalKeys);
  Worker& worker = worker_of_thread();
  // The words still hold an earlier thread's values until this one sets one.
  const Controls& controls = worker.core->controls;
  if (!(controls.get(worker.self(), offsetof(SlotControl, flags)) & kSlotLocals)) return nullptr;
  return reinterpret_cast<void*>(controls.get(worker.self(), field(key)));
}

void Locals::set(std::uint32_t key, void* value) {
  KASANE_CHECK_OP(key, <, kLocalKeys);
  Worker& worker = worker_of_thread();
  const Controls& controls = worker.core->controls;
  const Word flags = controls.get(worker.self(), offsetof(SlotControl, flags));
  if (!(flags & kSlotLocals)) {
    for (std::uint32_t k = 0; k < kLocalKeys; ++k) controls.put(worker.self(), field(k), 0);
    controls.put(worker.self(), offsetof(SlotControl, flags), flags | kSlotLocals);
  }
  controls.put(worker.self(), field(key), reinterpret_cast<Word>(value));
}

void Locals::destroy_all() noexcept {
  {
    Worker& worker = worker_of_thread();
    if (!(worker.core->controls.get(worker.self(), offsetof(SlotControl, flags)) & kSlotLocals)) return;
  }
  for (std::uint32_t key = 0; key < kLocalKeys; ++key) {
    void* const value = get(key);
    if (value == nullptr) continue;
    set(key, nullptr);
    const Word destructor =
        worker_of_thread().core->pool->words().load(kKeysRank, Layout::local_destructor(key));
    if (destructor != 0) reinterpret_cast<void (*)(void*)>(destructor)(value);
  }
  // A destructor may have moved the thread: this is the worker that runs it now.
  Worker& worker = worker_of_thread();
  const Controls& controls = worker.core->controls;
  const Word flags = controls.get(worker.self(), offsetof(SlotControl, flags));
  if (flags & kSlotLocals)
    controls.put(worker.self(), offsetof(SlotControl, flags), flags & ~Word{kSlotLocals});
}

}  // namespace kasane::ult
