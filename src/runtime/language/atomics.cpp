// SPDX-License-Identifier: Apache-2.0
#include "runtime/language/atomics.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "base/assert.h"
#include "base/full_fence.h"
#include "gas/regions.h"
#include "ult/pool.h"
#include "ult/runtime_section.h"

namespace kasane::runtime {

using comm::AtomicOp;
using comm::Width;
using gas::UsersAction;
using gas::UsersEvent;
using gas::UsersWord;

namespace {

constexpr bool releases(AtomicCall call, int order) noexcept {
  return call != AtomicCall::load &&
         (order == __ATOMIC_RELEASE || order == __ATOMIC_ACQ_REL || order == __ATOMIC_SEQ_CST);
}
constexpr bool acquires(int order) noexcept { return order != __ATOMIC_RELAXED && order != __ATOMIC_RELEASE; }

constexpr AtomicOp op_of(AtomicCall call) noexcept {
  switch (call) {
    case AtomicCall::add: return AtomicOp::fetch_add;
    case AtomicCall::bit_and: return AtomicOp::fetch_and;
    case AtomicCall::bit_or: return AtomicOp::fetch_or;
    case AtomicCall::bit_xor: return AtomicOp::fetch_xor;
    case AtomicCall::compare_exchange: return AtomicOp::compare_swap;
    default: return AtomicOp::swap;
  }
}

/// What the object has afterwards, if it had `old`.
constexpr std::uint64_t result_of(AtomicCall call, std::uint64_t old, std::uint64_t operand) noexcept {
  switch (call) {
    case AtomicCall::add: return old + operand;
    case AtomicCall::bit_and: return old & operand;
    case AtomicCall::bit_or: return old | operand;
    case AtomicCall::bit_xor: return old ^ operand;
    case AtomicCall::bit_nand: return ~(old & operand);
    default: return operand;
  }
}

constexpr std::uint64_t mask_of(std::size_t bytes) noexcept {
  return bytes == 8 ? ~std::uint64_t{0} : (std::uint64_t{1} << 8 * bytes) - 1;
}

}  // namespace

/// Where completions write: outside V. A thread stays on its OS thread while it polls.
struct Atomics::Scratch {
  static constexpr std::size_t kBytes = 256;
  gas::Outstanding outstanding;
  std::uint64_t result = 0;
  std::byte bytes[kBytes];

