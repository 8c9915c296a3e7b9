// SPDX-License-Identifier: Apache-2.0
#include "runtime/rank/fences.h"

#include "base/trace.h"

namespace kasane::runtime {

std::uint32_t Fences::cross(Rank source, Account account, ult::ReleaseMark mark) {
  auto& context = contexts_.here();
  const Traced traced(&context.counters, TraceKind::cross, raw(source));
  const std::uint32_t releases = coherence_.fences.ask_release(context, source, account, mark);
  coherence_.fences.acquire_noticed(context, account);
  count(context.counters.crossings);
  return releases;
}

void Fences::ask_release(Rank source) {
  auto& context = contexts_.here();
  const Traced traced(&context.counters, TraceKind::cross, raw(source));
  coherence_.fences.ask_release(context, source, Account::steal);
  count(context.counters.crossings);
}

void Fences::release(Account account) { coherence_.fences.release_all(contexts_.here(), account); }

ult::ReleaseMark Fences::release_little(std::uint32_t blocks, Account account) {
  return coherence_.fences.release_little(contexts_.here(), blocks, account);
}

void Fences::acquire(Account account) { coherence_.fences.acquire_noticed(contexts_.here(), account); }

void Fences::answer() { coherence_.fences.answer(contexts_.here()); }

}  // namespace kasane::runtime
