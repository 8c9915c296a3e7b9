// SPDX-License-Identifier: Apache-2.0
// How a rank is built from its options, serves, and ends: the functions of Runtime that the start and the end
// of a job call. What others ask of it is in rank/runtime.cpp.
#include "runtime/rank/runtime.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/assert.h"
#include "base/call_selector.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/process.h"
#include "comm/collectives/collectives.h"
#include "comm/engine/engine.h"
#include "comm/mpi/library.h"
#include "comm/session/session.h"
#include "gas/auto_relocator.h"
#include "gas/direct_access.h"
#include "gas/give_service.h"
#include "gas/heap.h"
#include "gas/pending.h"
#include "gas/sharing.h"
#include "mem/engines.h"
#include "mem/large_frames.h"
#include "mem/uffd_engine.h"
#include "runtime/api/direct.h"
#include "runtime/api/yield_waiter.h"
#include "runtime/job/agreement.h"
#include "runtime/language/atomics.h"
#include "runtime/language/global_malloc.h"
#include "runtime/language/held_mutexes.h"
#include "runtime/language/lock_calls.h"
#include "runtime/language/threads_check.h"
#include "runtime/process/output.h"
#include "runtime/process/shared_process.h"
#include "runtime/process/signals.h"
#include "runtime/process/stream_formats.h"
#include "runtime/process/streams.h"
#include "runtime/process/system_calls.h"
#include "runtime/rank/binding.h"
#include "runtime/rank/fences.h"
#include "runtime/rank/job_counters.h"
#include "runtime/rank/layers.h"
#include "runtime/rank/loaded_objects.h"
#include "runtime/rank/memory_tiers.h"
#include "runtime/rank/numa_memory.h"
#include "runtime/rank/own_addresses.h"
#include "runtime/rank/process_state.h"
#include "runtime/rank/program_code.h"
#include "runtime/rank/segments.h"
#include "runtime/rank/stacks.h"
#include "runtime/rank/thread_contexts.h"
#include "runtime/report/crash.h"
#include "runtime/report/heap_report.h"
#include "runtime/report/mixing_check.h"
#include "runtime/report/peer_lost.h"
#include "runtime/report/places.h"
#include "runtime/report/polling_check.h"
#include "runtime/report/race_report.h"
#include "runtime/report/statistics_ticker.h"
#include "runtime/report/thread_locals_check.h"
#include "runtime/report/thread_report.h"
#include "runtime/report/time_report.h"
#include "runtime/report/trace_file.h"
#include "sched/scheduler.h"
#include "sched/words.h"
#include "topo/threads.h"
#include "topo/topo.h"
#include "traps/alt_stack.h"
#include "traps/before_retry.h"
#include "traps/caught_calls.h"
#include "traps/restartable.h"
#include "ult/layout.h"
#include "ult/pool.h"
#include "ult/runtime_section.h"
#include "ult/sanitizer.h"

namespace kasane::runtime {
namespace {

/// A registered region of this rank. Lives as long as the process.
struct Region {
  std::byte* base = nullptr;
  std::size_t bytes = 0;
};

Result<Region> attach_region(comm::Engine& engine, comm::RegionId id, std::size_t bytes) {
  bytes = (bytes + 4095) / 4096 * 4096;
  auto memory = engine.transport().make_memory(id, bytes);
  KASANE_TRY(memory);
  KASANE_TRY(engine.attach(id, -1, *memory, bytes));
  return Region{*memory, bytes};
}

std::uint32_t default_workers(std::uint32_t ranks) { return std::max(1u, topo::usable_cores() / ranks); }

}  // namespace

/// What job/ builds beside the rank's own parts, and the steps in which it builds all of them. Destroyed
/// before those.
struct Runtime::Job final : Runtime::Layers {
  std::shared_ptr<comm::mpi::Library> own_mpi;  ///< attached: the program's
  std::vector<LoadedObject> objects;            ///< loaded before any network library
  std::optional<SharedProcess> shared_process;  ///< null on one rank, and where each rank runs main
  std::optional<PlaceTables> places;            ///< --stats
  std::uint64_t workers_begin_ns = 0;
  std::optional<StatisticsTicker> ticker;            ///< --stats=TIME
  std::optional<TraceRegion> trace;                  ///< --trace
  std::unique_ptr<MixingCheck> mixing;               ///< --check mixing
  std::unique_ptr<ThreadLocalsCheck> thread_locals;  ///< --check globals
  std::optional<RaceReport> races;                   ///< --check races
  std::optional<Direct> direct;
  std::optional<Atomics> atomics;  ///< with several ranks
  std::optional<Fences> fences;
  std::unique_ptr<Stacks> stacks;
  std::optional<sched::RegionWords> words;
  std::optional<sched::Scheduler> scheduler;
  std::unique_ptr<ult::Pool> own_pool;
  std::optional<ThreadReporter> reporter;
  std::optional<PollingCheck> polling;  ///< --check polling
  ProgramCode program_code;             ///< where a thread may leave a fault; none: nowhere
  std::vector<dsm::Sweeps> sweeps;      ///< of threads that may: kSweptThreads a worker
  static constexpr std::size_t kSweptThreads = 64;
  std::atomic<std::uint32_t> waits_asleep{0};
  const std::uint64_t begin_ns = now_ns();  ///< start of this process

  topo::NodeSet memory_nodes;
  Binding binding;
  std::vector<std::thread> worker_threads;
  std::thread service_thread;
  std::atomic<bool> service_stop{false}, stop_requested{false};
  std::atomic<pid_t> shut_down_by{0};  ///< the OS thread that ends the job; 0: none yet
  std::atomic<std::uint32_t> workers_left{0};
  bool others_ended = false;  ///< after join_workers(): no worker runs but perhaps the one that calls exit()
  /// on rank 0: the code with which a thread of another rank called exit(); kNoExit: none has
  static constexpr std::int64_t kNoExit = INT64_MIN;
  std::atomic<std::int64_t> exit_asked{kNoExit};
  /// handlers of the program's signals have stored, and their rank has released
  std::atomic<bool> handlers_stored_elsewhere{false};
  std::uint64_t handlers_ns = 0;  ///< when the service thread last released what handlers stored here
  std::atomic<bool> calls_caught{false};

  Result<void> build(comm::Job job, std::byte* space_base, std::vector<mem::ViewPart> variables);
  Result<void> join(comm::Job job, std::byte*& space_base);
  Result<void> build_engine();
  void begin();
  void catch_calls();
  void begin_catching_on_one_rank() noexcept override;
  Result<void> build_memory(std::byte* space_base, std::vector<mem::ViewPart> variables);
  Result<void> build_space(std::byte* space_base, std::vector<mem::ViewPart> variables);
  Result<void> build_directory();
  Result<void> build_tiers();
  Result<void> build_fault_engine();
  Result<void> build_coherence();
  void ask_for_large_frames();
  Result<void> build_heaps();
  Result<void> build_counters();
  Result<void> build_access();
  void share_variables();
  Result<void> build_threads();
  /// What a program may move, or give other pages: the heaps, and all behind them, its variables too.
  [[nodiscard]] std::uint64_t movable_bytes() const noexcept {
    return space->bytes() - segments.heaps_offset();
  }
  void connect_atomics() noexcept;
  void own_locks() noexcept;
  std::vector<sched::Distance> distances_from_here();
  std::uint64_t agree_on_clock();
  Result<void> compare_objects();
  void run_root(void (*entry)(void*), void* arg) override;
  void report();
  void count_races();
  [[nodiscard]] std::string transport_and_engine() const;
  void print_statistics();
  void report_thread_locals();
  void report_heap();
  void count_misplaced_pages();
  std::string time_of_workers();
  Result<void> give_main_a_stack();
  Result<void> start_threads(std::uint32_t first_worker);
  Result<void> start_servers();
  void begin_worker(std::uint32_t w);
  void service_loop();
  void exit_as_asked();
  void pass_on_stores_of_handlers(dsm::ThreadContext&);
  bool join_workers();
  void stop_service();
  [[nodiscard]] std::vector<gas::Heap*> all_heaps() noexcept {
    std::vector<gas::Heap*> all{&*heaps[0], &*heaps[1], &*heaps[2]};
    for (const auto& one : pools) all.push_back(one.get());
    return all;
  }
  /// Peers are not mapped here, and operations complete later.
  [[nodiscard]] bool over_network() const { return !transport->facts().completes_inline; }
  void end_over_network(bool all_joined);
  void complete_puts();
  void progress_pending_sends();
  /// Workers, the service thread, all other threads, faults served for other threads, the pager.
  [[nodiscard]] std::uint32_t counted_threads() const { return workers + 4; }

