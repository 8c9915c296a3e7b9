// SPDX-License-Identifier: Apache-2.0
#include "runtime/language/threads_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <string_view>
#include <vector>

#include "ult/runtime_section.h"

namespace kasane::runtime {
namespace {

struct Sum {
  std::uint64_t times = 0, ns = 0;
};
using Sums = std::map<std::string_view, Sum>;
struct Sheet {
  std::mutex mutex;
  std::uint64_t threads = 0;
  Sums waits, elsewhere;
};
constinit Sheet* g_sheet =
    nullptr;  ///< constant while the program runs; never freed: threads may outlive main

void add(Sums Sheet::* to, const char* name, std::uint64_t ns) noexcept {
  if (g_sheet == nullptr) [[likely]]
    return;
  const ult::RuntimeSection section;
  const std::scoped_lock lock(g_sheet->mutex);
  Sum& sum = (g_sheet->*to)[name];
  ++sum.times;
  sum.ns += ns;
}

/// The most first.
std::string lines(const Sums& sums, const char* what) {
  std::vector<std::pair<std::string_view, Sum>> sorted(sums.begin(), sums.end());
  std::ranges::stable_sort(sorted, [](const auto& a, const auto& b) {
    return std::pair(a.second.ns, a.second.times) > std::pair(b.second.ns, b.second.times);
  });
  std::string text;
  for (const auto& [name, sum] : sorted) {
    text += fmt::format("kasane:   {:>12} {} {}", sum.times, what, name);
    text += sum.ns != 0 ? fmt::format(", {:.3f} s\n", static_cast<double>(sum.ns) * 1e-9) : "\n";
  }
  return text;
}

}  // namespace

void ThreadsCheck::begin() noexcept { g_sheet = new Sheet; }
bool ThreadsCheck::on() noexcept { return g_sheet != nullptr; }

void ThreadsCheck::add_thread() noexcept {
  if (g_sheet == nullptr) return;
  const std::scoped_lock lock(g_sheet->mutex);
  ++g_sheet->threads;
}
void ThreadsCheck::add_wait(const char* call, std::uint64_t ns) noexcept { add(&Sheet::waits, call, ns); }
void ThreadsCheck::add_call_elsewhere(const char* call) noexcept { add(&Sheet::elsewhere, call, 0); }

std::string ThreadsCheck::text() {
  if (g_sheet == nullptr) return {};
  const std::scoped_lock lock(g_sheet->mutex);
  return fmt::format("threads check: {} OS threads of the program have run here\n", g_sheet->threads) +
         lines(g_sheet->waits, "waits in") + lines(g_sheet->elsewhere, "calls made on another rank:");
}

}  // namespace kasane::runtime
