// SPDX-License-Identifier: Apache-2.0
// See session.h. The steps of build() are collective and in the same order on every rank; each step that can
// fail on one rank alone ends in agree().
#include "comm/session/session.h"

#include <utility>

#include "base/assert.h"
#include "base/memory_file.h"
#include "comm/agree.h"
#include "comm/bootstrap/from_host_agent.h"
#include "comm/bootstrap/rendezvous.h"
#include "comm/collectives/collectives.h"
#include "comm/collectives/over_transport.h"
#include "comm/composed/composed.h"
#include "comm/mpi/library.h"
#include "comm/mpi/mpi_transport.h"
#include "comm/mpi/pmix.h"
#include "comm/shm/shm_transport.h"
#include "comm/ucx/ucx_transport.h"
#include "comm/waiter.h"

namespace kasane::comm {
namespace {

/// A job of this rank alone, under its number in the whole job.
Result<Job> job_of_self(Rank rank, std::uint32_t ranks) {
  auto alone = create_job(1, shm::job_bytes(1));
  KASANE_TRY(alone);
  Job job = std::move(*alone);
  const Job::SocketPair box = job.sockets[0];
  job.ranks = ranks;
  job.rank = rank;
  job.sockets.assign(ranks, {});
  job.sockets[raw(rank)] = box;
  return job;
}

}  // namespace

/// The OutOfBand of forked ranks.
class Session::HostExchange {
 public:
  explicit HostExchange(Transport& plane)
      : waiter_(plane), collectives_(plane, waiter_), over_(plane, collectives_) {}
  [[nodiscard]] OutOfBand& get() noexcept { return over_; }