  /// Null: the access is possible now, or has to be repeated. Else the access is invalid; returns what the
  /// address means.
  const char* serve_fault(std::uint64_t offset, mem::Access wanted, mem::Served);
  [[nodiscard]] std::uint32_t most_waiting() const noexcept;
  [[nodiscard]] bool may_leave(dsm::ThreadContext&, std::uint64_t offset) noexcept;
  [[nodiscard]] bool may_run_others(std::uintptr_t stack_pointer) const noexcept;
  void use_sweeps_of_thread(dsm::ThreadContext&) noexcept;
  void bring(const void* p, std::size_t bytes) noexcept override;
  static void await_block(void* self, std::uint64_t offset) noexcept;
  static void ask_for_page(void* self, std::uint64_t offset) noexcept;
  [[nodiscard]] const char* overflow_text(StackId) const noexcept;
  static bool on_fault(void* self, std::uint64_t offset, mem::Access wanted, mem::Served);
  static void on_stop(void* self, const comm::Message&) noexcept;
};

// ---- construction -----------------------------------------------------------------------------------------

Result<std::unique_ptr<Runtime>> Runtime::create(const Options& options, comm::Job job, std::byte* space_base,
                                                 std::vector<mem::ViewPart> variables) {
  auto state = std::make_unique<Job>();
  state->options = options;
  if (auto built = state->build(std::move(job), space_base, std::move(variables)); !built) {
    // Not destroyed: MPI_Finalize waits for all ranks, and ranks without an error wait for this one. The
    // caller ends the process, and the launcher the job.
    (void)state.release();
    return tl::unexpected(std::move(built.error()));
  }
  std::unique_ptr<Runtime> runtime(new Runtime(std::move(state)));
  runtime->make_current();
  if (auto& shared = runtime->job().shared_process)
    shared->begin(*runtime->job().contexts, runtime->job().binding.cpus_of_program());
  if (auto attached = attach_malloc(*runtime); !attached) {
    (void)runtime.release();  // not destroyed: MPI_Finalize
    return tl::unexpected(std::move(attached.error()));
  }
  runtime->job().begin();
  runtime->job().own_locks();
  leave_common_heap(runtime->job().ranks);
  // Last: from here on the search for a stream's address costs a try for each rank.
  divide_streams(runtime->job().ranks, runtime->job().rank);
  return runtime;
}

Result<std::unique_ptr<Runtime>> Runtime::attach(const Options& options, comm::Job job,
                                                 std::shared_ptr<comm::mpi::Library> mpi) {
  auto state = std::make_unique<Job>();
  state->options = options;
  state->attached = true;
  state->own_mpi = std::move(mpi);
  expect_peers_to_leave(false);
  if (auto built = state->build(std::move(job), nullptr, {}); !built) {
    (void)state.release();  // other ranks may use what it has given them
    return tl::unexpected(std::move(built.error()));
  }
  std::unique_ptr<Runtime> runtime(new Runtime(std::move(state)));
  runtime->make_current();
  runtime->job().begin();
  if (auto started = runtime->job().start_servers(); !started) {
    (void)runtime.release();
    return tl::unexpected(std::move(started.error()));
  }
  return runtime;
}

void Runtime::Job::begin() {
  // every rank has its handlers and memory before the first message
  collectives->barrier();
  catch_calls();
  if (pool != nullptr && (over_network() || tiers != nullptr) && !polling && !ult::kSanitized) {
    program_code.find();
    sweeps.resize(workers * kSweptThreads);
  }
  if (trace) trace->note_start();
  connect_atomics();
}

/// Where memory that a program names in a system call may be absent, and the kernel does not wait for it; and
/// with several ranks, whose descriptors differ. On
/// one rank without --dram that begins with the first allocation of whole pages, which are armed when they
/// are touched, or with the first eviction (begin_catching_on_one_rank()). But where a program closes
/// descriptors by libc's functions, not by ours (dlopen, as Python has it), its calls are always seen.
void Runtime::Job::catch_calls() {
  const bool all_here = ranks == 1 || attached;  // and their descriptors
  const bool kernel_waits = engine->name() == mem::kUffdThread;
  const bool seen = ::dlsym(RTLD_DEFAULT, "close") == reinterpret_cast<void*>(&::close);
  if (ult::kSanitized || (seen && ((all_here && kernel_waits) || (ranks == 1 && options.dram_bytes == 0))))
    return;
  calls_caught.store(true);
  if (!all_here) {
    rlimit files{};
    ::getrlimit(RLIMIT_NOFILE, &files);
    std::uint64_t least = files.rlim_cur;
    collectives->allreduce(comm::Reduce::min, {&least, 1});
    number_descriptors(Descriptors(ranks, rank, least));
  }
  begin_catching_calls(kernel_waits);
}

void Runtime::Job::begin_catching_on_one_rank() noexcept {
  if (tiers == nullptr || ult::kSanitized || engine->name() == mem::kUffdThread) return;
  if (!calls_caught.load() && !calls_caught.exchange(true)) begin_catching_calls(false);
}

Runtime::Runtime(std::unique_ptr<Job> job) : layers_(std::move(job)), direct_(&*this->job().direct) {}

Runtime::Job& Runtime::job() noexcept { return static_cast<Job&>(*layers_); }

Runtime::~Runtime() {
  shut_down();
  detach_malloc();
  traps::pass_caught_calls();
  forget_process();
  layers_->engine->stop();  // before what its handler uses
}

Result<void> Runtime::Job::build(comm::Job job, std::byte* space_base, std::vector<mem::ViewPart> variables) {
  set_log_level(parse_log_level(options.log_level).value());
  KASANE_TRY(join(std::move(job), space_base));
  auto divided = Segments::divide(options.space_bytes, ranks, options.stack_bytes, options.slots,
                                  options.main_stack_bytes, static_cast<std::uint32_t>(options.numa_pools));
  KASANE_TRY(divided);
  segments = *divided;

  start_waiter.emplace(*transport);
  collectives.emplace(*transport, *start_waiter);
  transport->set_handler(gas::kStopHandler, &Job::on_stop, this);
  if (ranks > 1 && !options.main_in_every_rank) {
    shared_process.emplace(*transport, options.threads_spread);
    if (raw(rank) == 0) note_stream_formats();  // main's, which tells the others
  }
  KASANE_TRY(build_engine());
  if (!options.globals_shared || options.main_in_every_rank) variables.clear();
  if (ranks == 1) own_variables = OneRankVariables(std::exchange(variables, {}));
  KASANE_TRY(build_memory(space_base, std::move(variables)));
  if (attached) {
    clock_offset_ns = agree_on_clock();
    KASANE_TRY(collectives->attach());  // the program's barriers
  } else {
    take_own_addresses(rank, ranks);
    KASANE_TRY(build_threads());
  }
  log(LogLevel::debug, "rank {} of {}: {}", raw(rank), ranks, transport_and_engine());
  return attached ? Result<void>() : compare_objects();
}

/// Joins the other ranks, and agrees with them on what the launcher has not fixed before the fork.
Result<void> Runtime::Job::join(comm::Job job, std::byte*& space_base) {
  objects = loaded_objects();
  auto joined = comm::Session::join(options.session, std::move(job), std::move(own_mpi));
  KASANE_TRY(joined);
  session = std::move(*joined);
  transport = &session->transport();
  rank = transport->rank();
  ranks = transport->ranks();
  transport->set_peer_lost(end_of_peer, nullptr);
  if (attached) transport->limit_memory();
  const std::uint32_t here =
      std::max<std::uint32_t>(1, static_cast<std::uint32_t>(session->job().host_ranks().size()));
  memory_nodes = topo::memory_nodes();
  options.numa_pools = NumaMemory::pools_wanted(memory_nodes);
  if (space_base == nullptr) {
    auto agreed = agree(session->out_of_band(), options, default_workers(here));
    KASANE_TRY(agreed);
    space_base = *agreed;
    note_joined(rank, ranks, options.main_in_every_rank, space_base, options.space_bytes);
  }
  workers = options.workers != 0 ? static_cast<std::uint32_t>(options.workers) : default_workers(ranks);
  auto bind = topo::BindTo::parse(options.bind);
  if (!bind) return fail(bind.error().code, "--bind (KASANE_BIND): " + bind.error().message);
  bind->scatter = options.bind_scattered;
  if (bind->what != topo::BindTo::What::none) {
    const auto& host_ranks = session->job().host_ranks();
    const auto before = static_cast<std::uint32_t>(std::find(host_ranks.begin(), host_ranks.end(), rank) -
                                                   host_ranks.begin());
    const bool parts = options.session.hosts > 1;  // parts of one host, whose cores they share
    auto made = parts ? Binding::create(*bind, raw(rank), ranks, workers)
                      : Binding::create(*bind, before % here, here, workers);
    KASANE_TRY(made);
    binding = std::move(*made);
  }
  // Threads of different ranks access each other's deques and records; the rank that holds them uses the
  // CPU's atomics (rule 15).
  if (transport->facts().atomics_coherent_with_cpu) return {};
  return fail(Errc::unsupported,
              "the transport " + std::string(transport->facts().name) +
                  " has atomics that the CPU does not see as such; choose another one (--transport)");
}

/// Rule 14: every rank has to have loaded the same code at the same addresses as rank 0, and to have the same
/// guards. An error names the first object that differs.
Result<void> Runtime::Job::compare_objects() {
  const auto& mine = objects;
  std::vector<std::uint64_t> digests(mine.size() + 2);
  digests[0] = digest(mine);
  digests[1] = mine.size();
  for (std::size_t i = 0; i < mine.size(); ++i) digests[2 + i] = mine[i].digest;

  const std::uint64_t guards = guards_digest();
  std::array<std::uint64_t, 3> first{digests[0], digests[1], guards};
  collectives->broadcast(Rank{0}, std::as_writable_bytes(std::span(first)));
  std::vector<std::uint64_t> theirs(first[1]);
  if (raw(rank) == 0) std::copy(digests.begin() + 2, digests.end(), theirs.begin());
  collectives->broadcast(Rank{0}, std::as_writable_bytes(std::span(theirs)));
  if (first[0] == digests[0]) {
    if (first[2] == guards) return {};
    return fail(
        Errc::unsupported,
        "rank " + std::to_string(raw(rank)) +
            " has other stack guards than rank 0; threads cannot move between them. Under mpirun they "
            "are made from KASANE_JOB_KEY: pass the same one to all ranks (mpirun -x KASANE_JOB_KEY, -genv "
            "KASANE_JOB_KEY TEXT)");
  }
  std::size_t i = 0;
  while (i < mine.size() && i < theirs.size() && mine[i].digest == theirs[i]) ++i;
  return fail(Errc::unsupported,
              "rank " + std::to_string(raw(rank)) +
                  " has loaded other code than rank 0, or at another address: " +
                  (i < mine.size() ? mine[i].name : std::string("rank 0 has more objects")) +
                  "; threads cannot move between them. Start all ranks from one image (kasane run); under "
                  "mpirun each host needs the same "
                  "program and libraries, and all must allow personality(ADDR_NO_RANDOMIZE), or none");
}

/// The engine's threads (KASANE_ISSUE=offload) make progress from here on, while handlers are still being
/// set: no message for these arrives before the barrier at the end of create().
Result<void> Runtime::Job::build_engine() {
  comm::EngineOptions wanted;
  // As many as DirectAccess has parts; where every peer is mapped operations need no records.
  wanted.operations = 1024;
  if (transport->facts().completes_inline) wanted.operations = wanted.packs = wanted.argument_buffers = 16;
  auto made = comm::Engine::create(*transport, options.engine.set_in(wanted));
  KASANE_TRY(made);
  comm_engine = std::move(*made);
  return {};
}

/// From its end on faults are served.
Result<void> Runtime::Job::build_memory(std::byte* space_base, std::vector<mem::ViewPart> variables) {
  KASANE_TRY(build_space(space_base, std::move(variables)));
  KASANE_TRY(build_directory());
  KASANE_TRY(build_tiers());
  KASANE_TRY(build_fault_engine());
  KASANE_TRY(build_coherence());
  KASANE_TRY(build_heaps());
  KASANE_TRY(build_counters());
  KASANE_TRY(build_access());
  return engine->start(&Job::on_fault, this);
}

/// The views, and which part of them the stacks of a job on one host are.
Result<void> Runtime::Job::build_space(std::byte* space_base, std::vector<mem::ViewPart> variables) {
  mem::place_parts(variables, options.space_bytes);
  auto made_space = mem::Space::create(space_base, options.space_bytes, variables, raw(rank) == 0);
  KASANE_TRY(made_space);
  space.emplace(std::move(*made_space));
  numa.emplace(*transport, *space, segments.pools, memory_nodes);
  if (const auto node = binding.node()) KASANE_TRY(numa->prefer(*node));
  KASANE_TRY(comm_engine->attach(gas::kFrames, space->frames_fd(), space->a(0), space->bytes()));
  // --check races finds races on stacks only where stacks are coherent by copies.
  common_stacks = options.common_stacks && !options.check_races && CommonStacks::possible(*transport);
  if (common_stacks) KASANE_TRY(CommonStacks::show(*space, segments, *transport));
  return {};
}

/// Where pages live, and who uses them.
Result<void> Runtime::Job::build_directory() {
  const auto pages = segments.pages(space->bytes());
  KASANE_TRY(pages);
  KASANE_TRY(attach_region(*comm_engine, gas::kDirectory, gas::Directory::region_bytes(*pages, ranks)));
  directory.emplace(*transport, *pages);
  auto made_sharing = gas::Sharing::create(
      *transport, *directory, {options.classification, segments.heaps_offset(), movable_bytes()});
  KASANE_TRY(made_sharing);
  sharing = std::move(*made_sharing);
  return {};
}

/// What of the pages may be on SSD, and the addresses that say so.
Result<void> Runtime::Job::build_tiers() {
  const std::uint64_t all_heaps = segments.heaps_offset(), heap_bytes = segments.heaps_end() - all_heaps;
  const auto here = session->job().host_ranks();
  auto budget = attach_region(*comm_engine, gas::kBudget, MemoryTiers::budget_bytes(here));
  KASANE_TRY(budget);
  auto made_tiers =
      MemoryTiers::create({*transport,
                           *collectives,
                           here,
                           *space,
                           *directory,
                           {all_heaps, heap_bytes},
                           {segments.stacks_offset, segments.stack_bytes, ranks * segments.stacks_per_rank},
                           workers,
                           budget->base},
                          options);
  KASANE_TRY(made_tiers);
  tiers = std::move(*made_tiers);
  gas::Tiers* const where_pages_go = tiers != nullptr ? &tiers->tiers() : nullptr;
  auto made_addresses = gas::AddressCache::create({*transport, *directory, sharing.get(), where_pages_go});
  KASANE_TRY(made_addresses);
  addresses = std::move(*made_addresses);
  return {};
}

/// What this rank knows of its blocks, and how it learns of accesses to those that are absent.
Result<void> Runtime::Job::build_fault_engine() {
  auto made_table = mem::BlockTable::create(space->blocks());
  KASANE_TRY(made_table);
  table.emplace(std::move(*made_table));
  for (auto* set : {&cached, &dirty}) {
    auto made = mem::BlockSet::create(space->blocks());
    KASANE_TRY(made);
    set->emplace(std::move(*made));
  }
  // MPI reads memory of other processes, for which only this engine's faults wait.
  const bool by_thread = attached && options.faults == "auto" && mem::engine_for(mem::kUffdThread);
  auto made_engine = mem::make_fault_engine(*space, by_thread ? mem::kUffdThread : options.faults);
  KASANE_TRY(made_engine);
  engine = std::move(*made_engine);
  numa->use(*engine);
  if (common_stacks) {
    KASANE_TRY(engine->leave_open(
        {mem::block_of(segments.all_stacks_offset()), segments.all_stacks_bytes(ranks) / mem::kBlockBytes}));
  }
  return {};
}

/// What keeps the ranks' copies the same, and moves pages to where they are used.
Result<void> Runtime::Job::build_coherence() {
  gas::Tiers* const where_pages_go = tiers != nullptr ? &tiers->tiers() : nullptr;
  if (!options.relocation_off && ranks > 1) {
    auto made_relocator =
        gas::AutoRelocator::create(*transport, *directory, {segments.heaps_offset(), movable_bytes()});
    KASANE_TRY(made_relocator);
    auto_relocator = std::move(*made_relocator);
  }
  if (options.check_races) {
    know_program();
    races.emplace(*space, rank);
  }
  dsm::Parts parts{*space,
                   *table,
                   *cached,
                   *dirty,
                   *engine,
                   *transport,
                   *addresses,
                   *sharing,
                   auto_relocator.get(),
                   where_pages_go,
                   races ? &*races : nullptr};
  parts.waits_asleep = &waits_asleep;
  coherence.emplace(parts);
  give_service.emplace(*transport, coherence->mover);
  if (tiers != nullptr) {
    tiers->connect(*addresses, *coherence);
    ask_for_large_frames();
  }
  return {};
}

/// Where frames come and go.
void Runtime::Job::ask_for_large_frames() {
  const std::uint64_t frame_bytes = mem::large_frame_bytes();
  for (const Segments::Heap& heap : segments.heaps)
    for (std::byte* view : {space->a(0), space->v(0)})
      mem::ask_for_large_frames(view + heap.offset, heap.offset, heap.bytes, heap.page_bytes, frame_bytes);
  if (const Segments::Pools& of = segments.pools; of.count != 0)
    for (std::byte* view : {space->a(0), space->v(0)})
      mem::ask_for_large_frames(view + of.offset, of.offset, of.bytes * of.count, mem::kPageBytes,
                                frame_bytes);
}

Result<void> Runtime::Job::build_heaps() {
  constexpr std::array regions{gas::kHeap, gas::kHeapOfSmallPages, gas::kHeapOfLargePages};
  const auto base = reinterpret_cast<std::uintptr_t>(space->v(0));
  for (std::size_t i = 0; i < heaps.size(); ++i) {
    const gas::Heap::Config config{segments.heaps[i].offset, segments.heaps[i].bytes, workers, base,
                                   regions[i]};
    KASANE_TRY(attach_region(*comm_engine, config.region, gas::Heap::region_bytes(config, ranks)));
    heaps[i].emplace(*transport, config, *directory, coherence->mover, coherence->moves);
  }
  if (const Segments::Pools& of = segments.pools; of.count != 0) {
    gas::Heap::Config config{of.offset, of.bytes, workers, base, gas::kNumaPools};
    const std::size_t region = gas::Heap::region_bytes(config, ranks);
    KASANE_TRY(attach_region(*comm_engine, config.region, region * of.count));
    for (; config.offset != of.end(); config.offset += of.bytes, config.region_offset += region)
      pools.push_back(
          std::make_unique<gas::Heap>(*transport, config, *directory, coherence->mover, coherence->moves));
  }
  return {};
}

/// The counters of each thread that the runtime has, and what is noted beside them.
Result<void> Runtime::Job::build_counters() {
  KASANE_TRY(attach_region(*comm_engine, gas::kStatistics, JobCounters::bytes(counted_threads())));
  job_counters.emplace(*transport, counted_threads());
  if (!options.trace.empty()) {
    if (raw(rank) == 0) KASANE_TRY(TraceRegion::can_write(options.trace));
    auto logs =
        attach_region(*comm_engine, gas::kTrace, TraceRegion::bytes(counted_threads(), options.trace_events));
    KASANE_TRY(logs);
    trace.emplace(logs->base, job_counters->own(), counted_threads(), options.trace_events);
  }
  if (options.statistics && !attached) {
    auto tables = attach_region(*comm_engine, gas::kPlaces, PlaceTables::bytes(workers));
    KASANE_TRY(tables);
    know_program();
    places.emplace(tables->base, job_counters->own(), workers);
  }
  contexts.emplace(*transport, job_counters->own(), workers);
  return {};
}

/// Direct access and atomics.
Result<void> Runtime::Job::build_access() {
  auto made_access = gas::DirectAccess::create(*comm_engine, *addresses, auto_relocator.get(), space->bytes(),
                                               space->addresses());
  KASANE_TRY(made_access);
  access = std::move(*made_access);
  auto pending = attach_region(*comm_engine, gas::kPending, gas::PendingTable::kRegionBytes);
  KASANE_TRY(pending);
  if (options.check_mixing) mixing = std::make_unique<MixingCheck>(*space, *coherence, rank);
  direct.emplace(*access, *space, *contexts, pending->base, mixing.get(), own_variables);
  share_variables();
  if (ranks > 1) {
    KASANE_TRY(attach_region(*comm_engine, gas::kAtomics, Atomics::kRegionBytes));
    atomics.emplace(Atomics::Parts{*transport, *access, *coherence, *sharing, *contexts, *space, segments,
                                   common_stacks});
    direct->come_after_fences(*atomics);
  }
  return {};
}

/// Rank 0 owns the program's variables first: M has their bytes there. Before any rank touches one, since
/// create() ends with a barrier.
void Runtime::Job::share_variables() {
  if (raw(rank) != 0) return;
  auto& io = contexts->here().io;
  for (const mem::ViewPart& part : space->addresses().parts().subspan(1)) {
    const mem::PageRange pages = directory->pages().in(part.offset, part.bytes);
    directory->name_fresh(io, PageId{pages.first}, pages.size(), [this](PageId) { return rank; });
  }
}

/// From here on the program's atomics in the space go to their owners.
void Runtime::Job::own_locks() noexcept {
  const std::byte* const base = space->v(0);
  const std::uint64_t end = segments.all_stacks_offset() + segments.all_stacks_bytes(ranks);
  own_locks_of_program({base, options.space_bytes},
                       {base + segments.main_offset, base + end});  // main's stack lies before the others
}

void Runtime::Job::connect_atomics() noexcept {
  if (!atomics) return;
  const bool restartable = traps::can_restart_sequences();
  if (restartable) coherence->moves.allow_restartable();
  const std::atomic<std::uint32_t>& first = (*table)[BlockId{0}];
  runtime::connect_atomics(
      &*atomics, atomics->connection(restartable ? reinterpret_cast<const std::uint32_t*>(&first) : nullptr));
}

/// The distance of each rank from this one. Collective. The workers are not bound yet, so a plan for them
/// says where they will run.
std::vector<sched::Distance> Runtime::Job::distances_from_here() {
  static constexpr std::uint32_t kSeveral = topo::RankPlan::kSeveralNodes;
  const auto node = [](std::uint32_t word) { return word == kSeveral ? std::nullopt : std::optional(word); };
  std::vector<std::uint32_t> planned = binding.worker_nodes();
  if (planned.empty()) planned = {topo::only_numa_node().value_or(kSeveral)};
  const bool one = std::ranges::count(planned, planned[0]) == std::ssize(planned);
  const std::uint32_t mine = one ? planned[0] : kSeveral;
  std::vector<std::uint32_t> nodes(ranks);
  collectives->allgather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(nodes)));
  std::vector<sched::Distance> distances(ranks);
  for (std::uint32_t r = 0; r < ranks; ++r)
    distances[r] = sched::distance(session->job().on_this_host(Rank{r}), node(mine), node(nodes[r]));
  return distances;
}

