// SPDX-License-Identifier: Apache-2.0
#include "runtime/api/direct.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <new>
#include <string>
#include <vector>

#include "runtime/api/yield_waiter.h"
#include "runtime/language/atomics.h"
#include "runtime/language/held_mutexes.h"
#include "runtime/rank/call_memory.h"
#include "runtime/rank/runtime.h"
#include "runtime/report/mixing_check.h"
#include "ult/pool.h"
#include "ult/runtime_section.h"

namespace kasane::runtime {
namespace {

constexpr std::uint32_t kRecords = 256;
constexpr std::size_t kSmall = 2048;

Error lost() { return Error{Errc::peer_lost, "a peer was lost before the bytes arrived"}; }

tl::unexpected<Error> not_pending() {
  return fail(Errc::invalid_argument,
              "nothing is pending under this handle: it was waited for before, or is no handle");
}

}  // namespace

/// The part of a blocking operation that lies outside V: the thread may be suspended, and completions run on
/// any thread.
struct Direct::Record {
  gas::Outstanding outstanding;
  std::uint64_t result = 0;
  std::byte data[kSmall];
};

/// How the calling thread waits. A user-level thread lets its worker run others over a network, and where
/// pages may be on SSD; a thread that may hold a use of a page polls, and one that holds a mutex of libc's,
/// for which another one would keep the worker.
struct Direct::Waiting {
  explicit Waiting(Direct& direct)
      : context(direct.contexts_.here()),
        yield(direct.transport_, context.counters),
        yielding(direct.transport_, yield, &context.counters),
        yields((!direct.all_mapped_ || direct.access_.addresses().pages_leave()) &&
               ult::Pool::self() != kNoSlot && !holds_mutex_of_libc()) {}
  /// For an operation during which the thread holds nothing.
  comm::Blocking& free() noexcept { return yields ? yielding : context.io; }
  comm::Blocking& polling() noexcept { return context.io; }

  dsm::ThreadContext& context;
  YieldWaiter yield;
  comm::Blocking yielding;
  bool yields;
};

class Direct::RecordHere {
 public:
  /// Takes a record. Threads that have one return it without help and let other threads run meanwhile; a
  /// thread that waits for a record does so, too.
  RecordHere(Direct& direct, Waiting& w) : direct_(direct) {
    w.free().waiter().until(
        [&] { return index_ != kNone || (index_ = direct_.free_records_.take()) != kNone; });
    record().outstanding.raw_word().store(0, std::memory_order_relaxed);  // relaxed: ours alone
  }
  ~RecordHere() { direct_.free_records_.put(index_); }
  RecordHere(const RecordHere&) = delete;
  RecordHere& operator=(const RecordHere&) = delete;
  [[nodiscard]] Record& record() const noexcept { return direct_.records_[index_]; }

