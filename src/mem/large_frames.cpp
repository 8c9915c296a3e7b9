// SPDX-License-Identifier: Apache-2.0
#include "mem/large_frames.h"

#include <sys/mman.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string_view>

namespace kasane::mem {
namespace {

/// The word in brackets.
std::string chosen(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  const auto open = line.find('['), close = line.find(']');
  return close != std::string::npos ? line.substr(open + 1, close - open - 1) : "never";
}

bool given(const std::string& word) {
  return word == "advise" || word == "always" || word == "within_size" || word == "force";
}

}  // namespace

std::uint64_t large_frame_bytes(const std::string& folder) {
  constexpr std::string_view kPrefix = "hugepages-";  // followed by "64kB", for example
  std::uint64_t largest = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename();
    if (name.rfind(kPrefix, 0) != 0) continue;
    std::string word = chosen(entry.path().string() + "/shmem_enabled");
    if (word == "inherit") word = chosen(folder + "/shmem_enabled");
    if (given(word))
      largest = std::max<std::uint64_t>(largest, std::stoull(name.substr(kPrefix.size())) << 10);
  }
  return largest;
}

void ask_for_large_frames(std::byte* address, std::uint64_t offset, std::uint64_t bytes,
                          std::uint64_t page_bytes, std::uint64_t frame_bytes) noexcept {
  if (frame_bytes == 0 || frame_bytes > page_bytes) return;
  // A frame lies at a multiple of its size in the file. It is mapped as one frame where the address is such a
  // multiple, too.
  if ((reinterpret_cast<std::uintptr_t>(address) - offset) % frame_bytes == 0)
    ::madvise(address, bytes, MADV_HUGEPAGE);
}

}  // namespace kasane::mem
