// SPDX-License-Identifier: Apache-2.0
// Files of checkpoints. Checksums and sizes would hide all that lies behind them, so some of the inputs get
// those that are right.
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "base/checksum.h"
#include "checkpoint/file.h"
#include "fuzz.h"

using namespace kasane::checkpoint;
using kasane::fuzz::expect;

namespace {

void make_checksums_right(std::string& file, bool sizes) {
  if (file.size() < sizeof(Header)) return;
  Header h;
  std::memcpy(&h, file.data(), sizeof(h));
  if (sizes && h.count < 1024 && h.element_bytes < 1024) {
    const FileLayout layout(h.count * h.element_bytes);
    h.chunk_bytes = kChunkBytes;
    h.chunks = layout.chunks;
    h.data_offset = layout.data_offset;
    file.resize(layout.file_bytes);
  }
  std::memcpy(h.magic, Header::kMagic, sizeof(h.magic));
  h.version = Header::kVersion;
  h.byte_order = Header::kByteOrder;
  if (file.size() > kHeaderBytes) {
    const std::size_t table = std::min<std::uint64_t>(h.chunks * 8, file.size() - kHeaderBytes);
    h.table_checksum = kasane::checksum(file.data() + kHeaderBytes, table);
  }
  h.header_checksum = kasane::checksum(&h, offsetof(Header, header_checksum));
  std::memcpy(file.data(), &h, sizeof(h));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  static const int fd = ::memfd_create("fuzz", MFD_CLOEXEC);
  static const std::string path = "/proc/self/fd/" + std::to_string(fd);
  kasane::fuzz::Input input(bytes, size);
  const std::uint32_t right = input.below(3);
  std::string file(input.rest().substr(0, 1 << 20));
  if (right != 0) make_checksums_right(file, right == 2);
  expect(::ftruncate(fd, 0) == 0 &&
             ::pwrite(fd, file.data(), file.size(), 0) == static_cast<ssize_t>(file.size()),
         "writing the file");
  const auto old = OldFile::open(path);
  if (!old) {
    expect(old.error().code == EINVAL || old.error().code == EIO, "an error of the file");
    return 0;
  }
  const FileLayout layout(old->header().contents().bytes());
  expect(layout.file_bytes <= file.size(), "the file holds what its header says");
  std::vector<std::byte> chunk(kChunkBytes);
  for (std::uint64_t c = 0; c < layout.chunks; ++c)
    if (!old->is_hole(c)) (void)old->read(std::span(chunk).first(layout.bytes_of(c)), c);
  return 0;
}