/// The time of day minus now_ns(), as the host's first rank reads them: the same for all ranks of the host.
/// Hosts whose times of day agree have the same clock.
std::uint64_t Runtime::Job::agree_on_clock() {
  timespec day;
  ::clock_gettime(CLOCK_REALTIME, &day);
  const std::uint64_t ahead = static_cast<std::uint64_t>(day.tv_sec) * 1'000'000'000u +
                              static_cast<std::uint64_t>(day.tv_nsec) - now_ns();
  std::vector<std::uint64_t> all(ranks);
  collectives->allgather(std::as_bytes(std::span(&ahead, 1)), std::as_writable_bytes(std::span(all)));
  std::uint32_t first = 0;
  while (!session->job().on_this_host(Rank{first})) ++first;
  return all[first];
}

Result<void> Runtime::Job::build_threads() {
  auto region = attach_region(*comm_engine, gas::kThreads,
                              ult::threads_region_bytes(workers, segments.slots_per_rank(ranks)));
  KASANE_TRY(region);
  fences.emplace(*coherence, *contexts);
  const Stacks::Parts parts{coherence->mover, *contexts, *space,     directory->pages(),
                            segments,         rank,      tiers.get()};
  if (common_stacks)
    stacks = std::make_unique<CommonStacks>(parts);
  else
    stacks = std::make_unique<MovingStacks>(parts, *coherence);
  words.emplace(*transport, gas::kThreads);

  ult::Config config;
  clock_offset_ns = agree_on_clock();
  config.clock_offset_ns = clock_offset_ns;
  config.rank = rank;
  config.ranks = ranks;
  config.workers = workers;
  config.slots_per_rank = segments.slots_per_rank(ranks);
  config.stacks_per_rank = static_cast<std::uint32_t>(segments.stacks_per_rank);
  config.stack_bytes = segments.stack_bytes;
  config.stacks = space->v(segments.stacks_offset);
  config.first_stack_bytes = segments.first_stack_bytes;
  config.region = region->base;
  config.counters = job_counters->own();
  config.words = &*words;
  config.edges = &*fences;
  config.mover = &*stacks;
  config.prepare_stack = [](void* self, StackId stack) { static_cast<Stacks*>(self)->prepare(stack); };
  if (common_stacks) {
    config.trim_stack = [](void* self, StackId stack) {
      static_cast<CommonStacks*>(static_cast<Stacks*>(self))->trim(stack);
    };
    config.use_trimmed_stack = [](void* self, StackId stack) {
      static_cast<CommonStacks*>(static_cast<Stacks*>(self))->use_trimmed(stack);
    };
  }
  config.stack_context = stacks.get();
  config.leftover = g_partial_line;
  config.waits_asleep = &waits_asleep;
  config.worker_nodes = binding.worker_nodes();
  if (options.check_globals && ranks * workers > 1) thread_locals = ThreadLocalsCheck::create(workers);
  scheduler.emplace(*transport, *words, *fences, *stacks, config, distances_from_here(), options.seed);
  config.other_ranks = &*scheduler;
  transport->set_nudge([](void* self, Rank to) noexcept { static_cast<sched::Scheduler*>(self)->nudge(to); },
                       &*scheduler);
  auto made = ult::Pool::create(config);
  KASANE_TRY(made);
  own_pool = std::move(*made);
  pool = own_pool.get();
  if (options.check_polling && ranks > 1) polling.emplace(*pool, *space);
  if (options.check_threads) ThreadsCheck::begin();
  reporter.emplace(*pool, process().threads, options.deadlock_s * 1'000'000'000,
                   options.main_in_every_rank && raw(rank) != 0);
  return {};
}

