// SPDX-License-Identifier: Apache-2.0
#include "acp/job.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <kasane/containers/access.hpp>
#include <memory>
#include <string>
#include <thread>

namespace kasane::acp {
namespace {

using detail::containers::Backoff;
using detail::containers::Far;
using detail::containers::Unscoped;

std::unique_ptr<Job> g_job;
/// Set by a thread that rank 0 sends here, since no rank knows an address of another one at first.
std::atomic<Meeting*> g_meeting{nullptr};

[[nodiscard]] std::size_t meeting_bytes() noexcept {
  return sizeof(Meeting) + (kasane::ranks() - 1) * sizeof(Meeting::Place);
}

void tell(std::uint32_t rank, Meeting* meeting) {
  while (kasane::rank() != rank) kasane::this_thread::move_to(rank);
  g_meeting.store(meeting, std::memory_order_release);  // its contents are read by direct access
}

/// Rank 0 makes the meeting, and tells the others; they wait.
Meeting* meet() {
  if (kasane::rank() == 0) {
    auto* const m = static_cast<Meeting*>(allocate_zeroed(meeting_bytes(), 64, placement::on(0).fixed()));
    g_meeting = m;
    if (kasane::ranks() > 1)
      kasane::run([m] {
        std::vector<kasane::thread> threads;
        for (std::uint32_t r = 1; r < kasane::ranks(); ++r)
          threads.emplace_back(kasane::at{r}, [r, m] { tell(r, m); });
        for (auto& t : threads) t.join();
      });
  }
  for (Backoff wait; g_meeting.load(std::memory_order_acquire) == nullptr;) wait.pause();
  return g_meeting.load();
}

/// A word at rank 0 counts arrivals, and never becomes less: so a rank that is late to look finds what it
/// waits for. The thread may be on another rank afterwards, where the job is another object.
void sync(Job& job) {
  Word* const arrivals = &job.meeting->arrivals;
  const Word all = ++job.syncs * kasane::ranks();
  if (Far::fetch_add(arrivals, 1) + 1 == all) return;
  for (Backoff wait; Far::load(arrivals) < all;) wait.pause();
}

void require_main_everywhere() {
  const char* const where = std::getenv("KASANE_MAIN");
  if (kasane::ranks() > 1 && (where == nullptr || std::strcmp(where, "all") != 0))
    throw error(EINVAL, "main runs on rank 0 alone: start the program with kasane run --main all");
}

void start() {
  require_main_everywhere();
  g_job = std::make_unique<Job>(meet());
  Job& job = *g_job;
  const std::uint32_t rank = kasane::rank(), ranks = kasane::ranks();
  const Meeting::Place mine{
      address(allocate_zeroed(KASANE_ACP_STARTER_BYTES, 64, placement::on(rank).fixed())), job.depot};
  Far::write(&job.meeting->place[rank], &mine, sizeof mine);
  sync(job);
  std::vector<Meeting::Place> all(ranks);
  Far::read(all.data(), job.meeting->place, ranks * sizeof all[0]);
  std::vector<Depot> depots;
  for (const Meeting::Place& p : all) {
    job.starters.push_back(p.starter);
    depots.push_back(p.depot);
  }
  job.memory.use(std::move(depots));
  sync(job);  // from now on threads of any rank may call here
}

void stop() {
  Job& job = Job::here();
  sync(job);
  job.memory.end();
  deallocate(pointer(job.starters[kasane::rank()]));
  g_meeting = nullptr;  // rank 0 comes with the next one when it has freed this one
  Word* const left = &job.meeting->left;
  Far::fetch_add(left, 1);
  if (kasane::rank() == 0) {
    for (Backoff wait; Far::load(left) < kasane::ranks();) wait.pause();
    deallocate(job.meeting);
  }
  g_job.reset();
}

}  // namespace

Job& Job::here() {
  if (g_job == nullptr) end_job("kasane/acp.h", "a call outside of acp_init and acp_finalize");
  return *g_job;
}

std::uint32_t rank_named(int rank) {
  if (rank < 0 || static_cast<std::uint32_t>(rank) >= kasane::ranks())
    detail::containers::fail(EINVAL, "there is no rank " + std::to_string(rank));
  return static_cast<std::uint32_t>(rank);
}

void end_job(const char* call, const char* text) noexcept {
  std::fprintf(stderr, "kasane: %s: %s (rank %u)\n", call, text, kasane::rank());
  std::fflush(nullptr);
  std::abort();
}
void end_job(const char* call, const no_container& e) noexcept {
  const std::string text = std::string("the handle names no ") + e.kind;
  end_job(call, text.c_str());
}

}  // namespace kasane::acp

using namespace kasane::acp;

extern "C" {

int acp_init(int*, char***) {
  if (g_job != nullptr) end_job(__func__, "called twice");
  try {
    start();
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "kasane: acp_init: %s (rank %u)\n", e.what(), kasane::rank());
    const auto* const known = dynamic_cast<const kasane::error*>(&e);
    g_job.reset();
    errno = known != nullptr ? known->code() : ENOMEM;
    return -1;
  }
}

int acp_finalize(void) {
  must<Unscoped>(__func__, [] { stop(); });
  return 0;
}

void acp_abort(const char* message) { end_job("acp_abort", message != nullptr ? message : "no message"); }

int acp_sync(void) {
  must<Unscoped>(__func__, [] { sync(Job::here()); });
  return 0;
}

int acp_rank(void) { return static_cast<int>(kasane_rank()); }
int acp_procs(void) { return static_cast<int>(kasane_ranks()); }

acp_ga_t acp_query_starter_ga(int rank) {
  return attempt(__func__, ACP_GA_NULL, [&] { return Job::here().starters[rank_named(rank)]; });
}

int acp_query_rank(acp_ga_t ga) {
  std::uint32_t rank = 0;
  if (ga == ACP_GA_NULL || kasane_where(pointer(ga), &rank) != 0) {
    errno = EINVAL;
    return -1;
  }
  return static_cast<int>(rank);
}

void* acp_query_address(acp_ga_t ga) { return acp_query_rank(ga) == acp_rank() ? pointer(ga) : nullptr; }

}  // extern "C"
