// SPDX-License-Identifier: Apache-2.0
// How a rank joins its job: finds the other ranks and builds the transport that reaches them, from how the
// process was started and from the user's options. The runtime uses it, and so does a program that uses comm
// alone:
//
//   SessionOptions options;   // or from the environment: add_all_session_options()
//   Job job;                  // started by mpirun: only the launcher is set
//   job.launcher = Launcher::mpi;   // else: job = create_job(n, shm::job_bytes(n)),
//                                     // fork n times, job.rank = 0 … n-1
//   auto session = Session::join(options, job);
//   if (!session) die(session.error().message);
//   Transport& t = (*session)->transport();
//   PollWaiter waiter(t);
//   Collectives all(t, waiter);                            // sets its handler; set all others here, too
//   KASANE_TRY(t.attach(RegionId{1}, fd, memory, bytes));  // collective
//   Blocking(t, waiter).write({Rank{1}, RegionId{1}, 0}, data, bytes);
//   all.barrier();                                         // ranks stay while others may send requests; then
//                                                          // destroy `all`, then the session
//
// forked   ─ control plane of the host's memory ─┐                     ┌─ one host: shm
//                                                ├─▶ OutOfBand ─ plan ─┼─ several: composed (shm, ucx | mpi)
// launcher ─ MPI ─ rendezvous: the host's memory ┘                     └─ forced: composed (this rank by
//                                                                         shm, all others by ucx | mpi)
//
// **Agreement.** Ranks with different options or libraries would build transports that do not fit together:
// they compare first. A step that fails on one rank is an error on all, which names the rank and its error.
//
// Thread safety: join(), out_of_band() and the destructor by one thread a rank, collectively; for the rest
// the transport's own rules.
// Invariant: what a transport uses outlives it. Order of destruction: network, shm, the planes, the MPI.
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
  /// Collective. job: a forked or single one (create_job), or one with only Launcher::mpi set: then the MPI
  /// is loaded and initialised here, or PMIx is, and gives rank and ranks. A job's descriptors remain its
  /// maker's, which must keep them open as long as the session lives.
  /// adopted: the MPI of the program, whose ranks join. It serves for meeting only: no transport is made over
  /// it.
  static Result<std::unique_ptr<Session>> join(const SessionOptions& options, Job job,
                                               std::shared_ptr<mpi::Library> adopted = nullptr);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  [[nodiscard]] Transport& transport() noexcept { return *transport_; }
  /// Independent of the transport. Where the job was forked, the first call builds it; every rank must make
  /// that call.
  [[nodiscard]] OutOfBand& out_of_band();
  /// Says which ranks are on this host, however they are reached.
  [[nodiscard]] const Job& job() const noexcept { return job_; }
  /// "4 ranks on 2 hosts: shm within, ucx (UCX 1.13.1: tcp/va) between"
  [[nodiscard]] std::string describe() const;
  /// Finalizes the MPI or PMIx, if there is one, before the destructor or in its place: a launcher considers
  /// a process that has not as dead. Collective. Shared memory and UCX go on working. out_of_band() does not,
  /// nor does a transport over the MPI: then the session must not be destroyed any more.
  void end_mpi() noexcept;

 private:
  class HostExchange;

  Session(SessionOptions options, Job job, std::shared_ptr<mpi::Library> adopted);
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
  const bool adopted_;  ///< mpi_ is the program's
  SessionPlan plan_;
  std::string network_;  ///< describes what runs between ranks
  // Destroyed from the last to the first.
  std::shared_ptr<mpi::Library> mpi_;
  std::unique_ptr<OutOfBand> by_launcher_;  ///< an agent of kasane run --hosts, or PMIx: there is no MPI
  bool made_job_ = false;                   ///< this object closes job_'s descriptors
  std::optional<Job> self_;                 ///< of this rank alone; closed by this object
  std::unique_ptr<Transport> control_;      ///< forked: the control plane
  std::unique_ptr<HostExchange> exchange_;  ///< over it
  std::unique_ptr<Transport> transport_;
};

}  // namespace kasane::comm