// ---- faults -----------------------------------------------------------------------------------------------

/// What an access to the stack's guard means.
const char* Runtime::Job::overflow_text(StackId stack) const noexcept {
  if (raw(stack) == 0 && segments.first_stack_bytes != segments.stack_bytes)
    return "stack overflow of the first thread; give it more with kasane run --main-stack SIZE, or "
           "KASANE_MAIN_STACK";
  if (pool != nullptr && pool->has_refused_threads())
    return "stack overflow of a thread. All call stacks of the rank were in use, so threads ran on their "
           "creators' stacks what they would have forked; give the rank more stacks with kasane run --slots "
           "N, "
           "or KASANE_SLOTS, or fork less deeply";
  return "stack overflow of a thread; give threads more with kasane run --stack SIZE, or KASANE_STACK";
}

const char* Runtime::Job::serve_fault(std::uint64_t offset, mem::Access wanted, mem::Served served) {
  if (network_closed.load())
    return "global memory is gone: the job has ended (a destructor of a static object, or a thread that was "
           "detached?)";
  if (segments.in_stacks(offset, ranks) &&
      offset - segments.stack_offset(segments.stack_at(offset)) < mem::kBlockBytes)
    return overflow_text(segments.stack_at(offset));
  if (in_common_stacks(offset)) return "no memory is left for a thread's stack";
  if (mixing != nullptr) mixing->on_fault(offset, wanted == mem::Access::write);
  if (races && wanted == mem::Access::write) races->note_store(offset);
  const bool deep = segments.in_stacks(offset, ranks) && offset < segments.stacks_offset;
  if (deep) stacks->before_service(offset);
  PollingCheck::Watched watched;
  if (polling && served == mem::Served::in_place) watched = polling->before(offset);
  auto& context = contexts->of(served);
  const bool leaves = served == mem::Served::in_place && may_leave(context, offset);
  const auto outcome = coherence->faults.serve(context, offset, wanted, leaves);
  if (outcome == dsm::Faults::Outcome::later || outcome == dsm::Faults::Outcome::unknown) {
    const bool later = outcome == dsm::Faults::Outcome::later;
    context.waits_in_place =
        !traps::call_before_retry(later ? &Job::await_block : &Job::ask_for_page, this, offset);
  }
  if (outcome != dsm::Faults::Outcome::not_allocated) {
    if (deep) stacks->after_service(offset);
    if (watched.yes) polling->after(offset, watched);
    return nullptr;
  }
  // Nothing else lies below main's stack for gigabytes; small offsets are other mistakes.
  if (main_stack_low != nullptr && offset < segments.main_offset && offset >= segments.main_offset / 2)
    return "stack overflow of main; give it more with kasane run --main-stack SIZE, or KASANE_MAIN_STACK";
  if (segments.in_bound_stacks(offset))
    return "stack overflow of an OS thread, or a wild pointer; give threads more with ulimit -s, or "
           "pthread_attr_setstacksize";
  return segments.in_stacks(offset, ranks)
             ? "a stack that is not in use: a large local variable overflowed this thread's stack (raise "
               "--stack, KASANE_STACK), or a wild pointer"
             : "a wild pointer: nothing is allocated at this address of the space";
}

