// SPDX-License-Identifier: Apache-2.0
// What a call of the program changes for its process, it changes for all ranks: the folder, the mask of new
// files, variables of the environment, the locale, limits, handlers. The calls that change it are libkasane's
// (process_calls.cpp); each changes its own rank by libc's function, then tells all ranks, and returns when
// they have changed theirs.
//
//   calling rank              handler on each rank      its service thread
//   asks rank 0 for a number
//   tells {number, call} ───▶ queue it ───────────────▶ libc's function, if the number is higher than that of
//        ◀───────────────────────────────────────────── the last call for the same thing; its errno
//
// So ranks whose threads change the same thing at the same time end with the same (action_order.h, which has
// the rule for signals).
//
// Waiting: the calling thread waits for service threads, holding nothing. A service thread waits for libc's
// locks of the environment and the locale; a thread that holds one does not fault, since the calls of
// process_calls.cpp copy their texts first.
//
// Thread safety: tell_all() from any thread, serve() by the service thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "base/notes.h"
#include "comm/blocking.h"
#include "comm/transport.h"

namespace kasane::runtime {

struct ProcessCall {
  enum class Kind : std::uint8_t {
    folder,
    file_mask,
    set_variable,
    unset_variable,
    locale,
    limit,
    stream,
    format,
    handler
  };
  static constexpr std::size_t kMostText = 3500;

  std::uint64_t number = 0;  ///< 0: asks for one
  std::uint64_t argument[2] = {};
  std::int32_t which = 0;  ///< the locale's category, the limit's resource, the stream, the Handler
  Kind kind = Kind::folder;
  std::uint16_t bytes = 0;    ///< of the text
  char text[kMostText] = {};  ///< path, "name\0value", locale
};

class ProcessCalls {
 public:
  explicit ProcessCalls(comm::Transport&);
  ProcessCalls(const ProcessCalls&) = delete;
  ProcessCalls& operator=(const ProcessCalls&) = delete;

  struct Refusal {
    Rank rank = kNoRank;  ///< kNoRank: none
    int error = 0;
  };
  /// The calling rank has changed its own. Returns the first rank whose call failed.
  Refusal tell_all(comm::Blocking&, ProcessCall& call);
  /// True if there was something to do.
  bool serve();

 private:
  struct Noted {
    ProcessCall call;
    comm::ReplyToken token;
  };

  static void on_message(void* self, const comm::Message&) noexcept;
  [[nodiscard]] static std::string thing_of(const ProcessCall&);

  comm::Transport& transport_;
  std::atomic<std::uint64_t> last_{0};            ///< on rank 0: the highest number
  std::map<std::string, std::uint64_t> numbers_;  ///< of the last call for each thing
  Notes<Noted, 4> noted_;
};

/// The program has redirected a standard stream (0, 1, 2) on that rank.
void tell_redirection(int which, Rank) noexcept;

/// What the call says, by libc's function. 0, or errno.
int carry_out(const ProcessCall&) noexcept;

}  // namespace kasane::runtime