  static Scratch& here() noexcept {
    [[gnu::tls_model("initial-exec")]] alignas(
        Scratch) static thread_local constinit std::byte memory[sizeof(Scratch)] = {};
    return *::new (memory) Scratch;
  }
};

Atomics::Atomics(const Parts& parts)
    : transport_(parts.transport),
      access_(parts.access),
      coherence_(parts.coherence),
      sharing_(parts.sharing),
      contexts_(parts.contexts),
      space_(parts.space),
      segments_(parts.segments),
      common_stacks_(parts.common_stacks),
      me_(parts.transport.rank()),
      ranks_(parts.transport.ranks()),
      words_(parts.transport, gas::kAtomics),
      in_a_row_(new std::atomic<std::uint8_t>[kUsers]()) {}

Rank Atomics::home_of(std::uint64_t offset) const noexcept {
  for (const Segments::Heap& heap : segments_.heaps) {
    if (offset - heap.offset < heap.bytes)
      return Rank{static_cast<std::uint32_t>((offset - heap.offset) / (heap.bytes / ranks_))};
  }
  if (const Segments::Pools& pools = segments_.pools; pools.contains(offset))
    return Rank{static_cast<std::uint32_t>((offset - pools.offset) % pools.bytes / (pools.bytes / ranks_))};
  if (!segments_.in_stacks(offset, ranks_)) return Rank{0};
  return Rank{static_cast<std::uint32_t>((offset - segments_.stacks_offset) /
                                         (segments_.stacks_per_rank * segments_.stack_bytes))};
}

AtomicsConnection Atomics::connection(const std::uint32_t* blocks) const noexcept {
  AtomicsConnection c;
  c.rank = me_;
  c.space = &space_.addresses();
  for (std::size_t i = 0; i < segments_.heaps.size(); ++i) {
    const std::uint64_t share = segments_.heaps[i].bytes / ranks_;
    c.home[i] = {segments_.heaps[i].offset + raw(me_) * share, share};
  }
  const std::uint64_t stacks = segments_.stacks_per_rank * segments_.stack_bytes;
  c.home[3] = {segments_.stacks_offset + raw(me_) * stacks, stacks};
  if (raw(me_) == 0) c.home[4] = {segments_.variables_offset, space_.bytes() - segments_.variables_offset};
  if (common_stacks_) c.open = {segments_.stacks_offset, ranks_ * stacks};
  c.users = reinterpret_cast<const std::uint64_t*>(words_.here(me_, 0));
  c.notices = reinterpret_cast<const std::uint64_t*>(&sharing_.notices_word());
  // Without notices every acquire drops all copies.
  c.blocks = sharing_.on() ? blocks : nullptr;
  return c;
}

// ---- order ------------------------------------------------------------------------------------------------

UsersAction Atomics::enter(dsm::ThreadContext& ctx, std::uint64_t offset, UsersEvent event) {
  const Rank home = home_of(offset);
  const std::uint64_t at = users_at(offset);
  for (;;) {
    const std::uint64_t seen = words_.load(ctx.io, home, at);
    const UsersWord word = UsersWord::unpack(seen);
    const gas::UsersStep step = next(word, event, me_);
    const std::uint64_t wanted = step.next.pack();
    if (wanted != seen && words_.compare_swap(ctx.io, home, at, seen, wanted) != seen) continue;
    if (step.action != UsersAction::ask) {
      if (event == UsersEvent::change && step.action == UsersAction::shared)
        try_to_settle(ctx, home, at, word);
      return step.action;
    }
    coherence_.fences.ask_release(ctx, step.next.rank, Account::fence_atomics);
    // If this fails another thread has done it.
    words_.compare_swap(ctx.io, home, at, wanted, next(step.next, UsersEvent::released, me_).next.pack());
  }
}

void Atomics::try_to_settle(dsm::ThreadContext& ctx, Rank home, std::uint64_t at, UsersWord word) {
  std::atomic<std::uint8_t>& row = in_a_row_[at / 8];
  // relaxed: a hint.
  if (word.kind != UsersWord::Kind::shared || word.rank != me_)
    return row.store(0, std::memory_order_relaxed);
  const auto n = static_cast<std::uint8_t>(row.load(std::memory_order_relaxed) + 1);
  row.store(n < kSettle ? n : 0, std::memory_order_relaxed);
  if (n >= kSettle)
    words_.compare_swap(ctx.io, home, at, word.pack(), next(word, UsersEvent::settle, me_).next.pack());
}

void Atomics::before(dsm::ThreadContext& ctx, std::uint64_t offset) {
  if (enter(ctx, offset, UsersEvent::change) == UsersAction::shared)
    coherence_.fences.release_all(ctx, Account::fence_atomics);
}

/// Also of an atomic that this rank uses alone: another rank may have written to it in the moment when it
/// became so. Its notices are here.
void Atomics::after(dsm::ThreadContext& ctx, std::uint64_t offset) {
  enter(ctx, offset, UsersEvent::read);
  if (!sharing_.on() || !sharing_.no_notices())
    coherence_.fences.acquire_noticed(ctx, Account::fence_atomics);
}

void Atomics::finish_read(const void* at) {
  const ult::RuntimeSection section;
  after(contexts_.here(), space_.offset(at));
}

void Atomics::release() {
  const ult::RuntimeSection section;
  coherence_.fences.release_all(contexts_.here(), Account::fence_atomics);
}

void Atomics::acquire() {
  const ult::RuntimeSection section;
  coherence_.fences.acquire_noticed(contexts_.here(), Account::fence_atomics);
}

/// A relaxed read before may have seen a releasing write of any rank that was alone, and so released nothing.
void Atomics::acquire_of_all() {
  const ult::RuntimeSection section;
  auto& ctx = contexts_.here();
  for (std::uint32_t r = 0; r < ranks_; ++r)
    if (Rank{r} != me_) coherence_.fences.ask_release(ctx, Rank{r}, Account::fence_atomics);
  coherence_.fences.acquire_noticed(ctx, Account::fence_atomics);
}

/// What comes before a release fence has to be seen by whoever sees an atomic that is changed after it. So
/// the change releases, of whatever order it is. Threads of this rank that change atomics meanwhile release,
/// too.
void Atomics::release_if_due(dsm::ThreadContext& ctx) {
  const std::uint64_t due = fences_.load();
  std::uint64_t released = released_fences_.load();
  if (released >= due) return;
  coherence_.fences.release_all(ctx, Account::fence_atomics);
  while (released < due && !released_fences_.compare_exchange_weak(released, due)) {
  }
}

void Atomics::release_if_due() {
  if (!release_is_due()) return;
  const ult::RuntimeSection section;
  release_if_due(contexts_.here());
}

void Atomics::fence(int order) {
  if (order == __ATOMIC_RELAXED) return;
  if (order == __ATOMIC_SEQ_CST)
    release();
  else if (order != __ATOMIC_ACQUIRE && order != __ATOMIC_CONSUME)
    fences_.fetch_add(1);
  if (order != __ATOMIC_RELEASE) acquire_of_all();
  full_fence();
}

// ---- at the owner -----------------------------------------------------------------------------------------

/// Nothing is allocated there: the same access by the CPU is reported as any wild access.
void Atomics::wild(std::uint64_t offset) const {
  *const_cast<volatile std::byte*>(space_.v(offset)) = std::byte{};
  KASANE_CHECK(false, "an atomic in memory that is not allocated");
  __builtin_unreachable();
}

std::uint64_t Atomics::read(dsm::ThreadContext& ctx, std::uint64_t offset, std::size_t bytes) {
  std::uint64_t value = 0;
  get(ctx, offset, bytes, &value);
  return value;
}

void Atomics::get(dsm::ThreadContext& ctx, std::uint64_t offset, std::size_t bytes, void* to) {
  if (in_common_stacks(offset)) return void(std::memcpy(to, space_.v(offset), bytes));
  if (access_.read_near(to, offset, bytes)) return;
  for (std::size_t done = 0; done < bytes;) {
    Scratch& scratch = Scratch::here();
    const std::size_t n = std::min(bytes - done, Scratch::kBytes);
    const auto issued = access_.read(ctx.io, scratch.outstanding, offset + done, scratch.bytes, n);
    gas::await(ctx.io, ctx.io, access_, scratch.outstanding);
    if (!issued) wild(offset + done);
    std::memcpy(static_cast<std::byte*>(to) + done, scratch.bytes, n);
    done += n;
  }
}

void Atomics::put(dsm::ThreadContext& ctx, std::uint64_t offset, std::size_t bytes, const void* from) {
  if (in_common_stacks(offset)) return void(std::memcpy(space_.v(offset), from, bytes));
  Scratch& scratch = Scratch::here();
  const auto issued = access_.write(ctx.io, scratch.outstanding, offset, from, bytes, gas::Source::copied);
  gas::await(ctx.io, ctx.io, access_, scratch.outstanding);
  if (!issued) wild(offset);
}

std::uint64_t Atomics::change(dsm::ThreadContext& ctx, AtomicOp op, Width width, std::uint64_t at,
                              std::uint64_t operand, std::uint64_t compare) {
  constexpr auto renewed = gas::DirectAccess::OwnCopies::renewed;
  std::uint64_t old = 0;
  if (access_.atomic_near(ctx.io, op, width, at, operand, compare, &old, renewed)) return old;
  Scratch& scratch = Scratch::here();
  const auto issued =
      access_.atomic(ctx.io, scratch.outstanding, op, width, at, operand, compare, &scratch.result, renewed);
  gas::await(ctx.io, ctx.io, access_, scratch.outstanding);
  if (!issued) wild(at);
  return scratch.result;
}

/// Owners' atomics are of 4 and 8 bytes. A smaller object is changed within the word of 4 bytes around it, by
/// compare-swaps: bytes beside it stay as they are.
std::uint64_t Atomics::at_owner(dsm::ThreadContext& ctx, AtomicCall call, std::uint64_t offset,
                                std::size_t bytes, std::uint64_t operand, std::uint64_t compare) {
  if (call == AtomicCall::load) return read(ctx, offset, bytes);
  const bool whole = bytes >= 4;
  if (whole && call != AtomicCall::bit_nand)
    return change(ctx, op_of(call), bytes == 8 ? Width::eight : Width::four, offset, operand, compare);
  const Width width = bytes == 8 ? Width::eight : Width::four;
  const std::uint64_t at = whole ? offset : offset & ~std::uint64_t{3};
  const unsigned shift = whole ? 0 : static_cast<unsigned>(offset & 3) * 8;
  const std::uint64_t mask = mask_of(bytes);
  for (std::uint64_t seen = read(ctx, at, static_cast<std::size_t>(width));;) {
    const std::uint64_t old = seen >> shift & mask;
    if (call == AtomicCall::compare_exchange && old != compare) return old;
    const std::uint64_t wanted = (seen & ~(mask << shift)) | (result_of(call, old, operand) & mask) << shift;
    const std::uint64_t found = change(ctx, AtomicOp::compare_swap, width, at, wanted, seen);
    if (found == seen) return old;
    seen = found;
  }
}

namespace {

/// The CPU's, in memory that all ranks of the host show.
template <class T>
std::uint64_t by_cpu(AtomicCall call, void* at, std::uint64_t operand, std::uint64_t compare) noexcept {
  std::atomic_ref<T> object(*static_cast<T*>(at));
  T seen = object.load();
  if (call == AtomicCall::load) return seen;
  for (;;) {
    if (call == AtomicCall::compare_exchange && seen != static_cast<T>(compare)) return seen;
    if (object.compare_exchange_strong(seen, static_cast<T>(result_of(call, seen, operand)))) return seen;
  }
}

std::uint64_t by_cpu(AtomicCall call, void* at, std::size_t bytes, std::uint64_t operand,
                     std::uint64_t compare) noexcept {
  switch (bytes) {
    case 1: return by_cpu<std::uint8_t>(call, at, operand, compare);
    case 2: return by_cpu<std::uint16_t>(call, at, operand, compare);
    case 4: return by_cpu<std::uint32_t>(call, at, operand, compare);
    default: return by_cpu<std::uint64_t>(call, at, operand, compare);
  }
}

}  // namespace

std::uint64_t Atomics::perform(AtomicCall call, void* object, std::size_t bytes, std::uint64_t operand,
                               std::uint64_t compare, int order) {
  const ult::RuntimeSection section;
  auto& ctx = contexts_.here();
  const std::uint64_t offset = space_.offset(object);
  operand &= mask_of(bytes);
  compare &= mask_of(bytes);
  if (call != AtomicCall::load) release_if_due(ctx);
  if (releases(call, order)) before(ctx, offset);
  std::uint64_t old;
  if (in_common_stacks(offset)) {
    old = by_cpu(call, object, bytes, operand, compare);
  } else {
    coherence_.fences.send_bytes(ctx, offset, bytes);
    old = at_owner(ctx, call, offset, bytes, operand, compare);
    if (call != AtomicCall::load) coherence_.fences.renew_bytes(ctx, offset, bytes);
  }
  if (acquires(order)) after(ctx, offset);
  return old;
}

// ---- objects of any size ----------------------------------------------------------------------------------

/// The lock of an object, at its home. A thread that waits for it polls; the holder does, too, so it is
/// unlocked soon.
class Atomics::Locked {
 public:
  Locked(Atomics& atomics, dsm::ThreadContext& ctx, std::uint64_t offset)
      : atomics_(atomics),
        ctx_(ctx),
        home_(atomics.home_of(offset)),
        at_((kUsers + offset / 16 % kLocks) * 8) {
    ctx_.io.waiter().until([&] { return atomics_.words_.compare_swap(ctx_.io, home_, at_, 0, 1) == 0; });
  }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;
  ~Locked() { atomics_.words_.store(ctx_.io, home_, at_, 0); }