/// So many threads of a worker may wait for pages while it runs others: each keeps some of its stack, and a
/// buffer while its sweep is read. The first part of a share is the runtime's.
std::uint32_t Runtime::Job::most_waiting() const noexcept {
  constexpr std::uint64_t kOneFor = 1u << 20, kFirst = 4;
  const std::uint64_t room = tiers == nullptr ? ~std::uint64_t{0} : tiers->share() / kOneFor;
  return static_cast<std::uint32_t>(
      std::min<std::uint64_t>(ult::Pool::kMostWaiting, std::max(room, kFirst + 1) - kFirst));
}

/// May the calling worker run other threads until the access, whose fault it serves, can be made?
bool Runtime::Job::may_leave(dsm::ThreadContext& context, std::uint64_t offset) noexcept {
  const traps::FaultingCode code = traps::faulting_code();
  use_sweeps_of_thread(context);
  return program_code.runs(code.instruction, code.stack_pointer) &&
         !std::exchange(context.waits_in_place, false) && !segments.in_stacks(offset, ranks) &&
         may_run_others(code.stack_pointer);
}

bool Runtime::Job::may_run_others(std::uintptr_t stack_pointer) const noexcept {
  return views_open.load() == 0 && !holds_mutex_of_libc() &&
         ult::Pool::may_leave(stack_pointer, most_waiting());
}

