// SPDX-License-Identifier: Apache-2.0
// Direct access to the program's variables in a job of one rank (one_rank_variables.h): executed at once by
// the calling thread, piece by piece. Pieces of one operation may lie in variables and in V.
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>

#include "comm/cpu_atomic.h"
#include "comm/engine/accumulate.h"
#include "runtime/api/direct.h"
#include "ult/runtime_section.h"

namespace kasane::runtime {
namespace {

comm::Cursor contiguous(std::uint64_t bytes) noexcept {
  return comm::Cursor(comm::Strides{.dimensions = 1, .count = {bytes}});
}

std::byte* at(const void* base, std::uint64_t offset) noexcept {
  return static_cast<std::byte*>(const_cast<void*>(base)) + offset;
}

/// As the owner's of a region: one set for all variables.
comm::StripeLock* accumulate_locks() {
  static std::once_flag once;
  static std::unique_ptr<comm::StripeLock[]> locks;
  std::call_once(once, [] { locks = std::make_unique<comm::StripeLock[]>(comm::kStripes); });
  return locks.get();
}

/// Elements at both ends are aligned to their parts, and rows are whole elements.
bool right_elements(comm::Element element, const std::byte* y, const std::byte* x,
                    std::uint64_t bytes) noexcept {
  const std::size_t size = comm::element_bytes(element);
  const bool complex = element == comm::Element::complex64 || element == comm::Element::complex128;
  const auto ends = reinterpret_cast<std::uintptr_t>(y) | reinterpret_cast<std::uintptr_t>(x);
  return ends % (complex ? size / 2 : size) == 0 && bytes % size == 0;
}

}  // namespace

/// Calls here(global, local, bytes) for each piece in a variable, and elsewhere(global, local, cursor of the
/// piece) for the others.
template <class Here, class Elsewhere>
Result<void> Direct::each_piece(const void* global, const void* local, comm::Cursor cursor, const char* what,
                                const Here& here, const Elsewhere& elsewhere) {
  for (; !cursor.done(); cursor.consume(cursor.piece().bytes)) {
    const comm::Piece piece = cursor.piece();
    std::byte* const there = at(global, piece.remote_offset);
    if (variables_.contains(there, piece.bytes)) {
      KASANE_TRY(here(there, at(local, piece.local_offset), piece.bytes));
    } else if (variables_.contains(there)) {
      return outside(there, what);
    } else {
      KASANE_TRY(elsewhere(there, at(local, piece.local_offset), contiguous(piece.bytes)));
    }
  }
  return {};
}

Result<void> Direct::get_variables(void* to, const void* from, const comm::Cursor& cursor) {
  return each_piece(
      from, to, cursor, "get",
      [](const std::byte* global, std::byte* local, std::uint64_t bytes) -> Result<void> {
        std::memcpy(local, global, bytes);
        return {};
      },
      [this](const std::byte* global, std::byte* local, const comm::Cursor& piece) {
        return get(local, global, piece, nullptr);
      });
}

Result<void> Direct::put_variables(void* to, const void* from, const comm::Cursor& cursor) {
  return each_piece(
      to, from, cursor, "put",
      [](std::byte* global, const std::byte* local, std::uint64_t bytes) -> Result<void> {
        std::memcpy(global, local, bytes);
        return {};
      },
      [this](std::byte* global, const std::byte* local, const comm::Cursor& piece) {
        return put(global, local, piece, nullptr);
      });
}

Result<void> Direct::accumulate_variables(void* to, const void* from, const comm::Cursor& cursor,
                                          comm::Element element, std::complex<double> scale) {
  comm::StripeLock* locks = nullptr;
  {
    const ult::RuntimeSection section;  // private memory
    locks = accumulate_locks();
  }
  return each_piece(
      to, from, cursor, "accumulate",
      [&](std::byte* global, const std::byte* local, std::uint64_t bytes) -> Result<void> {
        if (!right_elements(element, global, local, bytes))
          return fail(Errc::invalid_argument,
                      "accumulate: both sides must be aligned to their elements, and rows whole elements");
        // The arithmetic is done under a lock, where x must not fault.
        alignas(16) std::byte x[2048];
        for (std::uint64_t done = 0; done < bytes; done += sizeof x) {
          const std::uint64_t n = std::min<std::uint64_t>(sizeof x, bytes - done);
          std::memcpy(x, local + done, n);
          comm::accumulate(element, scale, global + done, x, n, locks, comm::RegionId{},
                           reinterpret_cast<std::uintptr_t>(global + done));
        }
        return {};
      },
      [&](std::byte* global, const std::byte* local, const comm::Cursor& piece) {
        return accumulate(global, local, piece, element, scale, nullptr);
      });
}

Result<void> Direct::copy_variables(void* to, const void* from, std::uint64_t bytes) {
  const bool to_variable = variables_.contains(to), from_variable = variables_.contains(from);
  if (to_variable && !variables_.contains(to, bytes)) return outside(to, "copy");
  if (from_variable && !variables_.contains(from, bytes)) return outside(from, "copy");
  if (!to_variable) return put(to, from, contiguous(bytes), nullptr);
  if (!from_variable) return get(to, from, contiguous(bytes), nullptr);
  std::memcpy(to, from, bytes);
  return {};
}

Result<void> Direct::atomic_in_variable(comm::AtomicOp op, comm::Width width, void* word,
                                        std::uint64_t operand, std::uint64_t compare, OldValue old) {
  const auto bytes = static_cast<std::uint64_t>(width);
  if (!variables_.contains(word, bytes)) return outside(word, "atomic");
  if (reinterpret_cast<std::uintptr_t>(word) % bytes != 0)
    return fail(Errc::invalid_argument, "atomic: the address must be a multiple of the width");
  const std::uint64_t before = comm::cpu_atomic(op, width, static_cast<std::byte*>(word), operand, compare);
  old.store(before);
  return {};
}

Result<void> Direct::outside(const void* p, const char* what) {
  char text[64];
  std::snprintf(text, sizeof text, "%s: %p is not (wholly) in global memory", what, p);
  const ult::RuntimeSection section;
  return fail(Errc::out_of_range, text);
}

}  // namespace kasane::runtime
