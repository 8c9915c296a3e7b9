// SPDX-License-Identifier: Apache-2.0
// A rank's way into its job: finds the other ranks and builds the transport that reaches them, from how the process was started and what the user asked for. The
// runtime stands on it, and so does a program that wants communication alone:
//
//   SessionOptions options;                                     // or from KASANE_TRANSPORT, KASANE_MPI: add_session_options(table, options)
//   Job job;                                                    // started by mpirun: only say so
//   job.launcher = Launcher::mpi;                               // else: job = create_job(n, shm::job_bytes(n)), fork n times, job.rank = 0 … n-1
//   auto session = Session::join(options, job);
//   if (!session) die(session.error().message);
//   Transport& t = (*session)->transport();
//   PollWaiter waiter(t);
//   Collectives all(t, waiter);                                 // sets its handler; set all others here too
//   KASANE_TRY(t.attach(RegionId{1}, fd, memory, bytes));       // collective
//   Blocking(t, waiter).write({Rank{1}, RegionId{1}, 0}, data, bytes);
//   all.barrier();                                              // nobody leaves while others still ask; then `all` goes, then the session
//
//   forked     ─ control plane of the host's memory ─┐                     ┌─ one host: shm
//                                                    ├─▶ OutOfBand ─ plan ─┼─ several: composed (shm, ucx | mpi)
//   mpirun     ─ MPI ─ rendezvous: the host's memory ┘                     └─ forced: composed (oneself by shm, all others by ucx | mpi)
//
// **Agreement.** Ranks that were asked for different things, or have different libraries, would build what does not meet: they compare first. A step that fails on one
// rank is an error on all, which names the rank and what it said.
//
// Thread safety: join(), out_of_band() and the destructor by one thread a rank, collectively; the transport's own rules for the rest.
// Invariant: what a transport uses outlives it: network, then shm, then the planes and the MPI.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "comm/bootstrap/job.h"
#include "comm/out_of_band.h"
#include "comm/session/options.h"
#include "comm/session/plan.h"
#include "comm/transport.h"

namespace kasane::comm {

namespace mpi {
class Library;
}

class Session {
 public:
  /// Collective. job: one that was forked or stands alone (create_job), or one that says Launcher::mpi and nothing more: then the MPI is loaded and initialised
  /// here, and gives rank and ranks. A job's descriptors remain its maker's and stay open as long as the session.
  static Result<std::unique_ptr<Session>> join(const SessionOptions& options, Job job);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  [[nodiscard]] Transport& transport() noexcept { return *transport_; }
  /// Beside the transport: its messages are not the transport's. The first call builds it where the job was forked; every rank makes it.
  [[nodiscard]] OutOfBand& out_of_band();
  /// Which ranks are on this host, whichever way they are reached.
  [[nodiscard]] const Job& job() const noexcept { return job_; }
  /// "4 ranks on 2 hosts: shm within, ucx (UCX 1.13.1: tcp/va) between"
  [[nodiscard]] std::string describe() const;
  /// Takes leave of the MPI, if there is one, ahead of the destructor or in its place: mpirun takes a process that has not for one that died. Collective.
  /// Shared memory and UCX go on working; out_of_band() does not. Nor does a transport over the MPI: then the
  /// session must not be destroyed any more.
  void end_mpi() noexcept;

 private:
  class HostExchange;

  Session(SessionOptions options, Job job);
  Result<void> build();
  Result<void> meet();
  Result<void> load_mpi();
  Result<void> compare_options();
  Result<void> find_host();
  Result<void> decide();
  Result<void> connect();
  Result<void> open_near();
  Result<std::unique_ptr<Transport>> open_network(Bells& bells);
  [[nodiscard]] bool settled_by_fork() const;

  SessionOptions options_;
  Job job_;
  SessionPlan plan_;
  std::string network_;                         ///< what runs between ranks, in words
  // Destroyed from below.
  std::shared_ptr<mpi::Library> mpi_;
  bool made_job_ = false;                       ///< job_'s descriptors are ours to close
  std::optional<Job> self_;                     ///< of this rank alone; ours
  std::unique_ptr<Transport> control_;          ///< forked: the control plane
  std::unique_ptr<HostExchange> exchange_;      ///< over it
  std::unique_ptr<Transport> transport_;
};

}  // namespace kasane::comm