void Runtime::Job::use_sweeps_of_thread(dsm::ThreadContext& context) noexcept {
  if (const SlotId self = ult::Pool::self(); !sweeps.empty() && self != kNoSlot)
    context.sweeps = &sweeps[ult::Pool::worker() * kSweptThreads + raw(self) % kSweptThreads];
}

/// By what a fault of each absent block would do; blocks on SSD here are sent for together before. Of more
/// than a sweep the transfers between ranks are better made together, which the caller does.
void Runtime::Job::bring(const void* p, std::size_t bytes) noexcept {
  constexpr int kTries = 3;
  if ((!over_network() && tiers == nullptr) || bytes == 0 || !space->contains(p, bytes) ||
      network_closed.load())
    return;
  const std::uint64_t begin = space->offset(p);
  if (segments.in_stacks(begin, ranks)) return;
  const auto& faults = coherence->faults;
  std::uint64_t first = raw(mem::block_of(begin));
  const std::uint64_t end = raw(mem::block_of(begin + bytes - 1)) + 1;
  while (first < end && faults.here(BlockId{first})) ++first;
  const auto stack = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
  if (first == end || !may_run_others(stack)) return;
  if (coherence->tiering.stores_any()) {
    const ult::RuntimeSection section;
    auto& context = contexts->here();
    use_sweeps_of_thread(context);
    coherence->tiering.send_for(context, mem::offset_of(BlockId{first}), (end - first) * mem::kBlockBytes,
                                dsm::Use::read);
  }
  for (std::uint64_t b = first; b < end; ++b) {
    const std::uint64_t offset = mem::offset_of(BlockId{b});
    for (int tries = 0; tries < kTries && !faults.here(BlockId{b}); ++tries) {
      if (b - first >= dsm::Sweeps::kMost && !faults.busy(BlockId{b})) break;
      if (!may_run_others(stack)) break;
      auto outcome = dsm::Faults::Outcome::served;
      {
        const ult::RuntimeSection section;
        auto& context = contexts->here();
        use_sweeps_of_thread(context);
        outcome = coherence->faults.serve(context, offset, mem::Access::read, true);
      }
      if (outcome == dsm::Faults::Outcome::not_allocated) break;
      if (outcome == dsm::Faults::Outcome::later) await_block(this, offset);
      if (outcome == dsm::Faults::Outcome::unknown) ask_for_page(this, offset);
    }
  }
  contexts->here().waits_in_place = false;
}

/// On the stack of the thread that made the access, as the next.
void Runtime::Job::await_block(void* self, std::uint64_t offset) noexcept {
  struct Question {
    const dsm::Faults& faults;
    BlockId block;
  };
  const ult::RuntimeSection section;
  auto& state = *static_cast<Job*>(self);
  const Question question{state.coherence->faults, mem::block_of(offset)};
  ult::Pool::load_control_words();
  ult::Pool::wait_for_page(
      [](const void* p) {
        const auto& q = *static_cast<const Question*>(p);
        return !q.faults.busy(q.block);
      },
      &question, state.space->v(offset));
  state.contexts->here().waits_in_place = !state.coherence->faults.here(question.block);
}

void Runtime::Job::ask_for_page(void* self, std::uint64_t offset) noexcept {
  const ult::RuntimeSection section;
  auto& state = *static_cast<Job*>(self);
  auto& context = state.contexts->here();
  const BlockId block = mem::block_of(offset);
  ult::Pool::load_control_words();
  YieldWaiter yield(*state.transport, context.counters);
  comm::Blocking io(*state.transport, yield, &context.counters);
  state.coherence->faults.ask(io, state.directory->pages().page_of(block));
  context.waits_in_place = state.coherence->faults.must_ask(block);
}

/// An invalid access that is served for another thread is repeated and then served in place, on the stack of
/// the thread that made it.
bool Runtime::Job::on_fault(void* self, std::uint64_t offset, mem::Access wanted, mem::Served served) {
  auto& state = *static_cast<Job*>(self);
  const char* const meaning = state.serve_fault(offset, wanted, served);
  if (meaning != nullptr && served == mem::Served::in_place)
    report_wild_access(state.space->v(offset), wanted == mem::Access::write, meaning);
  return meaning == nullptr;
}

// ---- threads ----------------------------------------------------------------------------------------------

Result<void> Runtime::Job::start_threads(std::uint32_t first_worker) {
  const PassedCalls passed;
  running.store(true);
  workers_begin_ns = now_ns();
  KASANE_TRY(start_servers());
  for (std::uint32_t w = first_worker; w < workers; ++w) {
    workers_left.fetch_add(1);
    auto worker = topo::start_thread("a worker", [this, w] {
      const auto alternate = traps::AltStack::create();
      KASANE_CHECK(alternate.has_value(), "no memory for an alternate signal stack");
      contexts->enter(w);
      begin_worker(w);
      const traps::ProgramThread runs_user_code;
      if (thread_locals != nullptr) thread_locals->begin(w);
      pool->run_worker(w);
      if (thread_locals != nullptr) thread_locals->end(w);
      workers_left.fetch_sub(1);
    });
    KASANE_TRY(worker);
    worker_threads.push_back(std::move(*worker));
  }
  reporter->note_started();
  if (first_worker != 0) begin_worker(0);  // this thread, after it has created the others
  return {};
}

/// On the worker's OS thread.
void Runtime::Job::begin_worker(std::uint32_t w) {
  binding.bind_worker(w);
  if (!options.show_binding) return;
  const std::string memory =
      binding.node() ? fmt::format(", memory from node {}", *binding.node()) : std::string();
  fmt::print(stderr, "kasane: rank {}, worker {}: {}{}\n", raw(rank), w, where_this_thread_runs(), memory);
}

/// The threads that serve the rank itself.
Result<void> Runtime::Job::start_servers() {
  if (raw(rank) == 0 && options.statistics_every_ns != 0) {
    ticker.emplace(options.statistics_every_ns, begin_ns,
                   [this] { return job_counters->total(contexts->here().io); });
    KASANE_TRY(ticker->start());
  }
  auto service = topo::start_thread("the service thread", [this] { service_loop(); });
  KASANE_TRY(service);
  service_thread = std::move(*service);
  if (tiers == nullptr) return {};
  dsm::Pager::Threads threads{[this] { return pool != nullptr && pool->asleep(); }, nullptr,
                              [this] { begin_catching_on_one_rank(); }};
  if (pool != nullptr) threads.trim_stacks = [this](std::uint32_t most) { return pool->trim_stacks(most); };
  return tiers->start(job_counters->own()[counted_threads() - 1], binding, std::move(threads));
}

/// Serves requests of other ranks. Sleeps when there are none.
void Runtime::Job::service_loop() {
  const auto alternate = traps::AltStack::create();
  KASANE_CHECK(alternate.has_value(), "no memory for an alternate signal stack");
  contexts->enter(workers);
  set_thread_role("service");
  topo::block_signals_of_program();
  binding.bind_server();
  auto& context = contexts->here();
  while (!service_stop.load()) {
    const std::uint32_t seen = transport->activity(comm::Doorbell::messages);
    bool busy = transport->progress();
    busy |= coherence->fences.serve(context);
    busy |= give_service->serve(context.io);
    busy |= access->serve(context.io);
    if (shared_process) busy |= shared_process->serve();
    if (auto_relocator != nullptr) busy |= auto_relocator->serve(context.io, coherence->mover);
    exit_as_asked();
    if (!busy && reporter) busy = reporter->serve();
    if (polling && !busy && polling->look(now_ns())) coherence->fences.acquire_all(context);
    if (!busy) pass_on_stores_of_handlers(context);
    if (!busy && !service_stop.load()) transport->sleep(comm::Doorbell::messages, seen, 100'000'000);
  }
}

