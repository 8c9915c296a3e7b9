// SPDX-License-Identifier: Apache-2.0
#include "comm/group.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/assert.h"
#include "comm/collective_core.h"

namespace kasane::comm {
namespace {

/// What must be equal on all members (root: 20 bits, size: 32 bits); each message carries it.
std::uint64_t signature_of(const Plan& p) noexcept {
  const auto type =
      static_cast<std::uint64_t>(p.reduction.scalar) << 4 | static_cast<std::uint64_t>(p.reduction.op);
  return static_cast<std::uint64_t>(p.collective) << 60 | type << 52 |
         (std::uint64_t{p.root} & 0xFFFFF) << 32 | (p.bytes & 0xFFFFFFFF);
}

}  // namespace

// ---- Ticket -----------------------------------------------------------------------------------------------

Ticket::Ticket(CollectiveCore& core, GroupState& group, std::unique_ptr<CollectiveOperation> op) noexcept
    : core_(&core), group_(&group), operation_(std::move(op)) {}
Ticket::Ticket() noexcept = default;
Ticket::Ticket(Ticket&&) noexcept = default;
Ticket& Ticket::operator=(Ticket&& other) noexcept {
  if (this == &other) return *this;
  release();
  core_ = other.core_;
  group_ = other.group_;
  waiter_ = other.waiter_;
  operation_ = std::move(other.operation_);
  return *this;
}
Ticket::~Ticket() { release(); }

void Ticket::release() noexcept {
  if (operation_ == nullptr) return;
  wait();
  group_->give_spare(std::move(operation_));
}

bool Ticket::test() noexcept {
  KASANE_CHECK(operation_ != nullptr, "test() of an empty ticket");
  if (operation_->done.load(std::memory_order_acquire)) return true;  // acquire: the results
  core_->step();
  return operation_->done.load(std::memory_order_acquire);  // acquire: the same
}

Status Ticket::wait() { return wait(*waiter_); }

Status Ticket::wait(Waiter& waiter) {
  waiter.until([this] { return test(); });
  return operation_->status;
}

// ---- Group ------------------------------------------------------------------------------------------------

Group::~Group() { core_.close(state_, *waiter_); }

std::uint32_t Group::rank() const noexcept { return state_.me(); }
std::uint32_t Group::size() const noexcept { return state_.members(); }
Rank Group::member(std::uint32_t number) const noexcept {
  KASANE_CHECK_OP(number, <, size());
  return state_.member(number);
}

Ticket Group::start(Plan plan) {
  plan.me = rank();
  plan.members = size();
  auto op = state_.take_spare();
  op->signature = signature_of(plan);
  op->schedule.build(plan);
  state_.start(*op);
  Ticket ticket(core_, state_, std::move(op));
  ticket.waiter_ = waiter_;
  return ticket;
}

void Group::finish(Ticket ticket) {
  KASANE_CHECK(ticket.wait() == Status::ok, "a member of the group was lost in a blocking collective");
}

Ticket Group::start_barrier() { return start({.collective = Collective::barrier}); }

Ticket Group::start_broadcast(std::uint32_t root, std::span<std::byte> bytes) {
  return start(
      {.collective = Collective::broadcast, .root = root, .out = bytes.data(), .bytes = bytes.size()});
}

Ticket Group::start_reduce(const Reduction& r, std::uint32_t root, std::span<std::byte> values) {
  KASANE_CHECK_OP(values.size() % r.element_bytes, ==, 0u);
  return start({.collective = Collective::reduce,
                .root = root,
                .out = values.data(),
                .bytes = values.size(),
                .reduction = r});
}

Ticket Group::start_allreduce(const Reduction& r, std::span<std::byte> values) {
  KASANE_CHECK_OP(values.size() % r.element_bytes, ==, 0u);
  return start(
      {.collective = Collective::allreduce, .out = values.data(), .bytes = values.size(), .reduction = r});
}

Ticket Group::start_gather(std::uint32_t root, std::span<const std::byte> in, std::span<std::byte> out) {
  if (rank() == root) KASANE_CHECK_OP(out.size(), ==, in.size() * size());
  return start({.collective = Collective::gather,
                .root = root,
                .out = out.data(),
                .in = in.data(),
                .bytes = in.size()});
}

Ticket Group::start_allgather(std::span<const std::byte> in, std::span<std::byte> out) {
  KASANE_CHECK_OP(out.size(), ==, in.size() * size());
  return start({.collective = Collective::allgather, .out = out.data(), .in = in.data(), .bytes = in.size()});
}

Ticket Group::start_alltoall(std::span<const std::byte> in, std::span<std::byte> out) {
  KASANE_CHECK_OP(in.size(), ==, out.size());
  KASANE_CHECK_OP(in.size() % size(), ==, 0u);
  return start(
      {.collective = Collective::alltoall, .out = out.data(), .in = in.data(), .bytes = in.size() / size()});
}

Ticket Group::start_scan(const Reduction& r, std::span<std::byte> values, Scan kind) {
  KASANE_CHECK_OP(values.size() % r.element_bytes, ==, 0u);
  const auto collective = kind == Scan::inclusive ? Collective::scan : Collective::exscan;
  return start({.collective = collective, .out = values.data(), .bytes = values.size(), .reduction = r});
}

// ---- new groups -------------------------------------------------------------------------------------------

std::unique_ptr<Group> Group::split(std::uint32_t colour, std::uint32_t key) {
  struct Choice {
    std::uint32_t colour, key;
  };
  const Choice mine{colour, key};
  std::vector<Choice> all(size());
  allgather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
  std::vector<std::uint32_t> members;
  for (std::uint32_t i = 0; colour != kNoColour && i < size(); ++i) {
    if (all[i].colour == colour) members.push_back(i);
  }
  std::stable_sort(members.begin(), members.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return all[a].key < all[b].key; });
  return core_.make_group(*this, members);
}

std::unique_ptr<Group> Group::subset(std::span<const std::uint32_t> numbers) {
  const bool in_it = std::find(numbers.begin(), numbers.end(), rank()) != numbers.end();
  return core_.make_group(*this, in_it ? numbers : std::span<const std::uint32_t>{});
}

}  // namespace kasane::comm
