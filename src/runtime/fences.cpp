// SPDX-License-Identifier: Apache-2.0
#include "runtime/fences.h"

#include "base/assert.h"
#include "base/trace.h"
#include "mem/populate.h"
#include "mem/stack_guard.h"

namespace kasane::runtime {

using mem::kBlockBytes;

// ---- edges -------------------------------------------------------------------------------------------------------

void Fences::cross(Rank source) {
  auto& context = contexts_.here();
  const Timed timed(context.counters, context.counters.ns_cross, TraceKind::cross, raw(source));
  coherence_.ask_release(context, source);
  coherence_.acquire_told(context);
  count(context.counters.crossings);
}

void Fences::ask_release(Rank source) {
  auto& context = contexts_.here();
  const Timed timed(context.counters, context.counters.ns_cross, TraceKind::cross, raw(source));
  coherence_.ask_release(context, source);
  count(context.counters.crossings);
}

void Fences::release() { coherence_.release_all(contexts_.here()); }

void Fences::acquire() { coherence_.acquire_told(contexts_.here()); }

void Fences::answer() { coherence_.answer(contexts_.here()); }

// ---- stacks ------------------------------------------------------------------------------------------------------

Stacks::Stacks(gas::Mover& mover, dsm::Coherence& coherence, ThreadContexts& contexts, mem::Space& space, const mem::Pages& pages,
               const Segments& segments) noexcept
    : mover_(mover), coherence_(coherence), contexts_(contexts), space_(space), pages_(pages), segments_(segments) {}

void Stacks::adopt(StackId stack, std::uintptr_t live_lo, std::uintptr_t live_hi, Rank) {
  auto& context = contexts_.here();
  const gas::ByteRange live{space_.offset(reinterpret_cast<void*>(live_lo)), space_.offset(reinterpret_cast<void*>(live_hi - 1)) + 1};
  for (const PageId page : pages_.in(segments_.stack_offset(stack), segments_.stack_bytes)) {
    const auto moved = mover_.bring(context.io, page, live);
    KASANE_CHECK(moved.has_value(), "a stack that waits to be run is not pinned");
  }
  guard_again(stack);
  count(context.counters.bytes_moved, live.end - live.begin);
}

void Stacks::surrender(StackId stack) {
  auto& context = contexts_.here();
  for (const PageId page : pages_.in(segments_.stack_offset(stack), segments_.stack_bytes)) {
    KASANE_CHECK(mover_.hand_back(context.io, page, birth_rank(stack)), "the rank that ran a thread owns its stack");
  }
}

void Stacks::reclaim(StackId stack) {
  coherence_.arm_owned(contexts_.here().io, segments_.stack_offset(stack), segments_.stack_bytes);
  guard_again(stack);
}

// False: past the bound of guards on a kernel without markers (mem/stack_guard.h); the slot works without.
void Stacks::guard(StackId stack) { static_cast<void>(mem::install_guard(space_.v(segments_.stack_offset(stack)))); }

// Arming may have taken the marker away (mem/uffd_engine.cpp); the guards of other kernels stay.
void Stacks::guard_again(StackId stack) {
  if (mem::guards_available()) guard(stack);
}

void Stacks::prepare(StackId stack, Rank me) {
  const std::uint64_t begin = segments_.stack_offset(stack);
  if (birth_rank(stack) == me) {
    auto& context = contexts_.here();
    for (const PageId page : pages_.in(begin, segments_.stack_bytes)) {
      const auto assigned = mover_.assign(context.io, page, me);
      KASANE_CHECK(assigned.has_value());
    }
    coherence_.arm_owned(context.io, begin, segments_.stack_bytes);
  }
  // The top block in M, A and V, so that neither the first frames nor a hand-over fault one page after the other (rule 12).
  mem::populate(space_.a(begin + segments_.stack_bytes - kBlockBytes), kBlockBytes);
  if (birth_rank(stack) == me) mem::populate(space_.v(begin + segments_.stack_bytes - kBlockBytes), kBlockBytes);
  guard(stack);
}

}  // namespace kasane::runtime