/// What the program's signal handlers stored, in words that threads poll perhaps, becomes visible everywhere.
void Runtime::Job::pass_on_stores_of_handlers(dsm::ThreadContext& context) {
  constexpr std::uint64_t kAtMostEveryNs = 50'000'000;
  if (handlers_stored_elsewhere.exchange(false)) coherence->fences.acquire_noticed(context);
  if (ranks == 1 || shut_down_by.load() != 0 || now_ns() - handlers_ns < kAtMostEveryNs ||
      !handlers_have_run())
    return;
  handlers_ns = now_ns();
  coherence->fences.release_all(context);
  for (std::uint32_t r = 0; r < ranks; ++r)
    if (Rank{r} != rank) context.io.send(Rank{r}, gas::kStopHandler, std::as_bytes(std::span("", 1)));
}

/// Another rank's thread has called exit().
void Runtime::Job::exit_as_asked() {
  const std::int64_t code = exit_asked.exchange(kNoExit);
  if (code == kNoExit) return;
  auto thread = topo::start_thread("the thread that ends the job", [code] {
    const auto alternate = traps::AltStack::create();
    std::exit(static_cast<int>(code));
  });
  if (!thread) give_up(thread.error());
  thread->detach();
}

/// The end of the job. With one byte: handlers of the sender's signals have stored, and it has released. On
/// rank 0 with the code of an exit(), which is called by a thread of its own: a handler must not block.
void Runtime::Job::on_stop(void* self, const comm::Message& message) noexcept {
  auto& state = *static_cast<Job*>(self);
  std::int32_t code = 0;
  if (message.payload.size() == sizeof code) {
    std::memcpy(&code, message.payload.data(), sizeof code);
    state.exit_asked.store(code);
    return state.transport->wake(state.rank, comm::Doorbell::messages);
  }
  if (message.payload.size() == 1) {
    state.handlers_stored_elsewhere.store(true);
    return state.transport->wake(state.rank, comm::Doorbell::messages);
  }
  state.stop_requested.store(true);
  state.stop_requested.notify_all();
}

void Runtime::Job::stop_service() {
  service_stop.store(true);
  transport->wake(rank, comm::Doorbell::messages);
  if (service_thread.joinable() && service_thread.get_id() != std::this_thread::get_id())
    service_thread.join();
}