 private:
  static constexpr std::uint32_t kNone = comm::IndexPool<>::kNone;
  Direct& direct_;
  std::uint32_t index_ = kNone;
};

Direct::Direct(gas::DirectAccess& access, mem::Space& space, ThreadContexts& contexts,
               std::byte* pending_region, MixingCheck* mixing, const OneRankVariables& variables)
    : access_(access),
      space_(space),
      contexts_(contexts),
      transport_(access.transport()),
      mixing_(mixing),
      variables_(variables),
      not_here_(mixing != nullptr),
      all_mapped_(transport_.facts().completes_inline),
      pending_(transport_.rank(), pending_region),
      records_(new Record[kRecords]),
      free_records_(kRecords) {}

Direct::~Direct() = default;

void Direct::check_mixing(const void* global, const comm::Cursor& cursor, bool changes, const char* call,
                          const void* site) noexcept {
  const ult::RuntimeSection section;
  if (in_space(global) && !closed_.load())
    mixing_->before(contexts_.here(), space_.offset(global), cursor, changes, call, site);
}

Result<std::uint64_t> Direct::offset_of(const void* p, const char* what) const {
  if (closed_.load()) return fail(Errc::unsupported, std::string(what) + ": the job has ended");
  if (in_space(p)) return space_.offset(p);
  char text[64];
  std::snprintf(text, sizeof text, "%s: %p is not in global memory", what, p);
  return fail(Errc::out_of_range, text);
}

/// For a patch the first row decides; pieces may lie anywhere.
bool Direct::touches_space(const std::byte* local, const comm::Cursor& cursor) const {
  if (cursor.done()) return false;
  if (in_space(gas::plus(local, cursor.piece().local_offset))) return true;
  if (!cursor.listed()) return false;
  for (comm::Cursor rest = cursor; !rest.done(); rest.consume(rest.piece().bytes)) {
    if (in_space(gas::plus(local, rest.piece().local_offset))) return true;
  }
  return false;
}

/// Waits until the part that was issued has completed.
Result<void> Direct::await(Waiting& w, gas::Outstanding& o, Result<void> issued) {
  gas::await(w.free(), w.polling(), access_, o);
  if (issued && o.failed()) return tl::unexpected(lost());
  return issued;
}

/// Before an operation: what the beginning of the walk has on SSD comes, while the worker of a user-level
/// thread runs others. Pages of this rank as for a view, since nobody may wait elsewhere while a page that
/// comes as a whole is locked.
void Direct::bring(const void* global, const comm::Cursor& cursor, bool changes) {
  if (!access_.addresses().pages_leave() || ult::Pool::self() == kNoSlot || !in_space(global) ||
      closed_.load())
    return;
  gas::DirectAccess::Pages pages;
  const std::size_t n = access_.absent(space_.offset(global), cursor, changes, pages);
  if (n == 0) return;
  const gas::Directory& directory = access_.addresses().directory();
  for (std::size_t i = 0; i < n; ++i) {
    const mem::BlockRange blocks = directory.pages().blocks_of(pages[i]);
    if (directory.near_owner(pages[i]) == transport_.rank())
      Runtime::current()->call_memory().bring(space_.v(mem::offset_of(blocks.first)),
                                              blocks.count * mem::kBlockBytes);
  }
  const ult::RuntimeSection section;
  Waiting w(*this);
  access_.page_in(w.free(), {pages.data(), n}, changes);
}

// ---- reads ------------------------------------------------------------------------------------------------

Result<void> Direct::get(void* to, const void* from, const comm::Cursor& cursor, Id* id) {
  if (variables_.any_in(from, cursor)) [[unlikely]]
    return get_variables(to, from, cursor);
  bring(from, cursor, false);
  const ult::RuntimeSection section;
  const auto offset = offset_of(from, "get");
  KASANE_TRY(offset);
  auto* target = static_cast<std::byte*>(to);
  Waiting w(*this);
  if (all_mapped_) {
    gas::Outstanding o;  // nothing is pending when the call returns
    return await(w, o, access_.read(w.free(), o, *offset, target, cursor));
  }
  const bool in_v = touches_space(target, cursor);
  if (id != nullptr) {
    if (!in_v) {
      bool done = false;
      auto issued = counted(
          w, id, [&](gas::Outstanding& o) { return access_.read(w.free(), o, *offset, target, cursor); },
          done);
      if (done) return issued;
    } else {
      auto pending = get_pending(w, target, *offset, cursor, id);
      KASANE_TRY(pending);
      if (*pending) return {};
    }
  }
  if (in_v) return get_staged(w, target, *offset, cursor);
  const RecordHere here(*this, w);
  return await(w, here.record().outstanding,
               access_.read(w.free(), here.record().outstanding, *offset, target, cursor));
}

/// Issues reads of the walk's pieces into data, one behind the other, while there is room; returns the bytes
/// that they take.
Result<std::uint64_t> Direct::read_packed(comm::Blocking& io, gas::Outstanding& o, std::uint64_t from,
                                          comm::Cursor& cursor, std::byte* data, std::uint64_t room) {
  constexpr std::size_t most = 64;
  comm::Piece list[most];
  std::uint64_t filled = 0;
  while (!cursor.done() && filled < room) {
    std::size_t n = 0;
    for (; n < most && !cursor.done() && filled < room; ++n) {
      const comm::Piece piece = cursor.piece();
      list[n] = {piece.remote_offset, filled, std::min(piece.bytes, room - filled)};
      filled += list[n].bytes;
      cursor.consume(list[n].bytes);
    }
    if (n == 1) {
      // first the pages whose location is known
      KASANE_TRY(
          access_.read(io, o, from + list[0].remote_offset, data + list[0].local_offset, list[0].bytes));
    } else {
      KASANE_TRY(access_.read(io, o, from, data, comm::Cursor(std::span<const comm::Piece>(list, n))));
    }
  }
  return filled;
}

/// Reads into V, part by part through memory outside of V.
Result<void> Direct::get_staged(Waiting& w, std::byte* to, std::uint64_t from, comm::Cursor cursor) {
  const RecordHere here(*this, w);
  gas::Outstanding& o = here.record().outstanding;
  std::byte* data = here.record().data;
  std::uint64_t room = kSmall;
  gas::Staging::Run run{};
  if (!cursor.done() && cursor.piece().bytes > kSmall) {
    for (std::uint64_t want = std::min<std::uint64_t>(cursor.piece().bytes, gas::PendingTable::kMostStaged);
         run.units == 0 && want > kSmall; want /= 2) {
      run = pending_.staging().take(want);
      if (run.units != 0) room = want;
    }
    if (run.units != 0) data = pending_.staging().at(run);
  }
  Result<void> result;
  while (result && !cursor.done()) {
    comm::Cursor scatter = cursor;
    const auto filled = read_packed(w.free(), o, from, cursor, data, room);
    result = await(w, o, filled ? Result<void>{} : Result<void>(tl::unexpected(filled.error())));
    for (std::uint64_t done = 0; result && done < *filled;) {
      const comm::Piece piece = scatter.piece();
      const std::uint64_t n = std::min(piece.bytes, *filled - done);
      std::memcpy(gas::plus(to, piece.local_offset), data + done, n);
      scatter.consume(n);
      done += n;
    }
  }
  if (run.units != 0) pending_.staging().put(run);
  return result;
}

/// False: there is no room, so the caller waits for the bytes.
Result<bool> Direct::get_pending(Waiting& w, std::byte* to, std::uint64_t from, const comm::Cursor& cursor,
                                 Id* id) {
  if (*id != 0) KASANE_TRY(wait(*id));
  std::uint64_t bytes = 0;
  std::uint32_t pieces = 0;
  for (comm::Cursor c = cursor; !c.done() && bytes <= gas::PendingTable::kMostStaged; ++pieces) {
    bytes += c.piece().bytes;
    c.consume(c.piece().bytes);
  }
  const bool contiguous = pieces == 1;
  const std::uint64_t listed = contiguous ? 0 : pieces * sizeof(gas::PendingPiece);
  if (bytes + listed > gas::PendingTable::kMostStaged) return false;
  gas::PendingSlot* slot = pending_.take();
  if (slot == nullptr) return false;
  if (bytes + listed > gas::PendingSlot::kInline) {
    slot->run = pending_.staging().take(bytes + listed);
    if (slot->run.units == 0) {
      pending_.release(*slot);
      return false;
    }
  }
  std::byte* data = pending_.data(*slot);
  slot->destination = reinterpret_cast<std::uintptr_t>(gas::plus(to, cursor.piece().local_offset));
  slot->bytes = bytes;
  slot->pieces = contiguous ? 0 : pieces;
  if (!contiguous) {
    auto* list = reinterpret_cast<gas::PendingPiece*>(data);
    for (comm::Cursor c = cursor; !c.done(); ++list) {
      const comm::Piece piece = c.piece();
      *list = {reinterpret_cast<std::uintptr_t>(gas::plus(to, piece.local_offset)), piece.bytes};
      c.consume(piece.bytes);
    }
    data += listed;
  }
  comm::Cursor walk = cursor;
  const auto filled = read_packed(w.free(), slot->outstanding, from, walk, data, bytes);
  slot->outstanding.end(comm::Status::ok);
  if (!filled) {
    const auto ended = await(w, slot->outstanding, tl::unexpected(filled.error()));
    pending_.release(*slot);
    return tl::unexpected(ended.error());
  }
  *id = pending_.id(*slot);
  return true;
}

// ---- changes ----------------------------------------------------------------------------------------------

/// Calls issue(outstanding) with the slot of *id, or with a new one. done: it was called; else there is no
/// slot.
template <class Issue>
Result<void> Direct::counted(Waiting& w, Id* id, const Issue& issue, bool& done) {
  gas::PendingSlot* slot = *id != 0 ? pending_.find(*id) : nullptr;
  const bool joined = slot != nullptr && slot->destination == 0;
  if (joined) {
    slot->outstanding.begin();
  } else {
    if (*id != 0) KASANE_TRY(wait(*id));
    slot = pending_.take();
    if (slot == nullptr) return {};
  }
  done = true;
  auto issued = issue(slot->outstanding);
  slot->outstanding.end(comm::Status::ok);
  if (joined) return issued;
  if (issued) {
    *id = pending_.id(*slot);
    return {};
  }
  issued = await(w, slot->outstanding, std::move(issued));
  pending_.release(*slot);
  return issued;
}

/// For operations that change memory: issuing may hold a use of a page, so the thread polls.
template <class Issue>
Result<void> Direct::change(Id* id, const Issue& issue) {
  Waiting w(*this);
  if (all_mapped_) {
    gas::Outstanding o;
    return await(w, o, issue(w.polling(), o, false));
  }
  if (id != nullptr) {
    bool done = false;
    auto issued = counted(w, id, [&](gas::Outstanding& o) { return issue(w.polling(), o, true); }, done);
    if (done || !issued) return issued;
  }
  const RecordHere here(*this, w);
  return await(w, here.record().outstanding, issue(w.polling(), here.record().outstanding, false));
}

/// The next row decides, which may have been begun, and the one after it.
bool Direct::may_replace(std::uint64_t to, const comm::Cursor& all) const noexcept {
  if (!access_.addresses().pages_leave()) return false;
  comm::Cursor cursor = all;
  for (int rows = 0; rows < 2 && !cursor.done(); ++rows) {
    const comm::Piece piece = cursor.piece();
    if (access_.may_replace(to + piece.remote_offset, piece.bytes)) return true;
    cursor.consume(piece.bytes);
  }
  return false;
}

Result<void> Direct::put(void* to, const void* from, const comm::Cursor& cursor, Id* id) {
  if (variables_.any_in(to, cursor)) [[unlikely]]
    return put_variables(to, from, cursor);
  const bool replaces = in_space(to) && may_replace(space_.offset(to), cursor);
  if (!replaces) bring(to, cursor, true);
  const ult::RuntimeSection section;
  const auto offset = offset_of(to, "put");
  KASANE_TRY(offset);
  const auto* source = static_cast<const std::byte*>(from);
  const bool in_v = touches_space(source, cursor);
  return change(id, [&](comm::Blocking& io, gas::Outstanding& o, bool asynchronous) -> Result<void> {
    const gas::Source how = in_v || asynchronous ? gas::Source::copied : gas::Source::kept;
    return replaces ? access_.write_replacing(io, o, *offset, source, cursor, how, pending_.staging())
                    : access_.write(io, o, *offset, source, cursor, how);
  });
}

Result<void> Direct::put_detached(void* to, const void* from, const comm::Cursor& cursor) {
  if (variables_.any_in(to, cursor)) [[unlikely]]
    return put_variables(to, from, cursor);
  const ult::RuntimeSection section;
  const auto offset = offset_of(to, "put");
  KASANE_TRY(offset);
  return access_.write(contexts_.here().io, detached_, *offset, static_cast<const std::byte*>(from), cursor,
                       gas::Source::copied);
}

Result<void> Direct::accumulate(void* to, const void* from, const comm::Cursor& cursor, comm::Element element,
                                std::complex<double> scale, Id* id) {
  if (variables_.any_in(to, cursor)) [[unlikely]]
    return accumulate_variables(to, from, cursor, element, scale);
  bring(to, cursor, true);
  const ult::RuntimeSection section;
  const auto offset = offset_of(to, "accumulate");
  KASANE_TRY(offset);
  const auto* source = static_cast<const std::byte*>(from);
  const bool in_v = touches_space(source, cursor);
  return change(id, [&](comm::Blocking& io, gas::Outstanding& o, bool asynchronous) -> Result<void> {
    return access_.accumulate(io, o, element, scale, *offset, source, cursor,
                              in_v || asynchronous ? gas::Source::copied : gas::Source::kept);
  });
}

Result<void> Direct::copy(void* to, const void* from, std::size_t bytes, Id* id) {
  if (variables_.contains(to) || variables_.contains(from)) [[unlikely]]
    return copy_variables(to, from, bytes);
  const ult::RuntimeSection section;
  const auto there = offset_of(to, "copy"), here = offset_of(from, "copy");
  KASANE_TRY(there);
  KASANE_TRY(here);
  return change(id, [&](comm::Blocking& io, gas::Outstanding& o, bool) {
    return access_.copy(io, o, *here, *there, bytes);
  });
}

Result<void> Direct::atomic(comm::AtomicOp op, comm::Width width, void* at, std::uint64_t operand,
                            std::uint64_t compare, OldValue old, Id* id) {
  if (variables_.contains(at)) [[unlikely]]
    return atomic_in_variable(op, width, at, operand, compare, old);
  bring(at, comm::Cursor(comm::Strides{.dimensions = 1, .count = {static_cast<std::size_t>(width)}}), true);
  const ult::RuntimeSection section;
  const auto offset = offset_of(at, "atomic");
  KASANE_TRY(offset);
  if (fences_ != nullptr) fences_->release_if_due();
  if (id != nullptr && *id != 0 && old.to != nullptr) KASANE_TRY(wait(*id));
  std::uint64_t near = 0;
  if (access_.atomic_near(contexts_.here().io, op, width, *offset, operand, compare, &near)) {
    old.store(near);  // after the use: it may lie in V, and fault
    return {};
  }
  if (all_mapped_) {  // old may lie in V, and fault: not while the page is in use
    std::uint64_t value = 0;
    auto done = change(nullptr, [&](comm::Blocking& io, gas::Outstanding& o, bool) {
      return access_.atomic(io, o, op, width, *offset, operand, compare, &value);
    });
    if (done) old.store(value);
    return done;
  }
  if (old.to == nullptr) {
    return change(id, [&](comm::Blocking& io, gas::Outstanding& o, bool) {
      return access_.atomic(io, o, op, width, *offset, operand, compare, nullptr);
    });
  }
  // A result that arrives later goes to memory that a completion may write.
  Waiting w(*this);
  if (id != nullptr) {
    if (*id != 0) KASANE_TRY(wait(*id));
    if (gas::PendingSlot* slot = pending_.take(); slot != nullptr) {
      slot->destination = reinterpret_cast<std::uintptr_t>(old.to);
      slot->bytes = old.bytes;
      auto issued = access_.atomic(w.polling(), slot->outstanding, op, width, *offset, operand, compare,
                                   reinterpret_cast<std::uint64_t*>(slot->data));
      slot->outstanding.end(comm::Status::ok);
      if (issued) {
        *id = pending_.id(*slot);
        return {};
      }
      issued = await(w, slot->outstanding, std::move(issued));
      pending_.release(*slot);
      return issued;
    }
  }
  const RecordHere here(*this, w);
  Record& r = here.record();
  KASANE_TRY(
      await(w, r.outstanding,
            access_.atomic(w.polling(), r.outstanding, op, width, *offset, operand, compare, &r.result)));
  old.store(r.result);
  return {};
}

// ---- waiting ----------------------------------------------------------------------------------------------

Result<void> Direct::wait(Id& id) {
  if (id == 0) return {};
  const ult::RuntimeSection section;
  if (closed_.load()) return fail(Errc::unsupported, "wait: the job has ended");
  Waiting w(*this);
  const Id waited = std::exchange(id, 0);
  if (gas::PendingSlot* slot = pending_.find(waited); slot != nullptr) {
    gas::await(w.free(), w.polling(), access_, slot->outstanding);
    return finish(*slot);
  }
  if (raw(gas::PendingTable::rank_of(waited)) >= transport_.ranks() ||
      gas::PendingTable::rank_of(waited) == transport_.rank())
    return not_pending();
  for (;;) {
    const auto done = done_elsewhere(w, waited);
    KASANE_TRY(done);
    if (*done) return finish_elsewhere(w, waited);
    w.free().waiter().pause();
  }
}

Result<bool> Direct::test(Id& id) {
  if (id == 0) return true;
  const ult::RuntimeSection section;
  if (closed_.load()) return fail(Errc::unsupported, "test: the job has ended");
  Waiting w(*this);
  if (gas::PendingSlot* slot = pending_.find(id); slot != nullptr) {
    transport_.progress();
    access_.serve(w.polling());
    if (!slot->outstanding.done()) return false;
    id = 0;
    KASANE_TRY(finish(*slot));
    return true;
  }
  if (raw(gas::PendingTable::rank_of(id)) >= transport_.ranks() ||
      gas::PendingTable::rank_of(id) == transport_.rank())
    return not_pending();
  const auto done = done_elsewhere(w, id);
  KASANE_TRY(done);
  if (!*done) return false;
  KASANE_TRY(finish_elsewhere(w, std::exchange(id, 0)));
  return true;
}

namespace {

/// Copies what was read to its destination, in V.
void deliver(const gas::PendingSlot& slot, const std::byte* data) {
  if (slot.destination == 0) return;
  if (slot.pieces == 0) {
    std::memcpy(reinterpret_cast<void*>(slot.destination), data, slot.bytes);
    return;
  }
  const auto* list = reinterpret_cast<const gas::PendingPiece*>(data);
  data += slot.pieces * sizeof(gas::PendingPiece);
  for (std::uint32_t i = 0; i < slot.pieces; ++i) {
    std::memcpy(reinterpret_cast<void*>(list[i].destination), data, list[i].bytes);
    data += list[i].bytes;
  }
}

}  // namespace

Result<void> Direct::finish(gas::PendingSlot& slot) {
  const bool failed = slot.outstanding.failed();
  if (!failed) deliver(slot, pending_.data(slot));
  pending_.release(slot);
  if (failed) return tl::unexpected(lost());
  return {};
}

Result<bool> Direct::done_elsewhere(Waiting& w, Id id) {
  const std::uint64_t word =
      w.free().load({gas::PendingTable::rank_of(id), gas::kPending, gas::PendingTable::slot_at(id)});
  if (!gas::PendingTable::names(id, word)) return not_pending();
  return gas::Outstanding::done(word);
}

/// The thread has moved here from the rank of the slot: the slot and the bytes are read there, and freed
/// there.
Result<void> Direct::finish_elsewhere(Waiting& w, Id id) {
  const Rank rank = gas::PendingTable::rank_of(id);
  const std::uint64_t slot_at = gas::PendingTable::slot_at(id);
  const std::unique_ptr<gas::PendingSlot> slot(new gas::PendingSlot);
  w.free().read({rank, gas::kPending, slot_at}, slot.get(), sizeof(gas::PendingSlot));
  const bool failed = slot->outstanding.failed();
  std::unique_ptr<std::byte[]> staged;
  if (!failed && slot->destination != 0 && slot->run.units != 0) {
    const std::size_t bytes = slot->bytes + slot->pieces * sizeof(gas::PendingPiece);
    staged.reset(new std::byte[bytes]);
    w.free().read({rank, gas::kPending, gas::PendingTable::staging_at(slot->run)}, staged.get(), bytes);
  }
  if (!failed) deliver(*slot, staged != nullptr ? staged.get() : slot->data);
  if (slot->run.units != 0)
    w.free().fetch_and({rank, gas::kPending, gas::PendingTable::staging_word_at(slot->run)},
                       gas::Staging::kept(slot->run));
  w.free().store({rank, gas::kPending, slot_at}, gas::PendingTable::released(slot->outstanding.word()));
  if (failed) return tl::unexpected(lost());
  return {};
}

Result<void> Direct::flush() {
  const ult::RuntimeSection section;
  if (closed_.load()) return fail(Errc::unsupported, "flush: the job has ended");
  Waiting w(*this);
  if (all_mapped_) {
    gas::Outstanding o;
    access_.flush(w.polling(), o);
    return await(w, o, {});
  }
  const RecordHere here(*this, w);
  access_.flush(w.free(), here.record().outstanding);
  return await(w, here.record().outstanding, {});
}

}  // namespace kasane::runtime
