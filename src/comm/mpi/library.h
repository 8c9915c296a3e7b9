// SPDX-License-Identifier: Apache-2.0
// The MPI library that started this process, loaded at run time: which one is not known when Kasane is built,
// and several may be installed.
//
//   load("auto") ── environment says Open MPI ──► kasane-mpi-openmpi.so ──► libmpi.so
//                └─ environment says MPICH ─────► kasane-mpi-mpich.so   ──► libmpich.so
//                                                 MPI_Init_thread(SERIALIZED), MPI_Finalize
//
// Thread safety: everything but out_of_band() (see there) from any thread. lock() serialises MPI calls and is
// only ever tried. It is held for the length of MPI calls that do not wait. A thread that finds it taken
// comes back, or leaves its work to the holder.
// Invariant: no handler, completion or other code of users runs while the lock is held.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "comm/mpi/hand_over.h"
#include "comm/mpi/module.h"
#include "comm/out_of_band.h"
#include "comm/shm_files.h"

namespace kasane::comm::mpi {

/// What an experiment with a window on scratch memory has shown (windows.h). It is the same on every rank.
struct WindowFindings {
  bool created = false;    ///< windows can be made at all
  bool pins = false;       ///< making one populated the memory under it
  bool one_sided = false;  ///< a put and a get complete while the target sleeps outside the MPI
};

class Library {
 public:
  /// Calls end() unless it was called. Collective: every transport is gone, every rank is here.
  ~Library();
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  [[nodiscard]] Rank rank() const noexcept { return Rank{rank_}; }
  [[nodiscard]] std::uint32_t ranks() const noexcept { return ranks_; }
  [[nodiscard]] std::string_view name() const noexcept { return table_->name; }  ///< "Open MPI", "MPICH"
  [[nodiscard]] std::string_view version() const noexcept { return version_; }   ///< "4.1.4"
  /// Over the MPI. Other threads of the rank may use transports of this library meanwhile.
  [[nodiscard]] OutOfBand& out_of_band() noexcept { return *out_of_band_; }

  /// Is this process one of those that an mpirun started? Reads the environment only (place.h).
  [[nodiscard]] static bool launched() noexcept;
  /// Finalises the MPI if load() initialised it. Collective. Transports, and threads that use them, may still
  /// exist: they find the lock taken for ever.
  void end() noexcept;
  /// MPI_Finalize, called by the program, calls function first. Once a process.
  Result<void> before_finalize(void (*function)());
  /// Ends the whole job with status, also on ranks that wait for this one.
  [[noreturn]] void abort(int status) noexcept;

  // For the transport.
  [[nodiscard]] const Module& table() const noexcept { return *table_; }
  [[nodiscard]] TryLock<>& lock() noexcept { return lock_; }
  /// Empty until the experiment was made. At start only.
  [[nodiscard]] std::optional<WindowFindings>& window_findings() noexcept { return window_findings_; }
  /// Called by end() under the lock: releases what the MPI would complain about. Changed at start and end
  /// only, in the same order on all ranks.
  struct AtEnd {
    virtual void give_back() noexcept = 0;

   protected:
    ~AtEnd() = default;
  };
  [[nodiscard]] std::vector<AtEnd*>& at_end() noexcept { return at_end_; }
  /// An error that names `what`, with the MPI's own words. Not while the lock is held.
  [[nodiscard]] tl::unexpected<Error> failed(int code, std::string_view what);
  /// Waits for request. In between it lets other threads have the lock, and calls meanwhile(). For start and
  /// end only.
  template <class Meanwhile>
  Result<void> finish(Request& request, std::string_view what, const Meanwhile& meanwhile) {
    for (;;) {
      bool done = false;
      const int code = locked([&] { return table_->test(&request, &done, nullptr); });
      if (code != 0) return failed(code, what);
      if (done) return {};
      meanwhile();
      yield();
    }
  }
  /// Runs call() under the lock, waiting for it. For start and end only.
  template <class Call>
  auto locked(const Call& call) {
    while (!lock_.try_lock()) yield();
    auto result = call();
    lock_.unlock();
    return result;
  }

 private:
  friend Result<std::shared_ptr<Library>> load(std::string_view, int*, char***);
  friend Result<std::shared_ptr<Library>> adopt(std::string_view, const void*);
  Library(const Module* table, bool finalize) noexcept : table_(table), finalize_(finalize) {}
  Result<void> join(const void* communicator);
  static void yield() noexcept;

  const Module* table_;
  std::optional<ShmFolder> ucx_folder_;  ///< where the MPI's UCX makes its queues as long as it runs
  bool finalize_, ended_ = false;
  std::uint32_t rank_ = 0, ranks_ = 1;
  std::string version_;
  TryLock<> lock_;
  std::optional<WindowFindings> window_findings_;
  std::vector<AtEnd*> at_end_;
  Communicator out_of_band_channel_{};
  std::unique_ptr<OutOfBand> out_of_band_;
};

/// which: "openmpi", "mpich", or "auto": what the launcher's environment says. Initialises the MPI unless the
/// program has done so; then the program's thread level must be SERIALIZED or above. Restores the signal
/// dispositions that the MPI changes. Call it early, from the main thread. After an error this process can
/// only end, and with it the job: the MPI is not finalised.
Result<std::shared_ptr<Library>> load(std::string_view which, int* argc = nullptr, char*** argv = nullptr);

/// The MPI that the program has initialised, at any thread level. communicator: an MPI_Comm*, or null for the
/// world; its ranks are the job's. Collective over it. No launcher's variables and no communicator: null, and
/// no error. All calls of the MPI, those of out_of_band() and end() included, are made by the calling thread;
/// no transport over it may be made.
Result<std::shared_ptr<Library>> adopt(std::string_view which, const void* communicator);

/// Before the program initialises its MPI: defaults, where the user has set nothing else, by which it leaves
/// faults and mappings alone. single_copy false: and copies no memory of another process. load() takes the
/// latter back.
void set_defaults_for_program(bool single_copy) noexcept;

}  // namespace kasane::comm::mpi
