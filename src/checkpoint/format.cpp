// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/format.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>

#include "base/checksum.h"

namespace kasane::checkpoint {
namespace {

bool multiply_fits(std::uint64_t a, std::uint64_t b) noexcept {
  std::uint64_t product = 0;
  return !__builtin_mul_overflow(a, b, &product) && product <= (std::uint64_t{1} << 60);
}

}  // namespace

bool all_zero(const std::byte* bytes, std::size_t count) noexcept {
  // The first byte is zero, and each byte equals the one before it.
  return count == 0 || (bytes[0] == std::byte{0} && std::memcmp(bytes, bytes + 1, count - 1) == 0);
}

std::uint64_t chunk_word(const std::byte* chunk, std::size_t bytes) noexcept {
  if (all_zero(chunk, bytes)) return 0;
  const std::uint64_t word = checksum(chunk, bytes);
  return word != 0 ? word : 1;
}

Header make_header(const Contents& contents, std::span<const std::uint64_t> table) noexcept {
  const FileLayout layout(contents.bytes());
  Header h{};
  std::memcpy(h.magic, Header::kMagic, sizeof h.magic);
  h.version = Header::kVersion;
  h.byte_order = Header::kByteOrder;
  h.element_bytes = contents.element_bytes;
  h.count = contents.count;
  h.note = contents.note;
  h.chunk_bytes = kChunkBytes;
  h.chunks = layout.chunks;
  h.data_offset = layout.data_offset;
  h.type = contents.type;
  h.table_checksum = checksum(table.data(), table.size_bytes());
  h.header_checksum = checksum(&h, offsetof(Header, header_checksum));
  return h;
}

FileResult<void> check(const Header& h, std::uint64_t file_bytes, const std::string& path) {
  if (file_bytes < kHeaderBytes || std::memcmp(h.magic, Header::kMagic, sizeof h.magic) != 0)
    return refuse(EINVAL, fmt::format("{} is no checkpoint of Kasane ({} bytes)", path, file_bytes));
  if (h.byte_order != Header::kByteOrder) {
    // All versions have version and byte order at the same place.
    return refuse(EINVAL, h.byte_order == __builtin_bswap32(Header::kByteOrder)
                              ? path + " was written by a machine of the other byte order"
                              : path + ": the header is damaged");
  }
  if (h.version != Header::kVersion)
    return refuse(EINVAL, fmt::format("{} has format version {}; this program reads version {}", path,
                                      h.version, Header::kVersion));
  if (h.header_checksum != checksum(&h, offsetof(Header, header_checksum)))
    return refuse(EIO, path + ": the header is damaged (its checksum does not match)");
  const bool sane = multiply_fits(h.count, h.element_bytes) && h.chunk_bytes == kChunkBytes;
  const FileLayout layout(sane ? h.count * h.element_bytes : 0);
  if (!sane || h.chunks != layout.chunks || h.data_offset != layout.data_offset)
    return refuse(EINVAL, path + ": the header contradicts itself; another program wrote it");
  if (file_bytes == layout.file_bytes) return {};
  if (file_bytes > layout.file_bytes)
    return refuse(EIO, fmt::format("{} has {} bytes, {} more than its header says", path, file_bytes,
                                   file_bytes - layout.file_bytes));
  return refuse(
      EIO, file_bytes < layout.data_offset
               ? fmt::format("{} is cut off: it has {} of {} bytes; the table of chunks is incomplete", path,
                             file_bytes, layout.file_bytes)
               : fmt::format("{} is cut off: it has {} of {} bytes; chunk {} of {} is incomplete", path,
                             file_bytes, layout.file_bytes, (file_bytes - layout.data_offset) / kChunkBytes,
                             layout.chunks));
}

FileResult<void> check_wanted(const Header& h, const Contents& wanted, const std::string& path) {
  if (h.element_bytes != wanted.element_bytes)
    return refuse(EINVAL, fmt::format("{} holds elements of {} bytes; elements of {} bytes were asked for",
                                      path, h.element_bytes, wanted.element_bytes));
  if (h.type != wanted.type)
    return refuse(EINVAL, fmt::format("{} holds elements of type {}; type {} was asked for", path, h.type,
                                      wanted.type));
  if (h.count != wanted.count)
    return refuse(EINVAL,
                  fmt::format("{} holds {} elements; {} were asked for", path, h.count, wanted.count));
  return {};
}

}  // namespace kasane::checkpoint
