// SPDX-License-Identifier: Apache-2.0
#include "runtime/attach/attach.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/call_selector.h"
#include "base/owned_fd.h"
#include "comm/agree.h"
#include "comm/bootstrap/from_host_agent.h"
#include "comm/bootstrap/job.h"
#include "comm/mpi/library.h"
#include "comm/mpi/place.h"
#include "comm/shm/shm_transport.h"
#include "mem/uffd_engine.h"
#include "runtime/process/signals.h"
#include "runtime/rank/options.h"
#include "runtime/rank/process_state.h"
#include "runtime/rank/runtime.h"
#include "runtime/report/crash.h"
#include "runtime/start/launch.h"
#include "traps/alt_stack.h"
#include "traps/caught_calls.h"

namespace kasane::runtime {
namespace {

using Mpi = std::shared_ptr<comm::mpi::Library>;

Runtime* g_attached = nullptr;  // never destroyed at exit(): its threads run until the process ends
/// Attaches so far, and whether the last one holds: 2 n + 1, or 2 n.
std::atomic<std::uint32_t> g_attachments = 0;

std::optional<comm::Job> g_job;  ///< of one rank, whose descriptors are closed at the end

void close_own_job() noexcept {
  if (g_job) comm::close_job(*g_job);
  g_job.reset();
}

/// Which rank this process is where `kasane run --attach` has started it without an MPI. Its socket serves
/// every attach.
const comm::mpi::Place& place_by_agent() noexcept {
  static const comm::mpi::Place taken = [] {
    comm::mpi::Place place = comm::mpi::place(environ);
    if (place.mpi != comm::mpi::LaunchedFor::agent) return comm::mpi::Place{};
    place.agent = comm::mpi::take_agent(place);
    return place;
  }();
  return taken;
}

/// The socket by another number, for who closes it; -1: there is no agent.
int agent_socket() noexcept {
  const int socket = place_by_agent().agent;
  return socket < 0 ? -1 : ::fcntl(socket, F_DUPFD_CLOEXEC, 0);
}

/// No rank waits for this one.
void leave_job() noexcept {
  close_own_job();
  comm::tell_agent_of_leaving(place_by_agent().agent, place_by_agent().rank);
}

/// Rows of the table that mean user-level threads, or what ranks of one image have in common.
Result<Options> options_of_attached() {
  auto options = options_from_environment();
  KASANE_TRY(options);
  if (options->session.transport == "mpi")
    return fail(Errc::invalid_argument,
                "--transport mpi (KASANE_TRANSPORT): not where the program has initialised the MPI, in whose "
                "calls it may touch absent memory; use auto or ucx");
  options->workers = 1;
  options->slots = 1;
  options->bind = "none";
  options->main_in_every_rank = true;
  options->globals_shared = options->new_in_space = options->malloc_in_space = false;
  options->globals_of.clear();
  options->code_of.clear();  // no threads of ours
  options->common_stacks = false;
  options->relocation_off = true;  // pages stay
  options->check_globals = options->check_polling = false;
  return options;
}

/// What this rank knows of its job before the ranks meet.
Result<comm::Job> job_of(const Mpi& mpi) {
  const comm::mpi::Place& by_agent = place_by_agent();
  if (mpi == nullptr && by_agent.agent < 0) {
    auto alone = comm::create_job(1, comm::shm::job_bytes(1));
    if (alone) g_job = *alone;
    return alone;
  }
  comm::Job job;
  job.launcher = comm::Launcher::mpi;
  job.rank = mpi != nullptr ? mpi->rank() : by_agent.rank;
  job.ranks = mpi != nullptr ? mpi->ranks() : by_agent.ranks;
  return job;
}

/// Collective: whether all ranks can go on.
Result<void> agree(const Mpi& mpi, const comm::Job& job, const Result<void>& here) {
  if (mpi != nullptr) return comm::agree(mpi->out_of_band(), here, "kasane_attach");
  if (job.launcher != comm::Launcher::mpi) return here;
  return comm::agree(*comm::out_of_band_by_agent(OwnedFd(agent_socket()), job.rank, job.ranks), here,
                     "kasane_attach");
}

/// What one rank could refuse alone, before any rank begins.
Result<comm::Job> prepare(const Mpi& mpi, Options& options) {
  auto job = job_of(mpi);
  Result<void> here;
  if (job) {
    options.ranks = job->ranks;
    const std::uint32_t of_host = mpi != nullptr ? comm::mpi::place(environ).local_ranks : job->ranks;
    here = check_job_size(job->ranks, of_host, options.space_bytes);
  } else {
    here = tl::unexpected<Error>(job.error());
  }
  here = agree(mpi, job ? *job : comm::Job{}, here);
  if (here) return job;
  leave_job();
  return fail(Errc::invalid_argument, here.error().message);
}

/// What the attaching thread needs as long as the process lives.
Result<void> prepare_thread(Rank rank) {
  static std::optional<traps::AltStack> stack;
  static std::optional<traps::ProgramThread> caught;
  if (!stack) {
    auto made = traps::AltStack::create();
    KASANE_TRY(made);
    stack.emplace(std::move(*made));
  }
  let_faults_through();
  KASANE_TRY(install_crash_handlers(rank, OtherHandlers::stay));
  if (!caught) caught.emplace();
  return {};
}

/// An MPI that copies from the memory of other processes does not find pages that are absent there.
void warn_of_single_copy(const Runtime& runtime, const std::string& mpi) {
  if (raw(runtime.rank()) != 0 || runtime.ranks() == 1 || runtime.fault_engine() == mem::kUffdThread ||
      mpi != "MPICH" || std::getenv("UCX_TLS") != nullptr || runtime.options().log_level == "error" ||
      runtime.options().log_level == "off")
    return;
  std::fputs(
      "kasane: warning: MPICH may read global memory of other ranks that is absent, and abort: start it with "
      "UCX_TLS=posix,self, or as a user who may use userfaultfd (--faults uffd-thread)\n",
      stderr);
}

/// MPI_Finalize was called.
void detach_before_finalize() {
  if (g_attached != nullptr) detach();
}

Result<void> detach_at_finalize(const Mpi& mpi) {
  static bool known = false;
  if (mpi == nullptr || std::exchange(known, true)) return {};
  return mpi->before_finalize(&detach_before_finalize);
}

Result<void> join(const Mpi& mpi, Options options, comm::Job job) {
  const std::string name = mpi != nullptr ? std::string(mpi->name()) : std::string();
  KASANE_TRY(prepare_thread(job.rank));
  KASANE_TRY(detach_at_finalize(mpi));
  if (mpi == nullptr) job.agent = agent_socket();
  auto runtime = Runtime::attach(std::move(options), std::move(job), mpi);
  KASANE_TRY(runtime);
  g_attached = runtime->release();
  g_attachments.fetch_add(1, std::memory_order_release);  // release: the runtime, for attachment()
  warn_of_single_copy(*g_attached, name);
  return {};
}

}  // namespace

Result<void> attach(const char* mpi, const void* communicator) {
  auto options = options_of_attached();
  if (!options) return fail(Errc::invalid_argument, options.error().message);
  place_by_agent();  // takes its variables, which are no MPI's
  auto library = comm::mpi::adopt(mpi != nullptr ? mpi : options->session.mpi, communicator);
  if (!library) return fail(Errc::invalid_argument, library.error().message);
  auto job = prepare(*library, *options);
  KASANE_TRY(job);
  if (raw(job->rank) == 0) {
    const std::string unknown = unknown_variables_text(*options);
    tell(unknown.data(), unknown.size());
  }
  set_calls(Calls::passed);
  auto joined = join(*library, std::move(*options), std::move(*job));
  leave_runtime(joined ? Calls::caught : Calls::open);
  if (joined) return joined;
  close_own_job();
  if (joined.error().code != Errc::invalid_argument) return joined;
  return fail(Errc::unsupported, joined.error().message);  // ranks have begun
}

std::uint32_t attachment() noexcept {
  // acquire: a thread that sees it also sees the runtime
  const std::uint32_t n = g_attachments.load(std::memory_order_acquire);
  return n % 2 == 0 ? 0 : n / 2 + 1;
}

void detach() noexcept {
  g_attachments.fetch_add(1, std::memory_order_relaxed);  // no other thread uses it
  set_calls(Calls::passed);
  g_attached->detach();
  delete std::exchange(g_attached, nullptr);
  leave_job();
  // the range stays known: for messages
  set_process({.space_base = process().space_base, .space_bytes = process().space_bytes});
  leave_runtime(Calls::open);
}

}  // namespace kasane::runtime
