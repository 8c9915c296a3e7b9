// SPDX-License-Identifier: Apache-2.0
// An installed program as a job (kasane run --preload): what its start (program_image.cpp) and the command,
// which examines the file before, have to agree on.
// Thread safety: constant.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

namespace kasane::runtime {

inline constexpr const char* kPreloadLibrary = "libkasane_preload.so";

/// Variables of libc of which the executable may have a copy among its own variables: they have the same
/// value on all ranks, or only the program changes them. environ is none of them: each rank's setenv() gives
/// it memory of its own.
[[nodiscard]] constexpr bool may_be_copied(std::string_view name) noexcept {
  constexpr std::array<std::string_view, 11> kNames{"stdin",
                                                    "stdout",
                                                    "stderr",
                                                    "optind",
                                                    "optarg",
                                                    "opterr",
                                                    "optopt",
                                                    "__progname",
                                                    "__progname_full",
                                                    "program_invocation_name",
                                                    "program_invocation_short_name"};
  return std::ranges::find(kNames, name) != kNames.end();
}

/// Libraries whose code is the system's, also where the program names them. What others do, the program does:
/// the threads of liblzma are xz's.
[[nodiscard]] constexpr bool is_of_language(std::string_view library) noexcept {
  constexpr std::array<std::string_view, 10> kNames{"libc.so",     "libm.so",  "libmvec.so", "libpthread.so",
                                                    "libdl.so",    "librt.so", "libutil.so", "libstdc++.",
                                                    "libgcc_s.so", "ld-linux"};
  return std::ranges::any_of(kNames, [&](std::string_view begin) { return library.starts_with(begin); });
}

}  // namespace kasane::runtime
