// SPDX-License-Identifier: Apache-2.0
#include "diagnostics/source_lines.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <optional>
#include <sstream>

#include "base/clock.h"
#include "topo/cgroup.h"

namespace kasane::diagnostics {
namespace {

constexpr std::uint64_t kMostNs = 3'000'000'000;  ///< for one object; large programs take a second
constexpr std::size_t kMostPlaces = 256;          ///< of an object
/// addr2line takes up to the object's size, and this for itself.
constexpr std::uint64_t kAddr2lineBytes = std::uint64_t{32} << 20;

struct NamedAddress {
  std::size_t end;  ///< in the text: behind the parenthesis
  std::string object;
  std::uint64_t address;
};

/// "(/path+0x1234)" that begins at `open`.
std::optional<NamedAddress> place_at(std::string_view text, std::size_t open) {
  const std::size_t close = text.find_first_of(")\n", open);
  if (close == std::string_view::npos || text[close] != ')') return std::nullopt;
  const std::string_view inside = text.substr(open + 1, close - open - 1);
  const std::size_t plus = inside.rfind("+0x");
  if (plus == std::string_view::npos || inside.empty() || inside[0] != '/') return std::nullopt;
  const std::string digits(inside.substr(plus + 1));
  char* end = nullptr;
  const std::uint64_t address = std::strtoull(digits.c_str(), &end, 16);
  if (*end != 0) return std::nullopt;
  // All are return addresses, so the call is before, but of a crash's first line, which also has the address.
  const std::size_t line = text.rfind('\n', open) + 1;  // npos + 1 is 0
  const bool exact = text.substr(line, 5) == "#0 0x";
  return NamedAddress{close + 1, std::string(inside.substr(0, plus)), exact ? address : address - 1};
}

std::string read_until_end(int fd, pid_t child) {
  std::string out;
  const std::uint64_t deadline = now_ns() + kMostNs;
  for (;;) {
    const std::uint64_t now = now_ns();
    pollfd waiting{fd, POLLIN, 0};
    if (now >= deadline || ::poll(&waiting, 1, static_cast<int>((deadline - now) / 1'000'000 + 1)) == 0) {
      ::kill(child, SIGKILL);
      return out;
    }
    char part[4096];
    const ssize_t n = ::read(fd, part, sizeof part);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return out;
    out.append(part, static_cast<std::size_t>(n));
  }
}

/// In a control group without the room the kernel would end a rank.
bool has_room_for_addr2line(const std::string& object) {
  std::error_code error;
  const std::uint64_t bytes = std::filesystem::file_size(object, error);
  return !error && topo::memory_room().value_or(~std::uint64_t{0}) >= bytes + kAddr2lineBytes;
}

/// What addr2line says of these addresses: of each a line that begins with 0x, and then a line of the
/// function and one of the place, and behind them those into which it was inlined. Nothing if it cannot be
/// run.
std::string ask_addr2line(const std::string& object, const std::vector<std::uint64_t>& addresses) {
  if (!has_room_for_addr2line(object)) return {};
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return {};
  std::vector<std::string> words{"addr2line", "-a", "-f", "-i", "-e", object};
  for (const std::uint64_t a : addresses) {
    char text[24];
    std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(a));
    words.emplace_back(text);
  }
  std::vector<char*> argv;
  for (std::string& w : words) argv.push_back(w.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
  ::posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
  pid_t child = 0;
  const int failed = ::posix_spawnp(&child, "addr2line", &actions, nullptr, argv.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  std::string out;
  if (failed == 0) {
    out = read_until_end(ends[0], child);
    ::waitpid(child, nullptr, 0);
  }
  ::close(ends[0]);
  return out;
}

/// Without "x/..", and without what addr2line adds in parentheses.
std::string short_path(const std::string& line) {
  return std::filesystem::path(line.substr(0, line.find(" ("))).lexically_normal().string();
}

}  // namespace

bool is_library(std::string_view place) {
  return place.starts_with("/usr/") || place.find("include/kasane/") != std::string_view::npos;
}

std::map<std::uint64_t, std::vector<SourceLine>> source_lines(const std::string& object,
                                                              const std::vector<std::uint64_t>& addresses) {
  std::map<std::uint64_t, std::vector<SourceLine>> lines;
  for (const std::uint64_t a : addresses)
    if (lines.size() < kMostPlaces) lines[a];
  std::vector<std::uint64_t> asked;
  for (const auto& entry : lines) asked.push_back(entry.first);
  std::istringstream answer(ask_addr2line(object, asked));
  auto entry = lines.end();
  for (std::string function, place; std::getline(answer, function);) {
    if (function.starts_with("0x"))
      entry = entry == lines.end() ? lines.begin() : std::next(entry);
    else if (std::getline(answer, place) && entry != lines.end() && place[0] != '?')
      entry->second.push_back({function, short_path(place)});
  }
  return lines;
}

std::string with_source_lines(std::string_view text) {
  std::vector<NamedAddress> places;
  for (std::size_t at = text.find('('); at != std::string_view::npos; at = text.find('(', at + 1))
    if (auto place = place_at(text, at)) places.push_back(std::move(*place));
  std::map<std::string, std::vector<std::uint64_t>> addresses;
  for (const NamedAddress& p : places) addresses[p.object].push_back(p.address);
  std::map<std::string, std::map<std::uint64_t, std::vector<SourceLine>>> lines;
  for (const auto& [object, of] : addresses) lines[object] = source_lines(object, of);
  std::string out;
  std::size_t done = 0;
  for (const NamedAddress& p : places) {
    out.append(text.substr(done, p.end - done));
    done = p.end;
    const std::vector<SourceLine>& of = lines[p.object][p.address];
    if (of.empty()) continue;
    const auto own = std::ranges::find_if_not(of, is_library, &SourceLine::place);
    out.append(" at ").append(own != of.end() ? own->place : of.front().place);
  }
  return out.append(text.substr(done));
}

}  // namespace kasane::diagnostics
