// SPDX-License-Identifier: Apache-2.0
// Checkpoints by one process, without a runtime.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/file.h"
#include "support/folder.h"

namespace kasane::checkpoint {

using test::Folder;
using Bytes = std::vector<std::byte>;

inline Bytes pattern(std::size_t bytes, unsigned seed) {
  Bytes b(bytes);
  for (std::size_t i = 0; i < bytes; ++i) b[i] = static_cast<std::byte>(1 + (i * 7 + i / 251 + seed) % 255);
  return b;
}

/// As one rank does it: create, write what is not zero, commit.
inline FileResult<void> save(const std::string& path, std::span<const std::byte> data, std::uint64_t note = 0,
                             bool named = false) {
  const Contents contents{data.size(), 1, note, 3};
  const FileLayout layout(data.size());
  auto file = create(path, layout, named);
  if (!file) return tl::unexpected(file.error());
  std::vector<std::uint64_t> table(layout.chunks);
  for (std::uint64_t c = 0; c < layout.chunks; ++c) {
    const auto chunk = data.subspan(c * kChunkBytes, layout.bytes_of(c));
    table[c] = chunk_word(chunk.data(), chunk.size());
    if (table[c] == 0) continue;
    if (auto written = write(file->fd, chunk, c, layout, path); !written) {
      abandon(*file, path);
      return written;
    }
  }
  return commit(*file, contents, table, path);
}

inline FileResult<Bytes> load(const std::string& path) {
  const auto file = OldFile::open(path);
  if (!file) return tl::unexpected(file.error());
  Bytes data(file->header().contents().bytes());
  if (auto read = file->read(data, 0); !read) return tl::unexpected(read.error());
  return data;
}

}  // namespace kasane::checkpoint
