// SPDX-License-Identifier: Apache-2.0
// What this rank does for others: applies their packs, sends what their read packs ask for, copies for third
// parties. Handlers never wait. An answer that the transport does not take at once lies in the place reserved
// for that rank (ReadService, CopyService) until the hook has sent it. The other rank sends its next request
// only after the answer, so the place is always free and nothing is dropped.
#include <cstring>

#include "base/assert.h"
#include "comm/engine/core.h"

namespace kasane::comm {

void Engine::Core::set_handlers() noexcept {
  transport_.set_handler(wire::kPack, &Core::on_pack, this);
  transport_.set_handler(wire::kReadPack, &Core::on_read_pack, this);
  transport_.set_handler(wire::kReadData, &Core::on_read_data, this);
  transport_.set_handler(wire::kCopy, &Core::on_copy, this);
}

// ---- packs of writes --------------------------------------------------------------------------------------

void Engine::Core::on_pack(void* context, const Message& m) noexcept {
  Core& core = *static_cast<Core*>(context);
  bool notifies = false;
  for (std::span<const std::byte> rest = m.payload, data; !rest.empty();) {
    wire::Entry e;
    KASANE_CHECK(wire::take(rest, e, data), "a pack with an entry that is not whole");
    core.apply(e, data.data());
    notifies |= e.kind == wire::EntryKind::flag;
  }
  // Sending an answer takes a few microseconds over TCP, and the thread that makes progress may be the one
  // that waits for the flag: let it look, and post its next operation, first. The next progress() answers, of
  // this thread or of one that ring() wakes.
  const std::uint32_t index = notifies ? core.free_deferred_replies_.take() : kNoRecord;
  if (index == kNoRecord) return core.transport_.reply(m.token, 0);
  DeferredReply& late = core.deferred_replies_[index];
  late.token = m.token;
  core.new_deferred_replies_.push(&late);
  core.ring();
}

/// Sends the replies deferred in earlier calls of progress(); those of this call become due.
bool Engine::Core::send_deferred_replies() noexcept {
  bool any = false;
  for (DeferredReply* late = due_deferred_replies_.take_all(); late != nullptr; any = true) {
    DeferredReply* next = late->next;
    const ReplyToken token = late->token;
    free_deferred_replies_.put(late->index);
    transport_.reply(token, 0);
    late = next;
  }
  for (DeferredReply* late = new_deferred_replies_.take_all(); late != nullptr; any = true) {
    DeferredReply* next = late->next;
    due_deferred_replies_.push(late);
    late = next;
  }
  return any;
}

void Engine::Core::apply(const wire::Entry& e, const std::byte* data) noexcept {
  const LocalAddr place{RegionId{e.region}, e.offset};
  std::byte* to = engine_.registered_at(place, e.bytes);
  // the sender checked: an error in the engine
  KASANE_CHECK(to != nullptr, "a pack writes beyond its region");
  switch (e.kind) {
    case wire::EntryKind::write: return copy_out(to, data, e.bytes);
    case wire::EntryKind::flag: {
      std::uint64_t value;
      std::memcpy(&value, data, sizeof(value));
      // release: a thread that acquires the flag sees the bytes, which came before it in this pack.
      return std::atomic_ref<std::uint64_t>(*reinterpret_cast<std::uint64_t*>(to))
          .store(value, std::memory_order_release);
    }
    case wire::EntryKind::accumulate:
      return accumulate(e.element, {1.0, 0.0}, to, data, e.bytes, locks_of(engine_.me_), place.region,
                        place.offset);
  }
}

// ---- packs of reads ---------------------------------------------------------------------------------------

void Engine::Core::on_read_pack(void* context, const Message& m) noexcept {
  Core& core = *static_cast<Core*>(context);
  KASANE_CHECK(core.read_services_ != nullptr,
               "a pack of reads from a rank that has this one's memory mapped");
  ReadService& s = core.read_services_[raw(m.from)];
  wire::ReadPackHead head;
  KASANE_CHECK(m.payload.size() >= sizeof(head) && m.payload.size() % sizeof(wire::Entry) == 0,
               "a pack of reads that is not whole");
  std::memcpy(&head, m.payload.data(), sizeof(head));
  auto* out = reinterpret_cast<std::byte*>(s.data.data());
  const wire::ReadDataHead data_head{.pack = head.pack, .stamp = head.stamp};
  std::memcpy(out, &data_head, sizeof(data_head));
  std::size_t used = sizeof(data_head);
  for (std::size_t at = sizeof(head); at < m.payload.size(); at += sizeof(wire::Entry)) {
    wire::Entry e;
    std::memcpy(&e, m.payload.data() + at, sizeof(e));
    const std::byte* from = core.engine_.registered_at({RegionId{e.region}, e.offset}, e.bytes);
    KASANE_CHECK(from != nullptr && wire::padded(e.bytes) <= sizeof(s.data) - used,
                 "a pack reads beyond its region, or more than a message holds");
    copy_in(out + used, from, e.bytes);
    used += wire::padded(e.bytes);
  }
  KASANE_CHECK_OP(used, ==, head.answer_bytes);
  s.token = m.token;
  s.bytes = static_cast<std::uint32_t>(used);
  if (core.serve(s)) return;
  core.deferred_reads_.push(&s);
  core.ring();
}

bool Engine::Core::serve(ReadService& s) noexcept {
  const Rank to = s.token.requester;
  if (transport_.send(to, wire::kReadData, {reinterpret_cast<const std::byte*>(s.data.data()), s.bytes}) ==
      Post::again)
    return false;
  const ReplyToken token = s.token;
  transport_.reply(token, 0);  // from here on the requester may use the place again
  return true;
}

// ---- third-party copy -------------------------------------------------------------------------------------

void Engine::Core::on_copy(void* context, const Message& m) noexcept {
  Core& core = *static_cast<Core*>(context);
  CopyService& s = core.copy_services_[raw(m.from)];
  KASANE_CHECK_OP(m.payload.size(), ==, sizeof(s.request));
  std::memcpy(&s.request, m.payload.data(), sizeof(s.request));
  s.token = m.token;
  if (core.serve(s)) return;
  core.deferred_copies_.push(&s);
  core.ring();
}

/// False: the transport is full. Else the answer was sent, or copied() will send it.
bool Engine::Core::serve(CopyService& s) noexcept {
  const wire::CopyRequest& o = s.request;
  const std::byte* from = engine_.registered_at({RegionId{o.from_region}, o.from_offset}, o.bytes);
  KASANE_CHECK(from != nullptr, "a copy from beyond its region");
  const RemoteAddr to{Rank{o.to_rank}, RegionId{o.to_region}, o.to_offset};
  if (std::byte* mapped = engine_.mapped_at(to, o.bytes); mapped != nullptr) {
    move_between(mapped, from, o.bytes);
    transport_.reply(s.token, raw(Status::ok));
    return true;
  }
  s.fn = &Core::copied;
  s.status = Status::ok;
  switch (transport_.write(to, from, o.bytes, &s)) {
    case Post::again: return false;
    case Post::done: copied(&s); break;
    case Post::pending: break;
  }
  return true;
}

void Engine::Core::copied(Completion* done) noexcept {
  auto& s = static_cast<CopyService&>(*done);
  const ReplyToken token = s.token;
  s.core->transport_.reply(token, raw(s.status));
}

bool Engine::Core::serve_deferred() noexcept {
  bool any = false, full = false;
  for (ReadService* s = deferred_reads_.take_all(); s != nullptr;) {
    ReadService* next = s->next;
    const bool served = serve(*s);
    if (!served) deferred_reads_.push(s);
    any |= served;
    full |= !served;
    s = next;
  }
  for (CopyService* s = deferred_copies_.take_all(); s != nullptr;) {
    CopyService* next = s->next;
    const bool served = serve(*s);
    if (!served) deferred_copies_.push(s);
    any |= served;
    full |= !served;
    s = next;
  }
  if (full) ring();  // a full transport announces nothing when it has room
  return any;
}

}  // namespace kasane::comm
