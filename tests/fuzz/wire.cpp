// SPDX-License-Identifier: Apache-2.0
// Messages between ranks, of the engine, UCX and MPI: what is accepted lies within the message, and can be
// applied to memory.
#include "comm/engine/wire.h"

#include <cstdint>
#include <vector>

#include "comm/cpu_atomic.h"
#include "comm/engine/accumulate.h"
#include "comm/mpi/wire.h"
#include "comm/ucx/wire.h"
#include "fuzz.h"

using namespace kasane::comm;
using kasane::fuzz::expect;

namespace {

using Bytes = std::span<const std::byte>;

/// As the engine applies a pack to its region.
void engine(Bytes rest) {
  static std::vector<std::uint64_t> region(512);
  static StripeLock locks[kStripes];
  auto* const memory = reinterpret_cast<std::byte*>(region.data());
  while (!rest.empty()) {
    wire::Entry e;
    Bytes data;
    const std::size_t before = rest.size();
    if (!wire::take(rest, e, data)) return;
    expect(rest.size() < before && data.size() == e.bytes, "an entry is taken");
    if (e.bytes > 4096 || e.offset > 4096 - e.bytes) continue;
    std::byte* const to = memory + e.offset;
    std::uint64_t flag = 0;
    switch (e.kind) {
      case wire::EntryKind::write: std::copy(data.begin(), data.end(), to); break;
      case wire::EntryKind::flag: std::memcpy(&flag, data.data(), sizeof(flag)); break;
      case wire::EntryKind::accumulate:
        accumulate(e.element, {1.0, 0.0}, to, data.data(), e.bytes, locks, RegionId{e.region}, e.offset);
    }
  }
}

void mpi_answer(Bytes rest) {
  while (!rest.empty()) {
    mpi::Record r;
    Bytes data;
    const std::size_t before = rest.size();
    if (!mpi::take(rest, r, data)) return;
    expect(rest.size() < before, "a record is taken");
    expect(std::vector<std::byte>(data.begin(), data.end()).size() == data.size(), "its data are there");
  }
}

/// As the owner of memory and handlers looks at a request.
void mpi_request(Bytes bytes) {
  constexpr std::uint32_t kSlots = 64;
  mpi::RequestHead head;
  if (bytes.size() < sizeof(head)) return;
  std::memcpy(&head, bytes.data(), sizeof(head));
  const Bytes data = bytes.subspan(sizeof(head));
  if (!mpi::well_formed(head, data.size(), kSlots)) return;
  expect(head.slot < kSlots && head.kind <= mpi::MessageKind::bulk_read, "a request of a rank");
  const bool handled = head.kind == mpi::MessageKind::send || head.kind == mpi::MessageKind::request;
  expect(!handled || (head.name < kMaxHandlers && data.size() <= kMaxPayload), "a message of a handler");
  const bool written = head.kind == mpi::MessageKind::write || head.kind == mpi::MessageKind::write_notify;
  expect(!written || head.bytes == data.size(), "a write of the bytes that came");
  expect(head.kind != mpi::MessageKind::read || head.bytes <= mpi::kInline, "an answer that has room");
  if (head.kind != mpi::MessageKind::atomic) return;
  alignas(8) std::byte word[8]{};
  cpu_atomic(head.op, head.width, word, head.first, head.second);
}

void ucx_message(Bytes bytes) {
  constexpr std::uint32_t kRanks = 4;
  ucx::Head head;
  if (bytes.size() < sizeof(head)) return;
  std::memcpy(&head, bytes.data(), sizeof(head));
  const Bytes payload = bytes.subspan(sizeof(head));
  if (!ucx::well_formed(head, payload.size(), kRanks)) return;
  expect(head.from < kRanks && head.kind <= ucx::Wire::bye, "a message of a rank");
  const bool queued = head.kind == ucx::Wire::message || head.kind == ucx::Wire::request;
  expect(!queued || payload.size() <= kMaxPayload, "a message that has room in the inbox");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  if (size == 0) return 0;
  // A copy of its own: aligned as messages are, and whose ends the sanitizer knows.
  std::vector<std::uint64_t> words((size + 6) / 8);
  if (size > 1) std::memcpy(words.data(), bytes + 1, size - 1);
  const Bytes message = std::as_bytes(std::span(words)).first(size - 1);
  switch (bytes[0] % 4) {
    case 0: engine(message); break;
    case 1: mpi_answer(message); break;
    case 3: mpi_request(message); break;
    default: ucx_message(message);
  }
  return 0;
}
