// SPDX-License-Identifier: Apache-2.0
#include "comm/session/plan.h"

namespace kasane::comm {
namespace {

Result<SessionPlan> over_ucx(const Situation& s, bool within_hosts) {
  if (!s.ucx) return fail(Errc::unsupported, "--transport ucx: " + s.why_no_ucx);
  return SessionPlan{.network = NetworkKind::ucx, .within_hosts = within_hosts};
}

Result<SessionPlan> over_mpi(const Situation& s) {
  if (s.launcher != Launcher::mpi || s.without_mpi) {
    return fail(Errc::unsupported,
                "--transport mpi: no MPI joins the ranks; start them by `kasane run --transport mpi` or by "
                "mpirun, or name the MPI that srun or prterun starts them for (KASANE_MPI=openmpi or mpich)");
  }
  return SessionPlan{.network = NetworkKind::mpi, .within_hosts = true};
}

Result<SessionPlan> automatic(const Situation& s) {
  if (s.hosts == 1) return SessionPlan{};
  if (s.ucx) return SessionPlan{.network = NetworkKind::ucx, .within_hosts = false};
  if (s.launcher == Launcher::mpi && !s.attached && !s.without_mpi)
    return SessionPlan{.network = NetworkKind::mpi, .within_hosts = false};
  return fail(Errc::unsupported, counted(s.ranks, "rank") + " on " + counted(s.hosts, "host") +
                                     (s.attached ? " need UCX where the program has its own MPI: "
                                                 : " need UCX, or a start by mpirun: ") +
                                     s.why_no_ucx);
}

}  // namespace

bool ucx_matters(const Situation& s) {
  return s.ranks > 1 && (s.asked == "ucx" || (s.asked == "auto" && s.hosts > 1));
}

Result<SessionPlan> make_plan(const Situation& s) {
  if (s.asked != "auto" && s.asked != "shm" && s.asked != "ucx" && s.asked != "mpi") {
    return fail(Errc::invalid_argument,
                "--transport '" + s.asked + "' (KASANE_TRANSPORT): it is auto, shm, ucx or mpi");
  }
  if (s.ranks == 1) return SessionPlan{};
  if (s.asked == "ucx") return over_ucx(s, /*within_hosts=*/true);
  if (s.asked == "mpi") return over_mpi(s);
  if (s.asked == "auto") return automatic(s);
  if (s.hosts == 1) return SessionPlan{};
  return fail(Errc::unsupported, "--transport shm: the " + counted(s.ranks, "rank") + " are on " +
                                     counted(s.hosts, "host") +
                                     ", which share no memory; use auto, ucx or mpi");
}

}  // namespace kasane::comm
