// SPDX-License-Identifier: Apache-2.0
// Files that libraries (UCX, Open MPI) make in /dev/shm under names of their own choice, so that what killed processes leave is known to be a dead
// job's of Kasane, and removed.
//
// The proof is a lock (flock), which the kernel drops with its holder: what can be locked has no holder any more, also where he was in another container.
//
//   UCX        makes files, maps them and removes their names: in a folder of the rank's own, which is locked as long as it has a name
//   Open MPI   removes its segments at the end: marked (sticky bit) and locked by the ranks that have mapped them
//
// remove_dead_shm_files() removes those of this user that can be locked; supervisors call it at a job's end, and who makes a new folder before.
//
// Thread safety: one thread.
#pragma once

#include <string>
#include <utility>

#include "base/result.h"

namespace kasane::comm {

/// The name exists only as long as the library may be making files: vanish() ends that, and the path goes on to lead somewhere.
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

/// Locks and marks, as long as this process lives, the segments of Open MPI that it has mapped.
void claim_segments_of_open_mpi();

/// Folders and marked files of this user that nobody holds any more.
void remove_dead_shm_files() noexcept;

}  // namespace kasane::comm
