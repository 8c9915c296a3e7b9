// SPDX-License-Identifier: Apache-2.0
#include "runtime/start/program_libraries.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstdlib>
#include <functional>
#include <utility>

#include "base/environment.h"
#include "runtime/rank/own_code.h"
#include "runtime/start/preloaded.h"

namespace kasane::runtime {
namespace {

using Index = std::size_t;

constexpr const char* kOption = "--globals-of (KASANE_GLOBALS_OF)";
constexpr const char* kCodeOption = "--code-of (KASANE_CODE_OF)";

/// Of libraries that each rank needs for itself: they, and all that they need. libkasane is found by its
/// code. Those that serve MPI and UCX may be loaded later than the program.
constexpr std::array kOwnOfRanks{"libkasane", "kasane-mpi", "libucp",   "libucs",   "libuct",   "libucm",
                                 "libmpi",    "libopen-",   "libpmi",   "libprrte", "libhwloc", "libfabric",
                                 "libasan",   "libtsan",    "libubsan", "ld-linux"};

std::string_view last_part(std::string_view path) { return path.substr(path.rfind('/') + 1); }

std::string real_path(const std::string& path) {
  std::array<char, PATH_MAX> whole;
  return ::realpath(path.c_str(), whole.data()) != nullptr ? whole.data() : path;
}

/// Whether it is the library that a user calls by the name: "libmine.so" is libmine.so.1.2, too.
bool is_called(const Image& image, std::string_view name) {
  const std::string real = real_path(image.file);
  if (name.find('/') != name.npos) return name == image.file || real == real_path(std::string(name));
  const auto fits = [&](std::string_view own) {
    return own == name || (name.find(".so") != name.npos && own.starts_with(name) && own[name.size()] == '.');
  };
  return fits(image.name()) || fits(last_part(image.file)) || fits(last_part(real));
}

/// What needs what, by indices.
class Needs {
 public:
  explicit Needs(const std::vector<Image>& images) : images_(images), of_(images.size()) {
    for (Index i = 0; i < images.size(); ++i) {
      for (const ElfW(Dyn)* d = images[i].dynamic(); d != nullptr && d->d_tag != DT_NULL; ++d)
        if (d->d_tag == DT_NEEDED) add(of_[i], images[i].text(d));
    }
  }
  [[nodiscard]] const std::vector<Index>& of(Index i) const { return of_[i]; }

  /// Visits what `from` needs, directly or not, and then itself; each once. The last of two that do not need
  /// each other comes first, as the dynamic loader constructs them.
  void visit(Index from, std::vector<bool>& seen, const std::function<void(Index)>& visitor) const {
    if (seen[from]) return;
    seen[from] = true;
    for (auto i = of_[from].rbegin(); i != of_[from].rend(); ++i) visit(*i, seen, visitor);
    visitor(from);
  }

 private:
  void add(std::vector<Index>& list, std::string_view needed) const {
    const auto found = std::ranges::find_if(images_, [&](const Image& image) {
      return image.name() == needed || last_part(image.file) == needed || image.file == needed;
    });
    if (found != images_.end()) list.push_back(static_cast<Index>(found - images_.begin()));
  }

