// SPDX-License-Identifier: Apache-2.0
#include "gas/access.h"

#include <algorithm>
#include <string>

namespace kasane::gas {
namespace {

/// Calls piece(page, offset, bytes done so far, bytes) for the part of the range in each page, until one fails.
template <class F>
Result<void> for_each_page(std::uint64_t offset, std::size_t bytes, const F& piece) {
  for (std::size_t done = 0; done < bytes;) {
    const std::uint64_t at = offset + done;
    const std::size_t n = std::min<std::size_t>(bytes - done, mem::kPageBytes - at % mem::kPageBytes);
    if (!piece(mem::page_of(at), at, done, n)) {
      return fail(Errc::out_of_range, "global offset " + std::to_string(at) + " is not allocated");
    }
    done += n;
  }
  return {};
}

}  // namespace

Result<void> get(comm::Blocking& io, AddressCache& addresses, void* local, std::uint64_t offset, std::size_t bytes) {
  return for_each_page(offset, bytes, [&](PageId page, std::uint64_t at, std::size_t done, std::size_t n) {
    const Rank owner = addresses.find(io, page);
    if (owner == kNoRank) return false;
    io.read({owner, kFrames, at}, static_cast<std::byte*>(local) + done, n);
    return true;
  });
}

Result<void> put(comm::Blocking& io, AddressCache& addresses, std::uint64_t offset, const void* local, std::size_t bytes) {
  return for_each_page(offset, bytes, [&](PageId page, std::uint64_t at, std::size_t done, std::size_t n) {
    const AddressCache::Put put(addresses, io, page);
    if (put.owner() == kNoRank) return false;
    io.write({put.owner(), kFrames, at}, static_cast<const std::byte*>(local) + done, n);
    return true;
  });
}

}  // namespace kasane::gas
