// SPDX-License-Identifier: Apache-2.0
// Result<T>: a value or an Error that says what happened, where, and what to do about it. The caller's
// mistakes and the machine's state are returned as Result; a bug of ours is a KASANE_CHECK (assert.h). The
// code that first finds an error words it (with the value and errno); callers only pass it on.
#pragma once

#include <cerrno>
#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace kasane {

/// What must be replaced before the work can go on.
enum class Errc {
  invalid_argument,  ///< the call
  out_of_memory,     ///< the amount asked for
  out_of_range,      ///< the address or offset
  busy,              ///< nothing: the obstacle goes away by itself, or the caller removes it
  limit,             ///< a limit of the machine or of the job (VMAs, descriptors, address bits)
  unsupported,       ///< the kernel, or the option
  peer_lost,         ///< the peer
  io,                ///< the file
  internal,          ///< Kasane
};

struct [[nodiscard]] Error {
  Errc code;
  std::string message;  ///< one line: what, where (rank, address, file, errno), what to do
};

template <class T = void>
using Result = tl::expected<T, Error>;

[[nodiscard]] inline tl::unexpected<Error> fail(Errc code, std::string message) {
  return tl::unexpected<Error>(Error{code, std::move(message)});
}

/// As fail(), with ": strerror(number)" appended.
[[nodiscard]] tl::unexpected<Error> fail_errno(Errc code, std::string message, int number = errno);

#define KASANE_TRY(expr)                                                      \
  do {                                                                        \
    if (auto&& kasane_try_ = (expr); !kasane_try_)                            \
      return tl::unexpected<::kasane::Error>(std::move(kasane_try_).error()); \
  } while (0)

}  // namespace kasane