  const std::vector<Image>& images_;
  std::vector<std::vector<Index>> of_;
};

/// Which of them each rank needs for itself.
std::vector<bool> own_of_ranks(const std::vector<Image>& images, const Needs& needs) {
  std::vector<bool> own(images.size());
  for (Index i = 1; i < images.size(); ++i) {
    const std::string_view name = images[i].name();
    const bool named =
        std::ranges::any_of(kOwnOfRanks, [&](std::string_view begin) { return name.starts_with(begin); });
    if (named || images[i].dynamic() == nullptr || name.find("vdso") != name.npos ||
        images[i].holds(reinterpret_cast<const void*>(&choose_libraries)))
      needs.visit(i, own, [](Index) {});
  }
  return own;
}

/// The dynamic loader would write to its variables whenever one of its calls is the first.
bool binds_late(const Image& image) {
  if (image.value(DT_PLTRELSZ) == 0 || image.entry(DT_BIND_NOW) != nullptr ||
      (image.value(DT_FLAGS) & DF_BIND_NOW) != 0 || (image.value(DT_FLAGS_1) & DF_1_NOW) != 0)
    return false;
  const char* const now = variable("LD_BIND_NOW");
  return now == nullptr || *now == '\0';
}

/// Why a library cannot be a part of the program; empty: it can.
std::string refusal(const Image& image, bool own) {
  if (own) return "each rank needs it for itself: Kasane, MPI, UCX or the C library use it";
  if (image.header(PT_GNU_RELRO) == nullptr)
    return "it was linked without -z relro, so what the dynamic loader reads lies between its variables";
  if (binds_late(image))
    return "it was linked with -z lazy, so calls write to its memory: link it with -z now, or set "
           "LD_BIND_NOW=1 "
           "(kasane run does)";
  if ((image.value(DT_FLAGS_1) & DF_1_INITFIRST) != 0) return "it was linked with -z initfirst";
  return {};
}

/// For the error: those that can be named, then the others.
std::string loaded_text(const std::vector<Image>& images, const std::vector<bool>& own) {
  std::vector<std::string_view> names, others;
  for (Index i = 1; i < images.size(); ++i)
    if (images[i].name().find("vdso") == std::string_view::npos)
      (own[i] ? others : names).push_back(images[i].name());
  return fmt::format("{}; not to be named: {}",
                     names.empty() ? std::string("none") : fmt::format("{}", fmt::join(names, ", ")),
                     fmt::join(others, ", "));
}

std::vector<std::string_view> words(std::string_view list) {
  std::vector<std::string_view> found;
  while (!list.empty()) {
    const std::size_t comma = std::min(list.find(','), list.size());
    if (comma != 0) found.push_back(list.substr(0, comma));
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return found;
}

/// Which of the libraries `names` calls. refusal(image, own): why it cannot be one of them; empty: it can.
template <class Refusal>
Result<std::vector<bool>> find_named(const char* option, std::string_view names,
                                     const std::vector<Image>& loaded, const std::vector<bool>& own,
                                     const Refusal& refusal) {
  std::vector<bool> chosen(loaded.size());
  for (const std::string_view name : words(names)) {
    bool found = false;
    for (Index i = 1; i < loaded.size(); ++i) {
      if (!is_called(loaded[i], name)) continue;
      found = chosen[i] = true;
      if (const std::string why = refusal(loaded[i], own[i]); !why.empty())
        return fail(Errc::invalid_argument, fmt::format("{} {}: {} {}", option, name, loaded[i].name(), why));
    }
    if (!found)
      return fail(Errc::invalid_argument,
                  fmt::format("{} {}: the program has loaded no such library. Loaded are: {}. One that the "
                              "program opens later (dlopen) cannot be named; link the program with it",
                              option, name, loaded_text(loaded, own)));
  }
  return chosen;
}

}  // namespace

Result<std::vector<Image>> choose_libraries(std::string_view names, const std::vector<Image>& loaded) {
  const Needs needs(loaded);
  const auto named =
      find_named(kOption, names, loaded, own_of_ranks(loaded, needs), [](const Image& image, bool own) {
        const std::string why = refusal(image, own);
        return why.empty() ? why : "cannot be shared: " + why;
      });
  KASANE_TRY(named);
  const std::vector<bool>& chosen = *named;
  std::vector<Image> libraries;
  std::vector<bool> seen(loaded.size());
  needs.visit(0, seen, [&](Index i) {
    if (chosen[i]) libraries.push_back(loaded[i]);
  });
  // such as one that was preloaded
  for (Index i = 1; i < loaded.size(); ++i)
    if (chosen[i] && !seen[i]) libraries.push_back(loaded[i]);
  for (Index i = 1; i < loaded.size(); ++i) {
    if (chosen[i]) continue;
    for (const Index needed : needs.of(i))
      if (chosen[needed])
        return fail(Errc::invalid_argument,
                    fmt::format("{}: {} needs {}, and would be constructed before it: name both", kOption,
                                loaded[i].name(), loaded[needed].name()));
  }
  return libraries;
}

Result<std::vector<Image>> computing_libraries(std::string_view names, const std::vector<Image>& loaded) {
  const auto named =
      find_named(kCodeOption, names, loaded, own_of_ranks(loaded, Needs(loaded)), [](const Image&, bool own) {
        return own ? "does more than compute: Kasane, MPI, UCX or the C library use it, and a thread that "
                     "waits "
                     "in it may hold a lock that they need"
                   : std::string();
      });
  KASANE_TRY(named);
  std::vector<Image> libraries;
  for (Index i = 1; i < loaded.size(); ++i)
    if ((*named)[i]) libraries.push_back(loaded[i]);
  return libraries;
}

Result<void> check_later_libraries(const std::vector<Image>& at_start) {
  const std::vector<Image> program = program_images();
  if (program.size() == 1) return {};
  const std::vector<Image> now = loaded_images();
  const auto is_in = [](const Image& image, const std::vector<Image>& list) {
    return std::ranges::find(list, image.base, &Image::base) != list.end();
  };
  const Needs needs(now);
  for (Index i = 1; i < now.size(); ++i) {
    if (is_in(now[i], at_start)) continue;
    for (const Index needed : needs.of(i))
      if (needed != 0 && is_in(now[needed], program))
        return fail(Errc::invalid_argument,
                    fmt::format("{}: {} cannot be shared: the runtime has loaded {}, which uses it, too",
                                kOption, now[needed].name(), now[i].name()));
  }
  return {};
}

void note_libraries_of_program(const std::vector<Image>& loaded) {
  std::vector<bool> seen(loaded.size());
  Needs(loaded).visit(0, seen, [&](Index i) {
    if (i == 0 || is_of_language(loaded[i].name())) return;
    for (const ElfW(Phdr) & h : loaded[i].headers)
      if (h.p_type == PT_LOAD && (h.p_flags & PF_X) != 0)
        add_code_of_program({loaded[i].base + h.p_vaddr, loaded[i].base + h.p_vaddr + h.p_memsz});
  });
}

}  // namespace kasane::runtime