 private:
  Atomics& atomics_;
  dsm::ThreadContext& ctx_;
  Rank home_;
  std::uint64_t at_;
};

template <class F>
void Atomics::for_each_block(std::uint64_t offset, std::size_t bytes, const F& f) {
  for (std::uint64_t at = offset, end = offset + bytes; at < end;) {
    const std::uint64_t next = std::min(end, mem::offset_of(mem::block_of(at)) + mem::kBlockBytes);
    f(at, next - at);
    at = next;
  }
}

/// Calls act() while the object is locked and its owner has what this rank stored to it.
template <class F>
void Atomics::locked(const void* object, std::size_t bytes, bool changes, int order, const F& act) {
  const ult::RuntimeSection section;
  auto& ctx = contexts_.here();
  const std::uint64_t offset = space_.offset(object);
  const bool common = in_common_stacks(offset);
  if (changes) release_if_due(ctx);
  if (changes && releases(AtomicCall::exchange, order)) before(ctx, offset);
  if (!common)
    for_each_block(offset, bytes,
                   [&](std::uint64_t at, std::size_t n) { coherence_.fences.send_bytes(ctx, at, n); });
  {
    const Locked lock(*this, ctx, offset);
    act(ctx, offset);
  }
  if (!common && changes)
    for_each_block(offset, bytes,
                   [&](std::uint64_t at, std::size_t n) { coherence_.fences.renew_bytes(ctx, at, n); });
  if (acquires(order)) after(ctx, offset);
}

void Atomics::load(const void* object, std::size_t bytes, void* to, int order) {
  locked(object, bytes, false, order,
         [&](dsm::ThreadContext& ctx, std::uint64_t offset) { get(ctx, offset, bytes, to); });
}

void Atomics::exchange(void* object, std::size_t bytes, const void* from, void* old, int order) {
  locked(object, bytes, true, order, [&](dsm::ThreadContext& ctx, std::uint64_t offset) {
    if (old != nullptr) get(ctx, offset, bytes, old);
    put(ctx, offset, bytes, from);
  });
}

bool Atomics::compare_exchange(void* object, std::size_t bytes, void* expected, const void* desired,
                               int order) {
  bool same = true;
  locked(object, bytes, true, order, [&](dsm::ThreadContext& ctx, std::uint64_t offset) {
    std::byte part[Scratch::kBytes];
    for (std::size_t done = 0; same && done < bytes; done += sizeof part) {
      const std::size_t n = std::min(bytes - done, sizeof part);
      get(ctx, offset + done, n, part);
      same = std::memcmp(part, static_cast<const std::byte*>(expected) + done, n) == 0;
    }
    same ? put(ctx, offset, bytes, desired) : get(ctx, offset, bytes, expected);
  });
  return same;
}

}  // namespace kasane::runtime