 private:
  PollWaiter waiter_;
  Collectives collectives_;
  OverTransport over_;
};

Session::Session(SessionOptions options, Job job, std::shared_ptr<mpi::Library> adopted)
    : options_(std::move(options)),
      job_(std::move(job)),
      adopted_(adopted != nullptr),
      mpi_(std::move(adopted)) {}

Session::~Session() {
  if (transport_ != nullptr && !settled_by_fork()) out_of_band().set_built(nullptr);
  transport_.reset();
  exchange_.reset();
  control_.reset();
  if (self_) close_job(*self_);
  if (made_job_) close_job(job_);
}

Result<std::unique_ptr<Session>> Session::join(const SessionOptions& options, Job job,
                                               std::shared_ptr<mpi::Library> adopted) {
  const RaisedFileLimit raised;  // networks make memory files of their own
  std::unique_ptr<Session> session(new Session(options, std::move(job), std::move(adopted)));
  KASANE_TRY(session->build());
  if (!session->settled_by_fork()) session->out_of_band().set_built(session->transport_.get());
  return session;
}

Result<void> Session::build() {
  KASANE_TRY(meet());
  if (settled_by_fork()) return open_near();
  KASANE_TRY(compare_options());
  KASANE_TRY(find_host());
  KASANE_TRY(decide());
  return connect();
}

// ---- finding the ranks ------------------------------------------------------------------------------------

Result<void> Session::meet() {
  if (job_.agent >= 0) {
    by_launcher_ = out_of_band_by_agent(OwnedFd(std::exchange(job_.agent, -1)), job_.rank, job_.ranks);
    return {};
  }
  if (job_.launcher == Launcher::mpi && !adopted_ && mpi::meets_by_pmix(options_.mpi)) {
    auto met = mpi::meet_by_pmix();
    KASANE_TRY(met);
    by_launcher_ = std::move(*met);
    job_.rank = by_launcher_->rank();
    job_.ranks = by_launcher_->ranks();
    return {};
  }
  if (job_.launcher == Launcher::mpi) return load_mpi();
  auto plane = shm::create(job_, shm::Plane::control);
  KASANE_TRY(plane);
  control_ = std::move(*plane);
  return {};
}

Result<void> Session::load_mpi() {
  if (!adopted_) {
    auto library = mpi::load(options_.mpi);
    KASANE_TRY(library);
    mpi_ = std::move(*library);
  }
  // An MPI that was started by another MPI's mpirun finds one rank only.
  if (job_.ranks > 1 && job_.ranks != mpi_->ranks()) {
    return fail(Errc::unsupported, "mpirun started " + counted(job_.ranks, "rank") + ", but " +
                                       std::string(mpi_->name()) + " " + std::string(mpi_->version()) +
                                       " finds " + std::to_string(mpi_->ranks()) +
                                       ": another MPI started them; say which with --mpi (KASANE_MPI)");
  }
  job_.rank = mpi_->rank();
  job_.ranks = mpi_->ranks();
  return {};
}

OutOfBand& Session::out_of_band() {
  if (by_launcher_ != nullptr) return *by_launcher_;
  if (mpi_ != nullptr) return mpi_->out_of_band();
  if (exchange_ == nullptr) exchange_ = std::make_unique<HostExchange>(*control_);
  return exchange_->get();
}

/// Forked ranks have one host, one image and one environment: nothing remains to be found out.
bool Session::settled_by_fork() const {
  if (job_.launcher == Launcher::mpi) return false;
  return job_.ranks == 1 ||
         (options_.hosts <= 1 && (options_.transport == "auto" || options_.transport == "shm"));
}

/// Ranks of several hosts may have got different options.
Result<void> Session::compare_options() {
  const std::string mine =
      "--transport " + options_.transport + " --debug hosts=" + std::to_string(options_.hosts);
  auto all = out_of_band().allgather(mine);
  KASANE_TRY(all);
  for (std::uint32_t r = 0; r < all->size(); ++r) {
    if ((*all)[r] == (*all)[0]) continue;
    return fail(Errc::invalid_argument,
                "rank 0 was asked for " + (*all)[0] + ", rank " + std::to_string(r) + " for " + (*all)[r] +
                    ": they must agree (KASANE_TRANSPORT, KASANE_DEBUG; mpirun -x or -genv passes them on)");
  }
  return {};
}

Result<void> Session::find_host() {
  const bool divided = options_.hosts > 1;
  if (job_.launcher != Launcher::mpi && !divided) return {};
  RendezvousOptions how{.shared_bytes = shm::job_bytes, .domain = {}};
  if (divided)
    how.domain = "part" + std::to_string(std::uint64_t{raw(job_.rank)} * options_.hosts / job_.ranks);
  auto found = rendezvous(out_of_band(), how);
  KASANE_TRY(found);
  found->launcher = job_.launcher;
  job_ = std::move(*found);
  made_job_ = true;
  return {};
}

Result<void> Session::decide() {
  Situation situation{.asked = options_.transport,
                      .launcher = job_.launcher,
                      .ranks = job_.ranks,
                      .hosts = job_.hosts,
                      .attached = adopted_,
                      .without_mpi = by_launcher_ != nullptr};
  if (ucx_matters(situation)) {
    const Result<void> here = ucx::available();
    // If one rank has no UCX, no rank uses it; that is no failure yet.
    const Result<void> everywhere = agree(out_of_band(), here, "UCX");
    situation.ucx = everywhere.has_value();
    if (!everywhere) situation.why_no_ucx = everywhere.error().message;
  }
  auto plan = make_plan(situation);
  KASANE_TRY(plan);
  plan_ = *plan;
  return {};
}

// ---- transports -------------------------------------------------------------------------------------------

/// Sets transport_ to the near part: the host's ranks, or this rank alone where a network joins those, too.
Result<void> Session::open_near() {
  if (plan_.within_hosts) {
    auto self = job_of_self(job_.rank, job_.ranks);
    KASANE_TRY(self);
    self_ = std::move(*self);
  }
  auto near = shm::create(plan_.within_hosts ? *self_ : job_);
  KASANE_TRY(near);
  transport_ = std::move(*near);
  return {};
}

Result<std::unique_ptr<Transport>> Session::open_network(Bells& bells) {
  if (plan_.network == NetworkKind::mpi) return mpi::create(mpi_, bells);
  return ucx::create(out_of_band(), bells, {.tls = {}, .within_hosts = plan_.within_hosts});
}

Result<void> Session::connect() {
  KASANE_TRY(agree(out_of_band(), open_near(), "joining the host's memory"));
  if (plan_.network == NetworkKind::none) return {};
  auto network = open_network(shm::bells(*transport_));
  Result<void> opened;
  if (!network) opened = tl::unexpected<Error>(network.error());
  KASANE_TRY(agree(out_of_band(), opened, "opening the network"));
  const Facts facts = (*network)->facts();
  network_ = std::string(facts.name) + (facts.detail.empty() ? "" : " (" + std::string(facts.detail) + ")");
  composed::Parts parts{.near = std::move(transport_), .far = std::move(*network), .is_near = {}};
  for (std::uint32_t r = 0; r < job_.ranks; ++r) {
    parts.is_near.push_back(plan_.within_hosts ? Rank{r} == job_.rank : job_.on_this_host(Rank{r}));
  }
  auto whole = composed::create(std::move(parts), out_of_band());
  KASANE_TRY(whole);
  transport_ = std::move(*whole);
  return {};
}

void Session::end_mpi() noexcept {
  if (mpi_ != nullptr) mpi_->end();
  if (by_launcher_ != nullptr) by_launcher_->end();
}

std::string Session::describe() const {
  std::string text = counted(job_.ranks, "rank") + " on " + counted(job_.hosts, "host") + ": ";
  if (plan_.network == NetworkKind::none) return text + "shm";
  return plan_.within_hosts ? text + network_ : text + "shm within, " + network_ + " between";
}

}  // namespace kasane::comm
