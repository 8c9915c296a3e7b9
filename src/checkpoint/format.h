// SPDX-License-Identifier: Apache-2.0
// The format of a checkpoint's file (docs/design/checkpoint.md):
//
//   0       header, 4 KiB          what it holds, and checksums of itself and of the table
//   4 KiB   table                  a word a chunk: its checksum, or 0 if it is all zeros and so a hole
//   data    chunk 0, chunk 1, …    64 KiB each but the last, at a multiple of 64 KiB
//
// Only where the bytes lie and whether they are right; file.h transfers them. Numbers have the byte order of
// the machine that wrote, which the header names.
// Thread safety: values and pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "checkpoint/error.h"

namespace kasane::checkpoint {

/// As the page of most arrays: a chunk then has one owner
inline constexpr std::uint64_t kChunkBytes = 64 << 10;
inline constexpr std::uint64_t kHeaderBytes = 4 << 10;

/// What a program declares of the bytes.
struct Contents {
  std::uint64_t count = 0, element_bytes = 1;
  std::uint64_t note = 0;  ///< the program's own
  std::uint32_t type = 0;  ///< of an element: the program's own; 0: not declared

  [[nodiscard]] std::uint64_t bytes() const noexcept { return count * element_bytes; }
};

/// Where things lie in the file of data_bytes bytes of data.
struct FileLayout {
  std::uint64_t bytes, chunks, data_offset, file_bytes;

  explicit constexpr FileLayout(std::uint64_t data_bytes) noexcept
      : bytes(data_bytes),
        chunks((data_bytes + kChunkBytes - 1) / kChunkBytes),
        data_offset((kHeaderBytes + chunks * sizeof(std::uint64_t) + kChunkBytes - 1) / kChunkBytes *
                    kChunkBytes),
        file_bytes(data_offset + data_bytes) {}
  [[nodiscard]] constexpr std::uint64_t offset_of(std::uint64_t chunk) const noexcept {
    return data_offset + chunk * kChunkBytes;
  }
  [[nodiscard]] constexpr std::uint64_t bytes_of(std::uint64_t chunk) const noexcept {
    return chunk + 1 < chunks ? kChunkBytes : bytes - chunk * kChunkBytes;
  }
};

/// The beginning of the file; the rest of its 4 KiB is zero.
struct Header {
  static constexpr char kMagic[8] = {'K', 'A', 'S', 'A', 'N', 'E', 'C', 'P'};
  static constexpr std::uint32_t kVersion = 1, kByteOrder = 0x01020304;

  char magic[8];
  std::uint32_t version, byte_order;
  std::uint64_t element_bytes, count, note, chunk_bytes, chunks, data_offset;
  std::uint32_t type, reserved;
  std::uint64_t table_checksum;
  std::uint64_t header_checksum;  ///< of all before it

  [[nodiscard]] Contents contents() const noexcept { return {count, element_bytes, note, type}; }
};
static_assert(sizeof(Header) == 88 && offsetof(Header, element_bytes) == 16 &&
              offsetof(Header, header_checksum) == 80);

/// A chunk's word in the table. 0 only if all bytes are zero.
[[nodiscard]] std::uint64_t chunk_word(const std::byte* chunk, std::size_t bytes) noexcept;
[[nodiscard]] bool all_zero(const std::byte* bytes, std::size_t count) noexcept;

[[nodiscard]] Header make_header(const Contents&, std::span<const std::uint64_t> table) noexcept;
/// Is it a whole header that this program can read, of a file of file_bytes bytes? `path` is for the error:
/// EINVAL where the file is no checkpoint or one that cannot be read here, EIO where it is damaged.
[[nodiscard]] FileResult<void> check(const Header&, std::uint64_t file_bytes, const std::string& path);
/// Does the file hold what the program asks for?
[[nodiscard]] FileResult<void> check_wanted(const Header&, const Contents& wanted, const std::string& path);

}  // namespace kasane::checkpoint
