// SPDX-License-Identifier: Apache-2.0
// See lane.h.
#if defined(KASANE_HAVE_UCX)
#include "comm/ucx/lane.h"

#include <sys/mman.h>

#include <cstring>
#include <new>
#include <utility>

#include "base/assert.h"
#include "base/clock.h"

namespace kasane::comm::ucx {
namespace {

constexpr std::size_t kLine = 64;
constexpr std::uint32_t kSendBuffers = 128;
constexpr std::size_t kSendBufferBytes = (kMaxWire + kLine - 1) / kLine * kLine;
/// an op that UCX has not ended so long after its peer was given up is an orphan
constexpr std::uint64_t kOrphanNs = 200'000'000;

constexpr std::size_t round_up(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

ucp_atomic_op_t of_ucx(AtomicOp op) noexcept {
  switch (op) {
    case AtomicOp::fetch_add: return UCP_ATOMIC_OP_ADD;
    case AtomicOp::fetch_and: return UCP_ATOMIC_OP_AND;
    case AtomicOp::fetch_or: return UCP_ATOMIC_OP_OR;
    case AtomicOp::fetch_xor: return UCP_ATOMIC_OP_XOR;
    case AtomicOp::swap: return UCP_ATOMIC_OP_SWAP;
    case AtomicOp::compare_swap: break;
  }
  return UCP_ATOMIC_OP_CSWAP;
}

}  // namespace

/// Precedes ops that were mapped later.
struct Lane::Block {
  Block* next;
  std::size_t bytes;
  std::uint32_t ops;
};

// ---- life -------------------------------------------------------------------------------------------------

Lane::Lane(Peers& peers, std::uint32_t outstanding)
    : peers_(peers), ucx_(*peers.ucx), outstanding_(outstanding), endpoints_(peers.ranks) {
  for (std::uint32_t r = 0; r < peers.ranks; ++r) {
    endpoints_[r].lane = this;
    endpoints_[r].peer = r;
  }
}

Result<std::unique_ptr<Lane>> Lane::create(Peers& peers, std::uint32_t outstanding) {
  std::unique_ptr<Lane> lane(new Lane(peers, outstanding));
  KASANE_TRY(lane->start());
  return lane;
}

Result<void> Lane::start() {
  // One op for every operation, and one for the flush of every endpoint.
  op_bytes_ = round_up(sizeof(Op), kLine) + round_up(peers_.request_bytes, kLine);
  const std::size_t ops = std::size_t{outstanding_} + peers_.ranks;
  memory_bytes_ = round_up(ops * op_bytes_ + kSendBuffers * kSendBufferBytes, 4096);
  void* memory = ::mmap(nullptr, memory_bytes_, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED)
    return fail_errno(Errc::out_of_memory,
                      "cannot map " + std::to_string(memory_bytes_) + " bytes for a lane of UCX");
  memory_ = static_cast<std::byte*>(memory);
  for (std::size_t i = 0; i < ops; ++i) {
    Op* op = new (memory_ + i * op_bytes_) Op();
    op->lane = this;
    if (i < outstanding_) {
      free_.push(*op);
    } else {
      endpoints_[i - outstanding_].flush = op;
      op->endpoint = &endpoints_[i - outstanding_];
    }
  }
  free_buffers_.reserve(kSendBuffers);
  for (std::uint32_t i = 0; i < kSendBuffers; ++i)
    free_buffers_.push_back(static_cast<std::int32_t>(kSendBuffers - 1 - i));
  ending_.reserve(2 * std::size_t{peers_.ranks} + 2);

  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  if (const ucs_status_t status = ucx_.ucp_worker_create(peers_.context, &params, &worker_);
      status != UCS_OK) {
    return fail(Errc::limit, std::string("UCX cannot create a worker: ") + ucx_.ucs_status_string(status) +
                                 "; with UCX_LOG_LEVEL=diag UCX says why");
  }
  if (const ucs_status_t status = ucx_.ucp_worker_get_efd(worker_, &event_fd_); status != UCS_OK) {
    return fail(Errc::unsupported,
                std::string("a worker of UCX has no event descriptor: ") + ucx_.ucs_status_string(status));
  }
  return {};
}

Lane::~Lane() {
  for (Endpoint& e : endpoints_) {
    for (ucp_rkey_h key : e.rkeys) {
      if (key != nullptr) ucx_.ucp_rkey_destroy(key);
    }
  }
  // Requests that took too long. UCX aborts if its worker goes while a request was not given back.
  for (void* request : ending_) ucx_.ucp_request_free(request);
  if (worker_ != nullptr) ucx_.ucp_worker_destroy(worker_);
  for (Block* block = blocks_; block != nullptr;) {
    Block* next = block->next;
    ::munmap(block, block->bytes);
    block = next;
  }
  if (memory_ != nullptr) ::munmap(memory_, memory_bytes_);
}

void* Lane::request_of(Op& op) const noexcept {
  // UCX wants request_bytes before the address that it is given.
  return reinterpret_cast<std::byte*>(&op) + round_up(sizeof(Op), kLine) + peers_.request_bytes;
}

std::byte* Lane::buffer(std::int32_t index) const noexcept {
  return memory_ + (std::size_t{outstanding_} + peers_.ranks) * op_bytes_ +
         static_cast<std::size_t>(index) * kSendBufferBytes;
}

// ---- endpoints and keys -----------------------------------------------------------------------------------

/// Null if the peer is lost, or if UCX cannot connect to it, which is treated alike.
Endpoint* Lane::endpoint(std::uint32_t peer) noexcept {
  Endpoint& e = endpoints_[peer];
  if (e.ep != nullptr && !e.failed) [[likely]]
    return &e;
  // relaxed: only a shortcut; a thread that reads an old value gets the same result from the endpoint.
  if (e.failed || peers_.lost[peer].load(std::memory_order_relaxed) != 0) return nullptr;
  return connect(e) ? &e : nullptr;
}

bool Lane::connect(Endpoint& e) noexcept {
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(peers_.address[e.peer].data());
  params.err_mode = peers_.error_mode;
  params.err_handler.cb = &on_error;
  params.err_handler.arg = &e;
  if (const ucs_status_t status = ucx_.ucp_ep_create(worker_, &params, &e.ep); status != UCS_OK) {
    e.ep = nullptr;
    e.failed = true;
    e.why = status;
    any_failed_ = true;
    return false;
  }
  used_.store(true, std::memory_order_relaxed);  // relaxed: a hint, see used()
  ring_needed_ = true;
  return true;
}

/// Under the lane's lock, inside ucp_worker_progress (or a post).
void Lane::on_error(void* endpoint, ucp_ep_h, ucs_status_t status) noexcept {
  auto& e = *static_cast<Endpoint*>(endpoint);
  if (e.failed) return;
  e.failed = true;
  e.why = status;
  e.lane->any_failed_ = true;
}

ucp_rkey_h Lane::rkey(Endpoint& e, RegionId id) noexcept {
  ucp_rkey_h& key = e.rkeys[raw(id)];
  if (key != nullptr) [[likely]]
    return key;
  const ucs_status_t status = ucx_.ucp_ep_rkey_unpack(e.ep, peers_.regions[raw(id)].key[e.peer].data(), &key);
  if (status != UCS_OK) {
    key = nullptr;
    on_error(&e, nullptr, status);  // without a key the peer's memory cannot be reached: treat it as lost
  }
  return key;
}

/// The registration that contains [address, address + bytes), or null: UCX then does without. With it UCX
/// does not search its own table, which takes a lock.
ucp_mem_h Lane::handle_of(const void* address, std::size_t bytes) const noexcept {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  for (std::size_t i = 0; i < kMaxRegions; ++i) {
    const AttachedRegion& region = peers_.attached[i];
    const std::size_t size = region.bytes.load(std::memory_order_acquire);  // acquire: pairs with publish()
    if (size == 0) continue;
    const auto base = reinterpret_cast<std::uintptr_t>(region.base[peers_.self]);
    if (at >= base && at - base <= size && bytes <= size - (at - base)) return peers_.regions[i].handle;
  }
  return nullptr;
}

// ---- ops --------------------------------------------------------------------------------------------------

Op* Lane::take(Op::Kind kind, Endpoint& e, Completion* done) noexcept {
  Op* op = free_.pop();
  if (op == nullptr) return nullptr;
  op->kind = kind;
  op->endpoint = &e;
  op->done = done;
  op->poster = poster_;
  op->parts = 0;
  op->counted = false;
  op->status = Status::ok;
  // relaxed: written under the lock; readers use it as a hint.
  open_.store(open_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  return op;
}

/// Returns the op to the free list. Neither UCX nor a list has it.
void Lane::give(Op& op) noexcept {
  if (op.buffer >= 0) free_buffers_.push_back(op.buffer);
  op.buffer = -1;
  // release: a thread that reads the count without this op comes after its effects on memory (fence).
  // relaxed: as in take().
  if (op.counted) op.endpoint->open.fetch_sub(1, std::memory_order_release);
  op.counted = false;
  open_.store(open_.load(std::memory_order_relaxed) - 1, std::memory_order_relaxed);
  if (op.kind != Op::Kind::fence && !op.orphan) free_.push(op);  // a fence's part belongs to the fence
}

void Lane::part_done(Op& op) noexcept {
  if (--op.parts == 0) finish(op);
}

void Lane::finish(Op& op) noexcept {
  if (op.kind == Op::Kind::send) return give(op);  // no completion waits for it
  if (op.kind == Op::Kind::atomic && op.status == Status::ok && op.result != nullptr) {
    *op.result = op.width == Width::eight ? op.word[1] : static_cast<std::uint32_t>(op.word[1]);
  }
  finished_.push(op);
}

void Lane::wait_for_flush(Op& op) noexcept {
  Endpoint& e = *op.endpoint;
  ++op.parts;
  e.waiting.push(op);
  if (!e.dirty) {
    e.dirty = true;
    e.next_dirty = dirty_;
    dirty_ = &e;
  }
}

/// Begins a flush for every endpoint where ops wait and no flush is outstanding. Also called right after a
/// post, since the posting thread may not poll again: from here on UCX's events suffice.
void Lane::flush_dirty() noexcept {
  Endpoint* dirty = std::exchange(dirty_, nullptr);
  while (dirty != nullptr) {
    Endpoint* next = dirty->next_dirty;
    begin_flush(*dirty);
    if (dirty->dirty) {  // a flush is outstanding; its end comes back here
      dirty->next_dirty = dirty_;
      dirty_ = dirty;
    }
    dirty = next;
  }
}

Post Lane::lost(Completion* done) noexcept {
  Op* op = take(Op::Kind::nothing, endpoints_[peers_.self], done);
  if (op == nullptr) return Post::again;
  op->status = Status::peer_lost;
  finish(*op);
  return Post::pending;
}

ucp_request_param_t Lane::params(Op& op) const noexcept {
  ucp_request_param_t p{};
  p.op_attr_mask = UCP_OP_ATTR_FIELD_REQUEST | UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  p.request = request_of(op);
  p.cb.send = [](void* request, ucs_status_t status, void* user) { on_done(request, status, user); };
  p.user_data = &op;
  return p;
}

ucp_request_param_t Lane::params(Op& op, const void* local, std::size_t bytes) const noexcept {
  ucp_request_param_t p = params(op);
  p.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMORY_TYPE;
  p.memory_type = UCS_MEMORY_TYPE_HOST;
  if ((p.memh = handle_of(local, bytes)) != nullptr) p.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMH;
  return p;
}

int Lane::outcome(Endpoint& e, ucs_status_ptr_t result) noexcept {
  if (result == nullptr) return 0;
  if (!UCS_PTR_IS_ERR(result)) return 1;
  const ucs_status_t status = UCS_PTR_STATUS(result);
  if (status == UCS_ERR_NO_MEMORY || status == UCS_ERR_NO_RESOURCE) return -1;
  on_error(&e, nullptr, status);
  return -2;
}

void Lane::on_done(void*, ucs_status_t status, void* user) noexcept {
  Op& op = *static_cast<Op*>(user);
  if (op.orphan) return;
  if (op.kind == Op::Kind::flush) return op.lane->end_flush(*op.endpoint, status == UCS_OK);
  if (status != UCS_OK) op.status = Status::peer_lost;
  op.lane->part_done(op);
}

// ---- one-sided --------------------------------------------------------------------------------------------

Post Lane::read(RemoteAddr from, void* to, std::size_t bytes, Completion* done) noexcept {
  Endpoint* e = endpoint(raw(from.rank));
  if (e == nullptr) return lost(done);
  ucp_rkey_h key = rkey(*e, from.region);
  if (key == nullptr) return lost(done);
  Op* op = take(Op::Kind::read, *e, done);
  if (op == nullptr) return Post::again;
  const auto p = params(*op, to, bytes);
  const std::uint64_t address = peers_.regions[raw(from.region)].base[e->peer] + from.offset;
  op->parts = 1;
  switch (outcome(*e, ucx_.ucp_get_nbx(e->ep, to, bytes, address, key, &p))) {
    case 1: return Post::pending;
    case 0: give(*op); return Post::done;
    case -1: give(*op); return Post::again;
    default: give(*op); return lost(done);
  }
}

Post Lane::write(RemoteAddr to, const void* from, std::size_t bytes, Completion* done) noexcept {
  Endpoint* e = endpoint(raw(to.rank));
  if (e == nullptr) return lost(done);
  ucp_rkey_h key = rkey(*e, to.region);
  if (key == nullptr) return lost(done);
  Op* op = take(Op::Kind::write, *e, done);
  if (op == nullptr) return Post::again;
  const auto p = params(*op, from, bytes);
  const std::uint64_t address = peers_.regions[raw(to.region)].base[e->peer] + to.offset;
  op->parts = 1;  // UCX has it; the callback may not run before this
  const int result = outcome(*e, ucx_.ucp_put_nbx(e->ep, from, bytes, address, key, &p));
  if (result == -1) {
    give(*op);
    return Post::again;
  }
  if (result == -2) {
    give(*op);
    return lost(done);
  }
  if (result == 0) op->parts = 0;
  op->counted = true;
  // relaxed: a fence posted later by a thread that knows of this write sees it
  e->open.fetch_add(1, std::memory_order_relaxed);
  wait_for_flush(*op);
  flush_dirty();
  return Post::pending;
}

Post Lane::write_notify(RemoteAddr to, const void* from, std::size_t bytes, std::uint64_t flag_offset,
                        std::uint64_t value, Completion* done) noexcept {
  Endpoint* e = endpoint(raw(to.rank));
  if (e == nullptr) return lost(done);
  ucp_rkey_h key = rkey(*e, to.region);
  if (key == nullptr) return lost(done);
  // Both ops are taken before anything is sent: after Post::again neither bytes nor flag may have been sent.
  Op* flag = take(Op::Kind::write, *e, done);
  Op* data = flag == nullptr || bytes == 0 ? nullptr : take(Op::Kind::write, *e, nullptr);
  if (flag == nullptr || (data == nullptr && bytes != 0)) {
    if (flag != nullptr) give(*flag);
    return Post::again;
  }
  const std::uint64_t base = peers_.regions[raw(to.region)].base[e->peer];
  if (data != nullptr) {
    const auto p = params(*data, from, bytes);
    data->parts = 1;
    const int result = outcome(*e, ucx_.ucp_put_nbx(e->ep, from, bytes, base + to.offset, key, &p));
    if (result < 0) {
      give(*data);
      give(*flag);
      return result == -1 ? Post::again : lost(done);
    }
    if (result == 0) data->parts = 0;
    data->counted = true;
    e->open.fetch_add(1, std::memory_order_relaxed);  // relaxed: as in write()
    wait_for_flush(*data);                            // until then the buffer must stay as it is
  }
  flag->word[0] = value;
  const auto p = params(*flag, flag->word, 8);
  flag->parts = 1;
  flag->counted = true;
  e->open.fetch_add(1, std::memory_order_relaxed);
  int result = ucx_.ucp_worker_fence(worker_) == UCS_OK ? 0 : -2;
  if (result == 0) result = outcome(*e, ucx_.ucp_put_nbx(e->ep, flag->word, 8, base + flag_offset, key, &p));
  if (result < 0) {
    // The bytes may be on their way, so this cannot be undone. Without its flag the peer is treated as lost.
    on_error(e, nullptr, UCS_ERR_NO_MEMORY);
    flag->status = Status::peer_lost;
  }
  if (result <= 0) flag->parts = 0;
  wait_for_flush(*flag);
  flush_dirty();
  return Post::pending;
}

Post Lane::atomic(AtomicOp what, RemoteAddr at, std::uint64_t operand, std::uint64_t compare,
                  std::uint64_t* result, Completion* done, Width width) noexcept {
  Endpoint* e = endpoint(raw(at.rank));
  if (e == nullptr) return lost(done);
  ucp_rkey_h key = rkey(*e, at.region);
  if (key == nullptr) return lost(done);
  Op* op = take(Op::Kind::atomic, *e, done);
  if (op == nullptr) return Post::again;
  // UCX takes a compare-swap's expected value as operand, and the new value in the buffer where it stores the
  // old one.
  const bool swaps_if = what == AtomicOp::compare_swap;
  op->word[0] = swaps_if ? compare : operand;
  op->word[1] = swaps_if ? operand : 0;
  op->width = width;
  op->result = result;
  op->parts = 1;
  op->counted = true;
  e->open.fetch_add(1, std::memory_order_relaxed);  // relaxed: as in write()
  auto p = params(*op);
  p.op_attr_mask |= UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_REPLY_BUFFER;
  p.datatype = ucp_dt_make_contig(static_cast<std::size_t>(width));
  p.reply_buffer = &op->word[1];
  const std::uint64_t address = peers_.regions[raw(at.region)].base[e->peer] + at.offset;
  switch (outcome(*e, ucx_.ucp_atomic_op_nbx(e->ep, of_ucx(what), &op->word[0], 1, address, key, &p))) {
    case 1: return Post::pending;
    case 0:
      op->parts = 0;
      finish(*op);  // progress() completes it, as all others
      return Post::pending;
    case -1: give(*op); return Post::again;
    default: give(*op); return lost(done);
  }
}

Post Lane::send(std::uint32_t to, const Head& head, std::span<const std::byte> payload) noexcept {
  Endpoint* e = endpoint(to);
  if (e == nullptr) return Post::done;
  const std::size_t bytes = sizeof(Head) + payload.size();
  if (bytes > sizeof(Op::small) && free_buffers_.empty()) return Post::again;
  Op* op = take(Op::Kind::send, *e, nullptr);
  if (op == nullptr) return Post::again;
  std::byte* at = op->small;
  if (bytes > sizeof(Op::small)) {
    op->buffer = free_buffers_.back();
    free_buffers_.pop_back();
    at = buffer(op->buffer);
  }
  std::memcpy(at, &head, sizeof(Head));
  if (!payload.empty()) std::memcpy(at + sizeof(Head), payload.data(), payload.size());
  auto p = params(*op);
  p.op_attr_mask |= UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_MEMORY_TYPE;
  p.flags = UCP_AM_SEND_FLAG_EAGER;
  p.memory_type = UCS_MEMORY_TYPE_HOST;
  op->parts = 1;
  switch (outcome(*e, ucx_.ucp_am_send_nbx(e->ep, kActiveMessage, nullptr, 0, at, bytes, &p))) {
    case 1: return Post::done;
    case -1: give(*op); return Post::again;
    default: give(*op); return Post::done;
  }
}

// ---- flushes and fences -----------------------------------------------------------------------------------

void Lane::begin_flush(Endpoint& e) noexcept {
  Op& flush = *e.flush;
  if (flush.kind == Op::Kind::flush) return;  // when it ends, waiting is looked at again
  if (e.ep == nullptr || e.failed) return fail_waiting(e);
  e.covered = e.waiting;
  e.waiting = {};
  e.dirty = false;
  flush.kind = Op::Kind::flush;
  const auto p = params(flush);
  switch (outcome(e, ucx_.ucp_ep_flush_nbx(e.ep, &p))) {
    case 1: return;
    case 0: return end_flush(e, true);
    default: return end_flush(e, false);
  }
}

void Lane::end_flush(Endpoint& e, bool ok) noexcept {
  e.flush->kind = Op::Kind::nothing;
  OpList covered = e.covered;
  e.covered = {};
  while (Op* op = covered.pop()) {
    if (!ok || e.failed) op->status = Status::peer_lost;
    part_done(*op);
  }
}

/// When UCX gives up an endpoint, it first ends the outstanding flush with UCS_OK and then reports the
/// failure (seen with 1.13 over its shared memory). So ops that finished together with a failure count as
/// lost.
void Lane::fail_doubtful() noexcept {
  for (Op* op = finished_.first; op != nullptr; op = op->next) {
    if (op->endpoint->failed && op->kind != Op::Kind::read && op->kind != Op::Kind::atomic)
      op->status = Status::peer_lost;
  }
}

// ---- ops that UCX forgets ---------------------------------------------------------------------------------

template <class F>
void Lane::for_each_op(const F& f) noexcept {
  for (std::uint32_t i = 0; i < outstanding_; ++i) f(*reinterpret_cast<Op*>(memory_ + i * op_bytes_));
  for (Block* block = blocks_; block != nullptr; block = block->next) {
    for (std::uint32_t i = 1; i <= block->ops; ++i)
      f(*reinterpret_cast<Op*>(reinterpret_cast<std::byte*>(block) + i * op_bytes_));
  }
}

/// UCX 1.13 does not call back for all ops when an endpoint is closed by force (those that waited for room in
/// a queue of its shared memory, some atomics over TCP). Their completions must run all the same.
void Lane::end_orphans() noexcept {
  const std::uint64_t now = now_ns();
  for (Endpoint& e : endpoints_) {
    if (e.given_up_ns == 0 || now - e.given_up_ns < kOrphanNs) continue;
    e.given_up_ns = 0;
    --given_up_;
    orphan(e);
  }
}

void Lane::orphan(Endpoint& e) noexcept {
  e.flush->orphan = true;
  e.flush->kind = Op::Kind::nothing;  // later fences to this peer end at once
  OpList waiting[] = {std::exchange(e.covered, {}), std::exchange(e.waiting, {})};
  for (OpList& list : waiting) {
    while (Op* op = list.pop()) {
      if (op->kind != Op::Kind::fence) continue;  // other kinds are found below
      op->status = Status::peer_lost;
      part_done(*op);
    }
  }
  std::uint32_t orphans = 0;
  for_each_op([&](Op& op) {
    if (op.endpoint != &e || op.parts == 0 || op.orphan) return;
    op.orphan = true;
    op.parts = 0;
    op.status = Status::peer_lost;
    finish(op);
    ++orphans;
  });
  // without memory fewer operations can be outstanding from here on
  if (orphans != 0) (void)replace(orphans);
}

/// Adds new ops to the free list. They are mapped, so a fault handler may call this.
bool Lane::replace(std::uint32_t ops) noexcept {
  const std::size_t bytes = round_up((std::size_t{ops} + 1) * op_bytes_, 4096);
  static_assert(sizeof(Block) <= sizeof(Op), "the block's head takes the place of an op");
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return false;
  blocks_ = new (memory) Block{blocks_, bytes, ops};
  for (std::uint32_t i = 1; i <= ops; ++i) {
    Op* op = new (static_cast<std::byte*>(memory) + i * op_bytes_) Op();
    op->lane = this;
    free_.push(*op);
  }
  return true;
}

void Lane::fail_waiting(Endpoint& e) noexcept {
  OpList waiting = e.waiting;
  e.waiting = {};
  e.dirty = false;
  while (Op* op = waiting.pop()) {
    op->status = Status::peer_lost;
    part_done(*op);
  }
}

// ---- progress ---------------------------------------------------------------------------------------------

void Lane::progress(CompletionBatch& out) noexcept {
  for (Op* part = fences_.take_all(); part != nullptr;) {
    Op* next = part->next;
    part->endpoint = &endpoints_[part->peer];
    part->parts = 0;
    // relaxed: as in take()
    open_.store(open_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    wait_for_flush(*part);
    part = next;
  }
  // relaxed: only a shortcut; the next call sees a peer that was lost meanwhile.
  if (lost_seen_ != peers_.lost_count.load(std::memory_order_relaxed)) abandon_lost();
  if (dirty_ != nullptr) flush_dirty();
  if (ucx_.ucp_worker_progress(worker_) != 0) out.moved = true;
  if (any_failed_) [[unlikely]]
    fail_doubtful();
  if (given_up_ != 0) [[unlikely]]
    end_orphans();
  if (dirty_ != nullptr) flush_dirty();
  while (out.count < CompletionBatch::kBatch) {
    Op* op = finished_.pop();
    if (op == nullptr) break;
    Completion* done = op->done;
    Status status = op->status;
    const std::uint32_t poster = op->poster;
    Fence* fence = op->fence;
    const bool is_fence = op->kind == Op::Kind::fence;
    give(*op);
    if (is_fence) {
      // relaxed: ordered by part_ended()
      if (status != Status::ok) fence->lost.store(1, std::memory_order_relaxed);
      done = nullptr;
      if (fence->part_ended()) {
        done = fence->done;
        status = fence->lost.load(std::memory_order_relaxed) != 0 ? Status::peer_lost : Status::ok;
        fence->claimed.store(0, std::memory_order_release);  // release: this thread has finished reading it
      }
    }
    out.moved = true;
    if (done == nullptr) continue;
    out.done[out.count++] = {done, status};
    out.for_others = out.for_others || poster != out.runner;
  }
}

bool Lane::arm() noexcept {
  if (finished_.first != nullptr || any_failed_ || given_up_ != 0) return false;  // orphans cause no event
  if (!fences_.empty()) return false;
  if (ucx_.ucp_worker_progress(worker_) != 0) return false;
  return ucx_.ucp_worker_arm(worker_) == UCS_OK;
}

bool Lane::serve() noexcept {
  constexpr int kLooks = 64;
  for (int i = 0; i < kLooks; ++i) {
    // relaxed: as in progress()
    if (lost_seen_ != peers_.lost_count.load(std::memory_order_relaxed) || dirty_ != nullptr) return false;
    if (arm()) return true;
    if (finished_.first != nullptr || any_failed_ || given_up_ != 0 || !fences_.empty()) return false;
  }
  return false;
}

// ---- the end ----------------------------------------------------------------------------------------------

Rank Lane::take_failed(ucs_status_t& why) noexcept {
  if (!any_failed_) [[likely]]
    return kNoRank;
  for (Endpoint& e : endpoints_) {
    if (!e.failed || e.why == UCS_OK) continue;
    why = e.why;
    e.why = UCS_OK;  // marks it as returned
    return Rank{e.peer};
  }
  any_failed_ = false;
  return kNoRank;
}

void Lane::abandon(std::uint32_t peer) noexcept {
  Endpoint& e = endpoints_[peer];
  e.failed = true;
  if (e.ep != nullptr) {
    e.given_up_ns = now_ns();
    ++given_up_;
    ucp_request_param_t p{};
    p.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    p.flags = UCP_EP_CLOSE_FLAG_FORCE;
    // UCX ends its ops by callbacks.
    ucs_status_ptr_t request = ucx_.ucp_ep_close_nbx(std::exchange(e.ep, nullptr), &p);
    if (UCS_PTR_IS_PTR(request)) ending_.push_back(request);
  }
  // Ops that wait here for a flush are in the dirty list, or covered by the flush that UCX has just ended.
  // progress() finishes them.
}

void Lane::abandon_lost() noexcept {
  lost_seen_ = peers_.lost_count.load(std::memory_order_acquire);  // acquire: the flags that it counts
  for (Endpoint& e : endpoints_) {
    // relaxed: the count was acquired
    if (e.ep != nullptr && peers_.lost[e.peer].load(std::memory_order_relaxed) != 0) abandon(e.peer);
  }
}

void Lane::flush_all() noexcept {
  ucp_request_param_t p{};
  ucs_status_ptr_t request = ucx_.ucp_worker_flush_nbx(worker_, &p);
  if (UCS_PTR_IS_PTR(request)) ending_.push_back(request);
}

void Lane::close_all() noexcept {
  for (Endpoint& e : endpoints_) {
    if (e.ep == nullptr) continue;
    ucp_request_param_t p{};
    p.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    p.flags = e.failed ? UCP_EP_CLOSE_FLAG_FORCE : 0;
    ucs_status_ptr_t request = ucx_.ucp_ep_close_nbx(std::exchange(e.ep, nullptr), &p);
    if (UCS_PTR_IS_PTR(request)) ending_.push_back(request);
  }
}

bool Lane::ended() noexcept {
  std::erase_if(ending_, [&](void* request) {
    if (ucx_.ucp_request_check_status(request) == UCS_INPROGRESS) return false;
    ucx_.ucp_request_free(request);
    return true;
  });
  return ending_.empty();
}

}  // namespace kasane::comm::ucx
#endif
