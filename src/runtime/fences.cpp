// SPDX-License-Identifier: Apache-2.0
#include "runtime/fences.h"

#include "base/trace.h"

namespace kasane::runtime {

void Fences::cross(Rank source) {
  auto& context = contexts_.here();
  const Timed timed(context.counters, context.counters.ns_cross, TraceKind::cross, raw(source));
  coherence_.ask_release(context, source);
  coherence_.acquire_noticed(context);
  count(context.counters.crossings);
}

void Fences::ask_release(Rank source) {
  auto& context = contexts_.here();
  const Timed timed(context.counters, context.counters.ns_cross, TraceKind::cross, raw(source));
  coherence_.ask_release(context, source);
  count(context.counters.crossings);
}

void Fences::release() { coherence_.release_all(contexts_.here()); }

bool Fences::release_little(std::uint32_t blocks) {
  return coherence_.release_little(contexts_.here(), blocks);
}

void Fences::acquire() { coherence_.acquire_noticed(contexts_.here()); }

void Fences::answer() { coherence_.answer(contexts_.here()); }

}  // namespace kasane::runtime