/// False: threads still run, or wait in a system call, and the process ends meanwhile: detached ones, as with
/// std::thread::detach, or those beside which one called exit() (threads_remain()).
bool Runtime::Job::join_workers() {
  const bool beside_threads = ult::Pool::self() != kNoSlot || std::this_thread::get_id() != first_thread;
  // the first thread, which is worker 0 of rank 0, is not counted
  const std::uint32_t own =
      ult::Pool::current() != nullptr && std::this_thread::get_id() != first_thread ? 1 : 0;
  pool->stop();
  for (int i = 0; i < 500 && workers_left.load() != own; ++i) {
    transport->wake(rank, comm::Doorbell::work);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  others_ended = workers_left.load() == own;
  count(job_counters->own()[0].ns_workers, workers * (now_ns() - workers_begin_ns));
  // A call that another OS thread makes may name memory of the space.
  const BoundThreads* const bound = shared_process ? shared_process->threads() : nullptr;
  const bool all = !beside_threads && workers_left.load() == 0 && !pool->calls_outside() &&
                   (bound == nullptr || bound->running() == 0);
  for (auto& thread : worker_threads) all ? thread.join() : thread.detach();
  worker_threads.clear();
  return all;
}

void Runtime::serve() {
  if (const auto started = job().start_threads(0); !started) give_up(started.error());
  const traps::ProgramThread runs_signal_handlers;  // those of signals to the process
  job().stop_requested.wait(false);
  shut_down();
}

void Runtime::shut_down() noexcept {
  const ult::RuntimeSection section;  // exit() may be called on a thread, whose allocations are global
  auto& s = job();
  const auto self = static_cast<pid_t>(::syscall(SYS_gettid));
  pid_t by = 0;
  if (!s.shut_down_by.compare_exchange_strong(by, self)) {
    while (by != self) ::pause();  // the process ends under this thread, which called exit() too late
    return;
  }
  if (s.shared_process) s.shared_process->end();
  if (!s.running.load()) return;
  own_locks_of_program({}, {});  // a network is used on main's stack from here on
  s.ticker.reset();
  if (raw(s.rank) == 0) {
    for (std::uint32_t r = 1; r < s.ranks; ++r) s.contexts->here().io.send(Rank{r}, gas::kStopHandler, {});
  } else {
    s.stop_requested.wait(false);  // exit() with --main all: rank 0 ends the job
  }
  const bool joined = s.join_workers();
  end_signal_handlers();
  s.complete_puts();
  s.report_thread_locals();
  s.report_heap();
  if (s.races) s.races->tell_places();
  // A service thread that pulls a page sends requests to other service threads, so none ends before all have
  // pulled their last page.
  if (s.auto_relocator != nullptr) s.auto_relocator->close();
  // A pager that evicts a page sends requests to service threads, too. Once all workers have ended no rank
  // sends requests to pagers.
  if (s.tiers != nullptr) {
    if (s.ranks > 1) s.collectives->barrier();
    s.tiers->stop();
  }
  if (s.ranks > 1 && s.over_network()) return s.end_over_network(joined);
  if (s.ranks > 1) s.collectives->barrier();
  if (joined) runtime::connect_atomics(nullptr, {});
  s.stop_service();
  s.running.store(false);
  s.threads_remain.store(!joined);
  if (raw(s.rank) == 0) s.report();
  // all ranks wait for each other in it; after exit() no destructor of the session runs
  s.session->end_mpi();
}

/// Those that have no waiter; by polling, since exit() may be called anywhere.
void Runtime::Job::complete_puts() {
  if (!over_network()) return;
  auto& io = contexts->here().io;
  (void)gas::await(io, *access, [&](gas::Outstanding& o) {
    access->flush(io, o);
    return Result<void>();
  });
  coherence->mover.await_entry_updates(io);
}

/// As shut_down(), of ranks that all end at once.
void Runtime::detach() noexcept {
  auto& s = job();
  s.ticker.reset();
  s.complete_puts();
  s.report_heap();
  s.collectives->barrier();  // no rank sends requests to pagers
  if (s.tiers != nullptr) s.tiers->stop();
  expect_peers_to_leave();
  if (raw(s.rank) == 0) s.report();
  s.collectives->barrier();  // no rank sends requests
  s.stop_service();
  runtime::connect_atomics(nullptr, {});
  s.network_closed.store(true);
  s.direct->close();
}

/// Over a network a rank's own service thread serves accesses to its memory, so it runs until no rank sends
/// requests any more.
///
///   own workers have ended ─ allgather ─▶ no worker sends requests ─ rank 0 reads the counters
///     ─ barrier ─▶ no rank sends requests ─▶ the service thread ends, the network is closed
void Runtime::Job::end_over_network(bool all_joined) {
  const std::byte mine{all_joined};
  std::vector<std::byte> joined(ranks);
  collectives->allgather({&mine, 1}, joined);
  expect_peers_to_leave();
  if (raw(rank) == 0) report();
  collectives->barrier();
  stop_service();
  running.store(false);
  // Detached threads that still run on a rank would use what is destroyed.
  if (std::find(joined.begin(), joined.end(), std::byte{0}) != joined.end()) {
    threads_remain.store(true);
    progress_pending_sends();
    session->end_mpi();
    return;
  }
  runtime::connect_atomics(nullptr, {});
  network_closed.store(true);
  engine->await_handlers();  // a handler that began before still uses the network
  coherence->faults.await_misses(contexts->here().io);
  direct->close();
  collectives.reset();
  comm_engine.reset();
  session.reset();
}

/// Makes progress on a network that stays open: a peer may still wait in the barrier for a message that has
/// not been sent yet.
void Runtime::Job::progress_pending_sends() {
  for (int i = 0; i < 50; ++i) {
    transport->progress();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void Runtime::Job::report_thread_locals() {
  const std::string text = thread_locals != nullptr ? thread_locals->text() : std::string();
  if (!text.empty()) fmt::print(stderr, "kasane: rank {}: {}\n", raw(rank), text);
  if (options.check_threads) fmt::print(stderr, "kasane: rank {}: {}", raw(rank), ThreadsCheck::text());
}

/// Prepares and prints reports of the heap: returns the workers' cached memory to its rank, and releases
/// records of allocations to their owners; then each rank reports what was not freed in its share.
void Runtime::Job::report_heap() {
  if (!options.check_heap && !options.statistics) return;
  auto& context = contexts->here();
  if (others_ended) {  // else detached threads still use the caches
    for (gas::Heap* heap : all_heaps()) {
      for (std::uint32_t w = 0; w < workers; ++w) heap->flush(context.io, w);
      heap->flush(context.io, gas::Heap::kShared);
    }
  }
  if (options.check_heap) coherence->fences.release_all(context);
  count_misplaced_pages();
  collectives->barrier();
  if (options.check_heap)
    std::fputs(leak_report(all_heaps(), context.io, *access, *space, rank).c_str(), stderr);
  collectives->barrier();
}

/// Of what was handed out of this rank's shares.
void Runtime::Job::count_misplaced_pages() {
  if (numa->nodes().count() < 2) return;
  std::vector<NumaMemory::Range> ranges;
  auto& io = contexts->here().io;
  const auto add = [&](gas::Heap& heap, std::uint64_t offset, std::uint64_t bytes) {
    ranges.push_back({offset + raw(rank) * (bytes / ranks), heap.statistics(io, rank).touched_bytes});
  };
  for (std::size_t i = 0; i < heaps.size(); ++i)
    add(*heaps[i], segments.heaps[i].offset, segments.heaps[i].bytes);
  for (std::size_t i = 0; i < pools.size(); ++i)
    add(*pools[i], segments.pools.offset + i * segments.pools.bytes, segments.pools.bytes);
  const std::uint64_t misplaced = numa->misplaced(ranges);
  if (Counters* counters = io.counters(); counters != nullptr && misplaced != 0)
    count(counters->pages_misplaced, misplaced);
}

/// Reports on the whole job. Called on rank 0 after all workers have ended.
void Runtime::Job::report() {
  if (trace) {
    const auto& here = session->job().host_ranks();
    const auto same_clock = [&](Rank r) {
      return here.empty() || std::find(here.begin(), here.end(), r) != here.end();
    };
    const auto written =
        trace->write(options.trace, contexts->here().io, {ranks, same_clock, space->addresses()});
    trace_lost = !written;
    std::fputs(written ? written->c_str() : ("kasane: " + written.error().message + "\n").c_str(), stderr);
  }
  if (options.check_races) count_races();
  if (options.statistics) print_statistics();
}

void Runtime::Job::count_races() {
  for (std::uint32_t r = 0; r < ranks; ++r) races_found += counters_of(Rank{r})[row_data_races];
  fmt::print(
      stderr,
      "kasane: {} data race{} found in this run, which does not prove that there are {}. Not seen: loads; "
      "threads of one rank; stores that leave a byte as it was; and stores of two ranks of which the "
      "first came to the owner before the second rank read the page. Run it again, on other numbers of "
      "ranks too (docs/guide/programming.md, Finding data races)\n",
      races_found, races_found == 1 ? "" : "s", races_found == 0 ? "none" : "no others");
}

/// The transport between ranks, and how this rank notices accesses to absent memory.
std::string Runtime::Job::transport_and_engine() const {
  const comm::Facts facts = transport->facts();
  const std::string between =
      facts.detail.empty() ? std::string(facts.name) : fmt::format("{} ({})", facts.name, facts.detail);
  return fmt::format("between ranks: {}; absent memory: {}, served {}", between, engine->name(),
                     engine->name() == mem::kUffdThread ? "by a thread" : "in place");
}

/// --stats, on standard error.
void Runtime::Job::print_statistics() {
  std::vector<CounterSums> of(ranks);
  for (std::uint32_t r = 0; r < ranks; ++r) of[r] = counters_of(Rank{r});
  const double seconds = static_cast<double>(now_ns() - begin_ns) * 1e-9;
  const std::string text = fmt::format("\nkasane: {} ranks x {} workers, {:.3f} s; {}\n", ranks, workers,
                                       seconds, transport_and_engine()) +
                           counter_table(of, seconds) + heap_table(all_heaps(), contexts->here().io, ranks) +
                           time_of_workers();
  std::fputs(text.c_str(), stderr);
}

std::string Runtime::Job::time_of_workers() {
  if (!places) return {};
  auto& io = contexts->here().io;
  std::vector<WorkersTime> of;
  for (std::uint32_t r = 0; r < ranks; ++r)
    of.push_back(workers_time(job_counters->of_workers(io, Rank{r}, workers)));
  PlaceTables::All all = places->read(io, ranks);
  name_places(all.places);
  return time_table(of, workers, all.places, all.lost_ns);
}

// ---- main -------------------------------------------------------------------------------------------------

Result<void> Runtime::Job::give_main_a_stack() {
  auto& context = contexts->here();
  for (const PageId page : directory->pages().in(segments.main_offset, segments.main_bytes))
    KASANE_TRY(coherence->mover.assign(context.io, page, rank));
  coherence->moves.arm_owned(context.io, segments.main_offset, segments.main_bytes);
  main_stack_low = space->v(segments.main_offset);
  return {};
}

namespace {

struct MainCall {
  int (*main)(int, char**, char**);
  int argc;
  char **argv, **envp;
  ult::SanitizerStackSwitch trip;
};
MainCall* g_main_call = nullptr;  // makecontext passes no pointers

void call_main() {
  MainCall& call = *g_main_call;
  call.trip.arrived();
  leave_runtime(Calls::caught);
  call.main(call.argc, call.argv, call.envp);
}

}  // namespace

void Runtime::run_main(int (*main)(int, char**, char**), int argc, char** argv, char** envp) {
  auto& s = job();
  set_calls(Calls::passed);  // until main
  if (raw(s.rank) != 0) {    // KASANE_MAIN=all: an ordinary main beside this rank's workers
    if (const auto started = s.start_threads(0); !started) give_up(started.error());
    const traps::ProgramThread runs_user_code;
    leave_runtime(Calls::caught);
    main(argc, argv, envp);
    std::abort();  // main ends by exit()
  }
  s.contexts->enter(0);
  if (const auto started = s.start_threads(1); !started) give_up(started.error());
  const auto stack = s.give_main_a_stack();
  KASANE_CHECK(stack.has_value(), "no stack for main");

  const traps::ProgramThread runs_user_code;
  if (!s.options.main_in_every_rank) ult::Pool::enter_program();
  MainCall call{main, argc, argv, envp, {}};
  g_main_call = &call;
  ucontext_t there;
  ::getcontext(&there);
  there.uc_stack.ss_sp = s.main_stack_low;
  there.uc_stack.ss_size = s.segments.main_bytes;
  there.uc_link = nullptr;
  ::makecontext(&there, call_main, 0);
  call.trip.leaving(s.main_stack_low, s.segments.main_bytes);
  ::setcontext(&there);
  std::abort();
}

void Runtime::Job::run_root(void (*entry)(void*), void* arg) {
  const PassedCalls passed;  // those of the worker's loop
  const std::scoped_lock turn(one_root);
  ++roots;
  ThreadLocalsCheck* const check = thread_locals.get();
  if (check == nullptr) return pool->run_root(0, entry, arg);
  struct Around {
    ThreadLocalsCheck& check;
    explicit Around(ThreadLocalsCheck& c) : check(c) { check.begin(0); }
    ~Around() { check.end(0); }
  } const around(*check);
  pool->run_root(0, entry, arg);
}

}  // namespace kasane::runtime
