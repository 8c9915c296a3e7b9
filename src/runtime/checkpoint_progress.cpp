// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint_progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string>

#include "base/clock.h"

namespace kasane::runtime {
namespace {

constexpr double kBarEvery = 0.2, kLineEvery = 5.0;   // seconds

std::string size_text(double bytes) {
  const char* unit = "B";
  for (const char* larger : {"KiB", "MiB", "GiB", "TiB"}) {
    if (bytes < 1024) break;
    bytes /= 1024;
    unit = larger;
  }
  return fmt::format("{:.{}f} {}", bytes, *unit == 'B' || bytes >= 100 ? 0 : 1, unit);
}

std::string rate_text(std::uint64_t bytes, double seconds) { return size_text(static_cast<double>(bytes) / std::max(seconds, 1e-6)) + "/s"; }

std::uint64_t add_to(std::uint64_t& word, std::uint64_t more) {
  std::uint64_t before = 0;
  return kasane_atomic(KASANE_FETCH_ADD, 8, &word, more, 0, &before, nullptr) == 0 ? before + more : 0;
}

}  // namespace

CheckpointProgress::Show CheckpointProgress::show(std::string_view mode) {
  const bool terminal = ::isatty(2) == 1;
  if (mode == "off" || (mode == "auto" && !terminal)) return Show::nothing;
  return terminal ? Show::bar : Show::lines;
}

void CheckpointProgress::clear(Words& words) noexcept {
  const Words zeros{};
  (void)kasane_put(&words, &zeros, sizeof zeros);
}

CheckpointProgress::CheckpointProgress(Words& words, Show show, const char* verb, const char* path, std::uint64_t bytes, std::uint64_t start_ns)
    : words_(words), show_(show), verb_(verb), path_(path), bytes_(bytes), start_ns_(start_ns) {}

double CheckpointProgress::seconds() const noexcept { return 1e-9 * static_cast<double>(now_ns() - start_ns_); }

void CheckpointProgress::add(std::uint64_t done, std::uint64_t stored) {
  if (show_ == Show::nothing) return;
  const std::uint64_t all = add_to(words_.done, done);
  add_to(words_.stored, stored);
  const double t = seconds();
  const auto tick = static_cast<std::uint64_t>(t / (show_ == Show::bar ? kBarEvery : kLineEvery));
  std::uint64_t last = 0;
  if (tick == 0 || kasane_get(&last, &words_.shown, sizeof last) != 0 || last >= tick) return;
  std::uint64_t seen = 0;
  if (kasane_atomic(KASANE_COMPARE_SWAP, 8, &words_.shown, tick, last, &seen, nullptr) != 0 || seen != last) return;   // another shows it
  const std::string text = fmt::format("kasane: {} {}: {:3.0f} %, {} of {}, {}", verb_, path_, 100.0 * static_cast<double>(all) / static_cast<double>(bytes_),
                                       size_text(static_cast<double>(all)), size_text(static_cast<double>(bytes_)), rate_text(all, t));
  std::fputs((show_ == Show::bar ? "\r" + text + "\033[K" : text + "\n").c_str(), stderr);
}

void CheckpointProgress::end() {
  if (show_ == Show::nothing) return;
  if (show_ == Show::bar) {
    std::fputs("\r\033[K", stderr);
    return;
  }
  std::uint64_t stored = 0;
  (void)kasane_get(&stored, &words_.stored, sizeof stored);
  const double t = seconds();
  fmt::print(stderr, "kasane: {} {}: {}, {} of it in the file, {:.1f} s, {}\n", verb_, path_, size_text(static_cast<double>(bytes_)),
             size_text(static_cast<double>(stored)), t, rate_text(bytes_, t));
}

}  // namespace kasane::runtime
