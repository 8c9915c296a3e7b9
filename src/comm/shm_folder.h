// SPDX-License-Identifier: Apache-2.0
// A folder of one process in /dev/shm, for a library that makes files there under names of its own choice (UCX), so that what a killed process
// leaves is known to be ours and dead.
//
// The maker holds a lock (flock) on the folder, which the kernel drops with the process: a folder that can be locked has no maker any more, also
// where he was in another container. remove_dead_shm_folders() removes those of this user; supervisors call it at a job's end, and each
// new folder's maker before. The name exists only as long as the library may be making files: vanish() ends that, and the path goes on to lead somewhere.
//
// Thread safety: one thread.
#pragma once

#include <string>

#include "base/result.h"

namespace kasane::comm {

class ShmFolder {
 public:
  static Result<ShmFolder> create();
  ShmFolder(ShmFolder&& other) noexcept;
  ShmFolder& operator=(ShmFolder&&) = delete;
  ~ShmFolder();

  /// By descriptor, for this process only; stays valid after vanish().
  [[nodiscard]] std::string path() const;

  /// Removes the folder, which must be empty; from then on path() is /dev/shm itself.
  void vanish() noexcept;

 private:
  ShmFolder(int fd, std::string name) : fd_(fd), name_(std::move(name)) {}
  int fd_ = -1;
  std::string name_;   ///< empty: gone
};

/// Those of this user whose maker has died, with what is in them.
void remove_dead_shm_folders() noexcept;

}  // namespace kasane::comm
