// SPDX-License-Identifier: Apache-2.0
#include "runtime/rank/memory_tiers.h"

#include <algorithm>
#include <new>
#include <vector>

#include "base/assert.h"
#include "base/process.h"
#include "mem/large_frames.h"
#include "runtime/rank/crash_text.h"
#include "runtime/rank/process_state.h"
#include "runtime/rank/warn.h"
#include "topo/threads.h"
#include "topo/topo.h"
#include "traps/alt_stack.h"

namespace kasane::runtime {
namespace {

/// The least budget of a rank: a page of the largest size each for a thread and for the pager; for each
/// worker two pages, and the stacks that it needs to run, steal and wait.
std::uint64_t least_bytes(std::uint32_t workers) {
  constexpr std::uint64_t kStacks = 4 * mem::StackFrames::kPresumed * mem::kBlockBytes;
  return 2 * mem::kLargestPageBytes + workers * (2 * mem::kPageBytes + kStacks);
}

void budget_beyond_machine(std::uint64_t asked) {
  CrashText text;
  text.add("kasane: --dram of ")
      .decimal(asked >> 20)
      .add(" MiB, and this host has ")
      .decimal(mem::machine_memory() >> 20);
  warn(text.add(" MiB of memory: the kernel may end the job before anything is spilled\n"));
}

/// The pager calls it once where a limit that no option asked for cannot be kept.
void limit_lifted(const char* why) {
  CrashText text;
  text.add("kasane: rank ")
      .decimal(raw(process().rank))
      .add(": global memory takes as much DRAM as it may unless told otherwise, and ")
      .add(why)
      .add("; it goes on without a limit. ");
  warn(
      text.add("Give a budget (--dram, KASANE_DRAM) and a directory for the rest (--spill, KASANE_SPILL)\n"));
}

void pins_break() {
  CrashText text;
  text.add("kasane: rank ")
      .decimal(raw(process().rank))
      .add(
          ": what the program has pinned (kasane_pin) does not fit into the budget: pinned pages leave DRAM "
          "where nothing else can. ");
  warn(text.add("Raise --dram (KASANE_DRAM), or pin less\n"));
}

void tables_crowd(std::uint64_t tables, std::uint64_t stacks, std::uint64_t share) {
  CrashText text;
  text.add("kasane: rank ")
      .decimal(raw(process().rank))
      .add(": page tables and the runtime's entries for blocks take ")
      .decimal(tables >> 20)
      .add(" MiB, and stacks of threads ");
  text.decimal(stacks >> 20)
      .add(" MiB, of the ")
      .decimal(share >> 20)
      .add(
          " MiB of DRAM that are this rank's share: little is left for data. The former grow with how much "
          "of the space is used, the ");
  warn(text.add("latter with how many threads there are at once. Raise --dram (KASANE_DRAM)\n"));
}

void crawls(const mem::Turnover::Crawl& crawl, std::uint64_t share) {
  CrashText text;
  text.add("kasane: rank ")
      .decimal(raw(process().rank))
      .add(": the same pages leave DRAM and come back again and again: ")
      .decimal(crawl.pages)
      .add(" pages ")
      .decimal(crawl.came / crawl.pages)
      .add(" times each within ")
      .decimal(crawl.ns / 1'000'000'000);
  text.add(" s. The program goes on at that rate, ")
      .decimal(crawl.came * 1'000'000'000 / crawl.ns)
      .add(" pages a second. What it uses at once, with copies of other ranks' pages and twins of ");
  text.add("what it changes there, does not fit into this rank's share of ");
  warn(text.decimal(share >> 10).add(" KiB. Raise --dram (KASANE_DRAM)\n"));
}

}  // namespace

std::size_t MemoryTiers::budget_bytes(const std::vector<Rank>& host_ranks) noexcept {
  return mem::HostBudget::bytes(std::max<std::uint32_t>(1, static_cast<std::uint32_t>(host_ranks.size())));
}

Result<std::unique_ptr<MemoryTiers>> MemoryTiers::create(const Parts& parts, const Options& options) {
  const bool limited = options.dram_bytes != 0,
             directories_named = options.spill != "auto" && options.spill != "none";
  if (!limited && options.spill == "none") return nullptr;
  const Rank me = parts.transport.rank();
  std::vector<Rank> here = parts.host_ranks;
  if (here.empty()) here.push_back(me);
  const auto ranks = static_cast<std::uint32_t>(here.size());
  auto blocks = mem::budget_blocks(options.dram_bytes, ranks, least_bytes(parts.workers));
  // no option asks for a limit: as far as it can be kept
  if (!blocks && !limited && !directories_named)
    blocks = ranks * least_bytes(parts.workers) / mem::kBlockBytes;
  KASANE_TRY(blocks);
  if (here.front() == me && options.dram_bytes > mem::machine_memory())
    budget_beyond_machine(options.dram_bytes);

  // The budget of the first rank, where ranks map each other's memory; else each has its share.
  std::byte* shared = here.front() == me ? parts.budget : parts.transport.mapped(here.front(), gas::kBudget);
  const bool alone =
      shared == nullptr || ranks == 1 || parts.transport.mapped(here[1], gas::kBudget) == nullptr;
  if (alone) {
    new (parts.budget) mem::HostBudget(*blocks / ranks, 1);
  } else if (here.front() == me) {
    new (parts.budget) mem::HostBudget(*blocks, ranks, least_bytes(parts.workers) / mem::kBlockBytes);
  }
  parts.collectives.barrier();
  auto& host = *reinterpret_cast<mem::HostBudget*>(alone ? parts.budget : shared);
  const auto number = static_cast<std::uint32_t>(std::ranges::find(here, me) - here.begin());

  auto advice = mem::AdviceTable::create(parts.directory.pages().count());
  KASANE_TRY(advice);
  std::vector<Rank> others = here;
  std::erase(others, me);
  if (alone) others.clear();
  std::unique_ptr<MemoryTiers> made(
      new MemoryTiers(std::move(*advice), parts,
                      {limited, std::move(others), *blocks * mem::kBlockBytes, &give_up, &limit_lifted,
                       &pins_break, &tables_crowd, &crawls}));
  // A quarter of the memory is not in the default budget, and has room for stacks that become deeper
  // meanwhile.
  auto stacks = mem::StackFrames::create(parts.space, parts.stacks, limited ? 20'000'000 : 1'000'000'000);
  KASANE_TRY(stacks);
  auto residency = mem::Residency::create(
      parts.space, parts.directory.pages(), host, alone ? 0 : number,
      {parts.heaps, options.spare_bytes / mem::kBlockBytes, mem::large_frame_bytes(), std::move(*stacks)});
  KASANE_TRY(residency);
  made->residency_ = std::move(*residency);
  made->tiers_ = std::make_unique<gas::Tiers>(
      parts.transport, parts.directory, parts.space, *made->residency_, made->advice_,
      gas::Tiers::Config{spill_directories(options.spill), parts.space.bytes(), &give_up,
                         topo::usable_cores() / ranks});
  made->advisor_ = std::make_unique<gas::Advisor>(parts.transport, made->advice_, *made->residency_);
  if (directories_named)
    KASANE_TRY(made->tiers_->open());
  else if (limited)
    KASANE_TRY(made->tiers_->check());
  return made;
}

void MemoryTiers::connect(gas::AddressCache& addresses, dsm::Coherence& coherence) {
  addresses_ = &addresses;
  coherence_ = &coherence;
  pager_ = std::make_unique<dsm::Pager>(
      dsm::Pager::Parts{transport_, coherence, *tiers_, *advisor_, directory_}, pager_config_);
}

void MemoryTiers::tell(comm::Blocking& io, mem::PageRange pages, gas::Advisor::What what) {
  if (what == gas::Advisor::What::leave) coherence_->fences.clean(io);
  advisor_->tell(io, pages, what);
  if (what != gas::Advisor::What::hold) return;
  for (const PageId page : pages) {
    const gas::Location where = directory_.lookup(io, page);
    if (where.allocated && !gas::readable(where)) static_cast<void>(addresses_->find(io, page));
  }
}

bool MemoryTiers::holds_at_once(std::uint64_t bytes) noexcept {
  if (bytes <= most_at_once()) return true;
  if (pager_config_.limit_asked) return false;
  residency_->lift_limit();
  return true;
}

void MemoryTiers::use_stack(comm::Blocking& io, StackId stack, bool born_here) {
  if (born_here) coherence_->tiering.admit_for_now(io, residency_->room_of_a_stack());
  residency_->use_stack(stack);
}

Result<void> MemoryTiers::start(Counters& counters, const Binding& binding, dsm::Pager::Threads threads) {
  auto pager = topo::start_thread("the pager", [this, &counters, &binding, threads = std::move(threads)] {
    const auto alternate = traps::AltStack::create();
    KASANE_CHECK(alternate.has_value(), "no memory for an alternate signal stack");
    set_thread_role("pager");
    topo::block_signals_of_program();
    binding.bind_server();
    comm::PollWaiter waiter(transport_);
    comm::Blocking io(transport_, waiter, &counters);
    pager_->run(io, threads);
  });
  KASANE_TRY(pager);
  thread_ = std::move(*pager);
  auto reader = topo::start_thread("the reader", [this, &binding] {
    const auto alternate = traps::AltStack::create();
    KASANE_CHECK(alternate.has_value(), "no memory for an alternate signal stack");
    set_thread_role("reader");
    topo::block_signals_of_program();
    binding.bind_server();
    tiers_->run_reader();
  });
  KASANE_TRY(reader);
  reader_ = std::move(*reader);
  return {};
}

void MemoryTiers::stop() {
  pager_->stop();
  tiers_->stop_reading();
  for (std::thread* thread : {&thread_, &reader_}) {
    if (thread->joinable()) thread->join();
  }
  tiers_->drain_reader();
}

}  // namespace kasane::runtime
