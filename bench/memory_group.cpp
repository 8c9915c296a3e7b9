// SPDX-License-Identifier: Apache-2.0
#include "memory_group.h"

#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

namespace kasane::bench {
namespace {

namespace fs = std::filesystem;

bool put(const std::string& file, const std::string& text) {
  return static_cast<bool>(std::ofstream(file) << text << std::flush);
}

/// Folders in which a group may be made: of version 1, then of 2, this process's own before the root.
std::vector<std::string> places() {
  std::vector<std::string> one, two;
  std::ifstream groups("/proc/self/cgroup");
  // "id:controllers:path"; version 2 has no controllers
  for (std::string line; std::getline(groups, line);) {
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1),
                      path = line.substr(second + 1) == "/" ? "" : line.substr(second + 1);
    if (("," + controllers + ",").find(",memory,") != std::string::npos)
      one = {"/sys/fs/cgroup/memory" + path, "/sys/fs/cgroup/memory"};
    if (controllers.empty()) two = {"/sys/fs/cgroup" + path, "/sys/fs/cgroup"};
  }
  one.insert(one.end(), two.begin(), two.end());
  return one;
}

/// Those inside may take a moment to go.
void remove(const std::string& path) {
  std::error_code error;
  for (int i = 0; i < 100 && !fs::remove(path, error); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

}  // namespace

MemoryGroup::MemoryGroup(const std::string& name, std::uint64_t limit_bytes, Swap swap) {
  for (const std::string& place : places()) {
    const std::string path = place + "/" + name;
    std::error_code error;
    // version 2; if it is on already or may not be changed, the next lines find out
    put(place + "/cgroup.subtree_control", "+memory");
    if (!fs::create_directory(path, error)) continue;
    const bool two = fs::exists(path + "/memory.max", error);
    const std::string limit = std::to_string(limit_bytes);
    const bool bounded =
        limit_bytes == kNoLimit || put(path + (two ? "/memory.max" : "/memory.limit_in_bytes"), limit);
    if (bounded && (two || fs::exists(path + "/memory.limit_in_bytes", error))) {
      // neither file: no swap
      if (limit_bytes != kNoLimit && swap == Swap::none)
        put(path + (two ? "/memory.swap.max" : "/memory.memsw.limit_in_bytes"), two ? "0" : limit);
      path_ = path;
      return;
    }
    remove(path);
  }
}

MemoryGroup::~MemoryGroup() {
  if (good()) remove(path_);
}

std::string MemoryGroup::around(const std::string& command) const {
  return good() ? "echo $$ > '" + path_ + "/cgroup.procs' && exec " + command : command;
}

bool MemoryGroup::enter() const { return good() && put(path_ + "/cgroup.procs", std::to_string(::getpid())); }

std::optional<std::uint64_t> MemoryGroup::peak() const {
  for (const char* file : {"/memory.max_usage_in_bytes", "/memory.peak"}) {
    std::uint64_t bytes = 0;
    if (good() && std::ifstream(path_ + file) >> bytes) return bytes;
  }
  return {};
}

std::optional<std::uint64_t> MemoryGroup::killed() const {
  for (const char* file : {"/memory.oom_control", "/memory.events"}) {
    std::ifstream lines(good() ? path_ + file : "");
    std::string name;
    for (std::uint64_t n = 0; lines >> name >> n;)
      if (name == "oom_kill") return n;
  }
  return {};
}

void MemoryGroup::remove_left_behind(const std::string& prefix) {
  for (const std::string& place : places()) {
    std::error_code error;
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(place, error)) {
      if (entry.path().filename().string().rfind(prefix, 0) == 0) found.push_back(entry.path());
    }
    for (const std::string& path : found) remove(path);
  }
}

}  // namespace kasane::bench
