// SPDX-License-Identifier: Apache-2.0
// in_memory_group LIMIT DIRECTORY PROGRAM [ARGUMENT]…: runs the program in a memory control group of LIMIT
// (with K, M or G) and says what it used at most. Above the limit the kernel takes back what can be written
// elsewhere, and kills where nothing can; so a program that ends well has kept to it. Status: the program's;
// 1 also if the kernel has killed any of its processes; 77 (skipped) where no group can be made, or where
// DIRECTORY, in which the program spills, is memory itself.
#include <linux/magic.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>

#include "base/options.h"
#include "guarded.h"
#include "memory_group.h"

namespace {

using kasane::bytes_text;
using kasane::bench::MemoryGroup;

constexpr int kSkipped = 77;

int skip(const char* why) {
  std::printf("skipped: %s\n", why);
  return kSkipped;
}

std::string mib_text(std::uint64_t bytes) { return bytes_text((bytes + (1 << 20) - 1) >> 20 << 20); }

bool in_memory(const char* directory) {
  struct statfs s{};
  return ::statfs(directory, &s) == 0 && (s.f_type == TMPFS_MAGIC || s.f_type == RAMFS_MAGIC);
}

}  // namespace

int main(int argc, char** argv) {
  const auto limit = kasane::parse_bytes(argc > 3 ? argv[1] : "");
  if (!limit || *limit == 0) {
    std::fprintf(stderr, "usage: in_memory_group LIMIT DIRECTORY PROGRAM [ARGUMENT]...\n");
    return 2;
  }
  if (in_memory(argv[2])) return skip("the spill directory is memory, which counts in the group");
  const MemoryGroup group("kasane-test." + std::to_string(::getpid()), *limit);
  if (!group.good()) return skip("no memory control group can be made here (root may)");
  // In a process of its own, so that the group is empty when it is to go.
  const int status = kasane::bench::run_guarded("in_memory_group", [&]() -> int {
    if (!group.enter())
      throw std::runtime_error(std::string("cannot enter the control group: ") + std::strerror(errno));
    ::execvp(argv[3], argv + 3);
    throw std::runtime_error(std::string(argv[3]) + ": " + std::strerror(errno));
  });
  const auto peak = group.peak(), killed = group.killed();
  std::printf("memory control group of %s: at most %s in use; %s processes killed; status %d\n",
              bytes_text(*limit).c_str(), peak ? mib_text(*peak).c_str() : "?",
              killed ? std::to_string(*killed).c_str() : "?", status);
  return status == 0 && killed.value_or(0) != 0 ? 1 : status;
}
