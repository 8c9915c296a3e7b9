// SPDX-License-Identifier: Apache-2.0
#include "graph/sources.h"

#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace apps::graph {
namespace {

using kasane::graph::vertex;
using File = kasane::graph::file<>;
namespace fs = std::filesystem;

/// Numbers for names, and edges between them.
class Names {
 public:
  vertex number(std::string_view name) {
    const auto [at, fresh] = numbers_.try_emplace(std::string(name), static_cast<vertex>(names_.size()));
    if (fresh) names_.emplace_back(name);
    return at->second;
  }
  void add(vertex from, vertex to) { all_.push_back({from, to}); }

  [[nodiscard]] File finish() {
    File file;
    file.list = kasane::graph::edges<>(names_.size(), all_.size());
    std::copy(all_.begin(), all_.end(), file.list.begin());
    file.names = std::move(names_);
    return file;
  }

 private:
  std::unordered_map<std::string, vertex> numbers_;
  std::vector<std::string> names_;
  std::vector<kasane::graph::edge<>> all_;
};

constexpr std::string_view kBlank = " \t\r";

/// "libc6:any (>= 2.36)" → libc6
std::string_view name_in(std::string_view word) {
  const auto begin = word.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  word.remove_prefix(begin);
  return word.substr(0, word.find_first_of(" \t\r(:["));
}

/// Calls f with each name in "a (>= 1), b | c".
template <class F>
void each_name(std::string_view field, const F& f) {
  while (!field.empty()) {
    const auto end = field.find_first_of(",|");
    if (const auto name = name_in(field.substr(0, end)); !name.empty()) f(name);
    field.remove_prefix(end == std::string_view::npos ? field.size() : end + 1);
  }
}

// ---- includes --------------------------------------------------------------------------------------------

bool is_source(const fs::path& file) {
  static constexpr std::string_view kSuffixes[] = {".c",   ".cc",  ".cpp", ".cxx", ".h",   ".hh",
                                                   ".hpp", ".hxx", ".inc", ".inl", ".ipp", ".ixx"};
  const std::string suffix = file.extension().string();
  return std::find(std::begin(kSuffixes), std::end(kSuffixes), suffix) != std::end(kSuffixes);
}

/// The paths of all files, from the folder, in order.
std::vector<std::string> sources_under(const fs::path& folder) {
  std::vector<std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (!entry.is_symlink() && entry.is_regular_file() && is_source(entry.path()))
      files.push_back(entry.path().lexically_relative(folder).string());
  std::sort(files.begin(), files.end());
  return files;
}

struct Include {
  std::string path;
  bool quoted = false;
};

/// Of a line such as `#include "a.h"`; else an empty path.
Include include_in(std::string_view line) {
  const auto skip = [&line] { line.remove_prefix(std::min(line.find_first_not_of(kBlank), line.size())); };
  skip();
  if (!line.starts_with('#')) return {};
  line.remove_prefix(1), skip();
  if (!line.starts_with("include")) return {};
  line.remove_prefix(7), skip();
  if (!line.starts_with('"') && !line.starts_with('<')) return {};
  const bool quoted = line[0] == '"';
  line.remove_prefix(1);
  const auto end = line.find(quoted ? '"' : '>');
  return end == std::string_view::npos ? Include{} : Include{std::string(line.substr(0, end)), quoted};
}

/// Where includes lead, among these files.
class Paths {
 public:
  explicit Paths(const std::vector<std::string>& files) {
    for (const std::string& f : files) {
      all_.insert(f);
      by_name_[fs::path(f).filename()].push_back(f);
    }
    for (auto& [name, paths] : by_name_)
      std::stable_sort(paths.begin(), paths.end(),
                       [](const auto& a, const auto& b) { return a.size() < b.size(); });
  }
  /// Null: to none of them.
  [[nodiscard]] const std::string* find(const std::string& from, const Include& include) const {
    if (include.quoted)
      if (const auto* const beside = at((fs::path(from).parent_path() / include.path).lexically_normal()))
        return beside;
    const fs::path path = fs::path(include.path).lexically_normal();
    if (const auto* const whole = at(path)) return whole;
    const auto same = by_name_.find(path.filename());
    if (same == by_name_.end()) return nullptr;
    const std::string end = "/" + path.string();
    const auto found = std::find_if(same->second.begin(), same->second.end(),
                                    [&](const std::string& p) { return p.ends_with(end); });
    return found != same->second.end() ? &*found : nullptr;
  }

 private:
  [[nodiscard]] const std::string* at(const fs::path& path) const {
    const auto found = all_.find(path.string());
    return found != all_.end() ? &*found : nullptr;
  }

  std::set<std::string> all_;
  std::map<std::string, std::vector<std::string>> by_name_;  ///< the shortest path first
};

}  // namespace

File packages_of(std::istream& list) {
  Names names;
  std::vector<std::string> needs;  // of the package whose paragraph this is
  vertex package = kasane::graph::no_vertex;
  const auto end_package = [&] {
    if (package != kasane::graph::no_vertex)
      for (const std::string& field : needs)
        each_name(field, [&](std::string_view name) { names.add(package, names.number(name)); });
    package = kasane::graph::no_vertex;
    needs.clear();
  };
  bool in_needs = false;
  for (std::string line; std::getline(list, line);) {
    const std::string_view text = line;
    if (text.find_first_not_of(kBlank) == std::string_view::npos) {
      end_package();
      in_needs = false;
    } else if (kBlank.find(text[0]) != std::string_view::npos) {  // goes on
      if (in_needs) needs.back().append(text);
    } else {
      const auto colon = text.find(':');
      const std::string_view field = text.substr(0, colon);
      const std::string_view value = colon == std::string_view::npos ? "" : text.substr(colon + 1);
      in_needs = field == "Depends" || field == "Pre-Depends";
      if (in_needs) needs.emplace_back(value);
      if (field == "Package")
        if (const auto name = name_in(value); !name.empty()) package = names.number(name);
    }
  }
  end_package();
  return names.finish();
}

File debian_packages() {
  std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen("apt-cache dumpavail", "r"), ::pclose);
  if (!pipe) throw std::runtime_error("cannot run apt-cache");
  std::string text;
  char part[65536];
  while (const std::size_t n = std::fread(part, 1, sizeof part, pipe.get())) text.append(part, n);
  const int status = ::pclose(pipe.release());
  if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
    throw std::runtime_error("--debian needs apt-cache, which Debian and Ubuntu have (package apt)");
  if (status != 0) throw std::runtime_error("apt-cache dumpavail failed");
  std::istringstream list(std::move(text));
  File file = packages_of(list);
  if (file.names.empty())
    throw std::runtime_error("apt-cache dumpavail knows no package: run apt-get update, as root");
  return file;
}

File includes_under(const std::string& folder) {
  std::vector<std::string> files;
  try {
    files = sources_under(folder);
  } catch (const fs::filesystem_error& e) {
    throw std::runtime_error("--includes: " + e.path1().string() + ": " + e.code().message());
  }
  if (files.empty()) throw std::runtime_error("--includes: there is no C or C++ file under " + folder);
  const Paths paths(files);
  Names names;
  for (const std::string& f : files) names.number(f);
  for (const std::string& f : files) {
    const std::string path = folder + "/" + f;
    std::ifstream file(path);
    if (!file) throw std::runtime_error("--includes: cannot read " + path);
    const vertex from = names.number(f);
    for (std::string line; std::getline(file, line);)
      if (const Include include = include_in(line); !include.path.empty())
        if (const std::string* const to = paths.find(f, include)) names.add(from, names.number(*to));
  }
  return names.finish();
}

}  // namespace apps::graph
