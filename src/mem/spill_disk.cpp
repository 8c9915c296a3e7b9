// SPDX-License-Identifier: Apache-2.0
#include "mem/spill_disk.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <filesystem>
#include <fstream>

namespace kasane::mem {
namespace {

namespace fs = std::filesystem;

/// The disk of a partition, or the device under a volume that lies on one device.
fs::path disk_under(fs::path device) {
  std::error_code error;
  for (;;) {
    if (fs::exists(device / "partition", error)) {
      device = device.parent_path();
      continue;
    }
    const fs::directory_iterator first(device / "slaves", error), end;
    if (error || first == end) return device;
    if (std::next(fs::directory_iterator(device / "slaves", error)) != end) return {};
    device = fs::canonical(first->path(), error);
    if (error) return {};
  }
}

}  // namespace

std::optional<SpillDisk> spill_disk(const std::string& directory, const std::string& devices) {
  struct stat s{};
  if (::stat(directory.c_str(), &s) != 0) return {};
  std::error_code error;
  const fs::path device =
      fs::canonical(fmt::format("{}/{}:{}", devices, major(s.st_dev), minor(s.st_dev)), error);
  if (error) return {};
  const fs::path disk = disk_under(device), setting = disk / "queue" / "rq_affinity";
  int value = 0;
  if (disk.empty() || !(std::ifstream(setting) >> value)) return {};
  // Shorter, where it is the same
  const fs::path usual = fs::path("/sys/block") / disk.filename() / "queue" / "rq_affinity";
  return SpillDisk{fs::equivalent(usual, setting, error) ? usual.string() : setting.string(), value == 2};
}

}  // namespace kasane::mem
