// SPDX-License-Identifier: Apache-2.0
#include "runtime/api/checkpoint_progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "base/clock.h"
#include "base/text_table.h"

namespace kasane::runtime {
namespace {

std::string size_text(std::uint64_t bytes) { return in_units(bytes, Magnitude::bytes); }
std::string rate_text(std::uint64_t bytes, double seconds) {
  return size_text(static_cast<std::uint64_t>(static_cast<double>(bytes) / std::max(seconds, 1e-6))) + "/s";
}

std::uint64_t add_to(std::uint64_t& word, std::uint64_t more) {
  std::uint64_t before = 0;
  return kasane_atomic(KASANE_FETCH_ADD, 8, &word, more, 0, &before, nullptr) == 0 ? before + more : 0;
}

}  // namespace

CheckpointProgress::Show CheckpointProgress::show(std::string_view mode) {
  const bool terminal = ProgressLine().terminal();
  if (mode == "off" || (mode == "auto" && !terminal)) return Show::nothing;
  return terminal ? Show::over_and_over : Show::lines;
}

void CheckpointProgress::clear(Words& words) noexcept {
  const Words zeros{};
  (void)kasane_put(&words, &zeros, sizeof zeros);
}

CheckpointProgress::CheckpointProgress(Words& words, Show show, const char* verb, const char* path,
                                       std::uint64_t bytes, std::uint64_t start_ns)
    : words_(words),
      show_(show),
      line_(show == Show::over_and_over),
      verb_(verb),
      path_(path),
      bytes_(bytes),
      start_ns_(start_ns) {}

double CheckpointProgress::seconds() const noexcept {
  return 1e-9 * static_cast<double>(now_ns() - start_ns_);
}

void CheckpointProgress::add(std::uint64_t done, std::uint64_t stored) {
  if (show_ == Show::nothing) return;
  const std::uint64_t all = add_to(words_.done, done);
  add_to(words_.stored, stored);
  const double t = seconds();
  const auto tick = static_cast<std::uint64_t>(t / line_.interval());
  std::uint64_t last = 0;
  if (tick == 0 || kasane_get(&last, &words_.shown, sizeof last) != 0 || last >= tick) return;
  std::uint64_t seen = 0;
  // another shows it
  if (kasane_atomic(KASANE_COMPARE_SWAP, 8, &words_.shown, tick, last, &seen, nullptr) != 0 || seen != last)
    return;
  line_.show(fmt::format("kasane: {} {}: {:3.0f} %, {} of {}, {}", verb_, path_,
                         100.0 * static_cast<double>(all) / static_cast<double>(bytes_), size_text(all),
                         size_text(bytes_), rate_text(all, t)));
}

void CheckpointProgress::end() {
  if (show_ == Show::nothing) return;
  if (line_.terminal()) return line_.clear();
  std::uint64_t stored = 0;
  (void)kasane_get(&stored, &words_.stored, sizeof stored);
  const double t = seconds();
  line_.show(fmt::format("kasane: {} {}: {}, {} of it in the file, {:.1f} s, {}", verb_, path_,
                         size_text(bytes_), size_text(stored), t, rate_text(bytes_, t)));
}

}  // namespace kasane::runtime
