// SPDX-License-Identifier: Apache-2.0
// Transfers of data too large for a message, straight between the memories of two ranks: by a send and a
// receive that match by tag, or by a put or get through a window. MPI counts bytes in an int, so a transfer
// goes in parts, each started when the one before has ended.
//
// Thread safety: under the library's lock.
// Invariant: both ends cut a transfer into the same parts, in the same order.
#pragma once

#include <algorithm>
#include <vector>

#include "comm/mpi/library.h"
#include "comm/mpi/wire.h"

namespace kasane::comm::mpi {

struct Bulk {
  enum class Way : std::uint8_t { none, send, receive, put, get };
  Way way = Way::none;
  bool mine = false;       ///< of an operation that this rank posted
  std::uint16_t slot = 0;  ///< of the poster
  std::uint32_t peer = 0;
  std::byte* at = nullptr;
  std::uint64_t left = 0;  ///< bytes whose transfer has not begun
  Window window{};
  std::uint64_t offset = 0;  ///< in the window
  int tag = 0;
  // At the owner: the flag to be set after the data.
  bool notify = false;
  std::uint16_t region = 0;
  std::uint64_t flag_offset = 0, flag_value = 0;
};

class BulkTable {
 public:
  static constexpr std::size_t kCapacity = 128;

  BulkTable(Library& library, Communicator channel) : table_(library.table()), channel_(channel) {
    active_.reserve(kCapacity);
  }

  [[nodiscard]] bool full() const noexcept { return active_.size() == kCapacity; }
  [[nodiscard]] bool empty() const noexcept { return active_.empty(); }
  /// Returns the MPI's error code. Not when full().
  int start(const Bulk& bulk) noexcept {
    active_.push_back({.bulk = bulk, .request = {}});  // reserved: does not allocate
    const int code = next_part(active_.back());
    if (code != 0) active_.pop_back();
    return code;
  }
  /// Makes progress on all transfers; calls ended(const Bulk&, int code) for each that has ended.
  template <class Ended>
  void poll(const Ended& ended) noexcept {
    for (std::size_t i = 0; i < active_.size();) {
      bool done = false;
      int code = table_.test(&active_[i].request, &done, nullptr);
      if (code == 0 && done && active_[i].bulk.left != 0) {
        code = next_part(active_[i]);
        done = false;
      }
      if (code == 0 && !done) {
        ++i;
        continue;
      }
      const Bulk bulk = active_[i].bulk;
      active_[i] = active_.back();
      active_.pop_back();
      // A request's end says only that the data has left.
      if (code == 0 && bulk.way == Bulk::Way::put) code = table_.flush(bulk.window, bulk.peer);
      ended(bulk, code);
    }
  }

 private:
  static constexpr std::uint64_t kPart = std::uint64_t{1} << 30;
  struct Active {
    Bulk bulk;
    Request request;
  };

  int next_part(Active& a) noexcept {
    Bulk& b = a.bulk;
    const auto part = static_cast<std::uint32_t>(std::min(b.left, kPart));
    std::byte* const at = b.at;
    const std::uint64_t offset = b.offset;
    b.at += part;
    b.offset += part;
    b.left -= part;
    switch (b.way) {
      case Bulk::Way::send: return table_.send(channel_, at, part, b.peer, b.tag, &a.request);
      case Bulk::Way::receive:
        return table_.receive(channel_, at, part, static_cast<int>(b.peer), b.tag, &a.request);
      case Bulk::Way::put: return table_.request_put(b.window, at, part, b.peer, offset, &a.request);
      case Bulk::Way::get: return table_.request_get(b.window, at, part, b.peer, offset, &a.request);
      case Bulk::Way::none: break;
    }
    return 0;
  }

  const Module& table_;
  Communicator channel_;
  std::vector<Active> active_;
};

}  // namespace kasane::comm::mpi
