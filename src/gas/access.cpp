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

Result<void> get(comm::Blocking& io, const Directory& directory, void* local, std::uint64_t offset, std::size_t bytes) {
  return for_each_page(offset, bytes, [&](PageId page, std::uint64_t at, std::size_t done, std::size_t n) {
    const Location where = directory.lookup(io, page);
    if (!where.allocated) return false;
    io.read({where.owner, kFrames, at}, static_cast<std::byte*>(local) + done, n);
    return true;
  });
}

Result<void> put(comm::Blocking& io, const Directory& directory, std::uint64_t offset, const void* local, std::size_t bytes) {
  return for_each_page(offset, bytes, [&](PageId page, std::uint64_t at, std::size_t done, std::size_t n) {
    const Rank owner = directory.begin_put(io, page);
    if (owner == kNoRank) return false;
    io.write({owner, kFrames, at}, static_cast<const std::byte*>(local) + done, n);
    directory.end_put(io, page);
    return true;
  });
}

}  // namespace kasane::gas
