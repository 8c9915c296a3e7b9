// SPDX-License-Identifier: Apache-2.0
// Files that libraries (UCX, Open MPI) make in /dev/shm under names of their own choice. When processes are
// killed their files are left behind; here they are recognised as files of a dead job of Kasane, and removed.
//
// The proof is a lock (flock), which the kernel drops with its holder: a file that can be locked has no
// holder any more, even if that was in another container.
//
//   UCX        makes files, maps them and removes their names: in a folder of each rank, which is locked as
//              long as it has a name
//   Open MPI   removes its segments at the end: ranks that have mapped them mark (sticky bit) and lock them
//
// remove_dead_shm_files() removes the files of this user that can be locked. Supervisors call it at a job's
// end, and ShmFolder::create() before it makes a folder.
//
// Thread safety: one thread.
#pragma once

#include <string>
#include <utility>

#include "base/result.h"

namespace kasane::comm {

/// A folder whose name exists only as long as the library may make files: remove_name() removes it, and
/// path() stays valid.
class ShmFolder {
 public:
  static Result<ShmFolder> create();
  ShmFolder(ShmFolder&& other) noexcept;
  ShmFolder& operator=(ShmFolder&&) = delete;
  ~ShmFolder();

  /// By descriptor, for this process only; stays valid after remove_name().
  [[nodiscard]] std::string path() const;

  /// Removes the folder, which must be empty; from then on path() is /dev/shm itself.
  void remove_name() noexcept;

 private:
  ShmFolder(int fd, std::string name) : fd_(fd), name_(std::move(name)) {}
  int fd_ = -1;
  std::string name_;  ///< empty: gone
};

/// Locks and marks the segments of Open MPI that this process has mapped, as long as it lives.
void claim_segments_of_open_mpi();

/// Removes folders and marked files of this user that no process holds any more.
void remove_dead_shm_files() noexcept;

}  // namespace kasane::comm
