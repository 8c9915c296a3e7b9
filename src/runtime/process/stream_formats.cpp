// SPDX-License-Identifier: Apache-2.0
#include "runtime/process/stream_formats.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <iostream>
#include <string>

#include "runtime/process/shared_process.h"
#include "runtime/rank/warn.h"

namespace kasane::runtime {
namespace {

constexpr std::array<const char*, 3> kNames{"std::cout", "std::cerr", "std::clog"};

std::ostream& stream(std::size_t i) noexcept { return i == 0 ? std::cout : i == 1 ? std::cerr : std::clog; }

struct Format {
  std::ios_base::fmtflags flags{};
  std::streamsize precision = 0;
  char fill = ' ';
  std::string locale;
  const std::streambuf* buffer = nullptr;

  bool operator==(const Format&) const = default;
};

std::array<Format, kNames.size()>& told() {
  static std::array<Format, kNames.size()> formats;  // used before constructors
  return formats;
}

Format format_of(const std::ostream& s) {
  return {s.flags(), s.precision(), s.fill(), s.getloc().name(), s.rdbuf()};
}

void warn_of(std::size_t i, const char* what) noexcept {
  CrashText text;
  text.add("kasane: ").add(kNames[i]).add(what).add("\n");
  warn(text);
}

ProcessCall as_call(std::size_t i, const Format& format) {
  ProcessCall call;
  call.kind = ProcessCall::Kind::format;
  call.which = static_cast<std::int32_t>(i);
  call.argument[0] =
      static_cast<std::uint32_t>(format.flags) | std::uint64_t{static_cast<unsigned char>(format.fill)} << 32;
  call.argument[1] = static_cast<std::uint64_t>(format.precision);
  const bool named = format.locale != "*" && format.locale.size() < ProcessCall::kMostText;
  if (!named) warn_of(i, ".imbue: a locale with facets of the program's own holds on rank 0 only");
  if (named) std::copy(format.locale.begin(), format.locale.end(), call.text);
  call.bytes = static_cast<std::uint16_t>(named ? format.locale.size() + 1 : 1);
  return call;
}

}  // namespace

void note_stream_formats() noexcept {
  const std::ios_base::Init constructed;  // where all is linked statically the program has not begun
  for (std::size_t i = 0; i < told().size(); ++i) told()[i] = format_of(stream(i));
}

void tell_stream_formats() noexcept {
  SharedProcess* const shared = SharedProcess::current();
  if (shared == nullptr) return;
  for (std::size_t i = 0; i < told().size(); ++i) {
    Format now = format_of(stream(i));
    if (now == told()[i]) continue;
    if (now.buffer != told()[i].buffer)
      warn_of(i, ".rdbuf(...): threads on other ranks write to where the stream has gone before");
    ProcessCall call = as_call(i, now);
    if (const auto refusal = shared->tell_process_call(call); refusal.rank != kNoRank)
      warn_of(i, ".imbue: another rank does not have that locale");
    told()[i] = std::move(now);
  }
}

int take_stream_format(const ProcessCall& call) noexcept {
  std::ostream& s = stream(static_cast<std::size_t>(call.which));
  s.flags(static_cast<std::ios_base::fmtflags>(static_cast<std::uint32_t>(call.argument[0])));
  s.fill(static_cast<char>(call.argument[0] >> 32));
  s.precision(static_cast<std::streamsize>(call.argument[1]));
  try {
    if (call.text[0] != 0 && s.getloc().name() != call.text) s.imbue(std::locale(call.text));
    return 0;
  } catch (const std::exception&) {
    return ENOENT;
  }
}

}  // namespace kasane::runtime
