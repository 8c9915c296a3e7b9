// SPDX-License-Identifier: Apache-2.0
// An error of a checkpoint's file: an errno value for programs, and one line for people.
#pragma once

#include <string>
#include <tl/expected.hpp>

namespace kasane::checkpoint {

struct FileError {
  int code;          ///< as errno
  std::string text;  ///< what, which file, the numbers that matter, what to do
};

template <class T = void>
using FileResult = tl::expected<T, FileError>;

[[nodiscard]] inline tl::unexpected<FileError> refuse(int code, std::string text) {
  return tl::unexpected<FileError>(FileError{code, std::move(text)});
}

}  // namespace kasane::checkpoint
