// SPDX-License-Identifier: Apache-2.0
#include "gas/heap_runs.h"

#include <algorithm>
#include <array>
#include <string>

#include "base/assert.h"
#include "gas/heap_slabs.h"

namespace kasane::gas {
namespace {

constexpr std::size_t kWords = offsetof(HeapHeader, groups) / 8;  // of the header, those that concern runs
constexpr std::size_t kUsed = offsetof(HeapHeader, used) / 8, kMark = offsetof(HeapHeader, mark) / 8,
                      kRuns = offsetof(HeapHeader, runs) / 8;
constexpr std::uint64_t kFirstMark = 1024;

/// Until this much is used, unused pages are taken before runs are joined again: a page for each run that is
/// free after the last joining, so that joining costs O(1) a page, averaged, and 1/64 at least.
constexpr std::uint64_t next_mark(std::uint64_t used, std::uint64_t free_runs) noexcept {
  return used + std::max({free_runs, used / 64, std::uint64_t{16}});
}

/// While this object lives, its thread may hold free runs: a run that is being split, or all of them.
/// Meanwhile no other thread may conclude that there are none.
class RunHolder {
 public:
  explicit RunHolder(HeapAccess& at) : at_(at) {
    at_.fetch_add(offsetof(HeapHeader, run_holders), (std::uint64_t{1} << 32) + 1);
  }
  ~RunHolder() { at_.fetch_add(offsetof(HeapHeader, run_holders), ~std::uint64_t{0}); }
  RunHolder(const RunHolder&) = delete;
  RunHolder& operator=(const RunHolder&) = delete;

  static std::uint64_t look(HeapAccess& at) { return at.load(offsetof(HeapHeader, run_holders)); }
  /// Was there an instant without any between two looks, and did no thread hold runs in between?
  static bool none(std::uint64_t before, std::uint64_t after) noexcept {
    return before == after && (before & 0xFFFFFFFFu) == 0;
  }

 private:
  HeapAccess& at_;
};

std::string bytes_of(std::uint64_t pages) { return std::to_string(pages * kHeapPageBytes); }

}  // namespace

Result<HeapRun> HeapRuns::take(HeapAccess& at, std::uint64_t pages) {
  HeapRun run;
  HeapRoom room;
  for (bool joined = false;;) {
    const std::uint64_t run_holders = joined ? RunHolder::look(at) : 0;
    std::array<std::uint64_t, kWords> header;
    // a hint, maybe torn: heads and `used` are only ever changed by compare-swaps
    at.read(0, header.data(), kWords);
    if (take_free(at, pages, header.data(), run)) return run;
    const std::uint64_t used = header[kUsed];
    if ((joined || used + pages <= std::max(header[kMark], kFirstMark)) && take_unused(at, pages, used, run))
      return run;
    if (joined) {
      // free neighbours were joined, and nothing fits
      if (RunHolder::none(run_holders, RunHolder::look(at))) break;
      at.io().waiter().pause();  // another thread splits the run that this one waits for, or joins
      continue;
    }
    switch (join(at, pages, room, run)) {
      case Joined::found: return run;
      case Joined::done: joined = true; break;
      case Joined::busy:  // another thread joins runs, and holds them all; it needs no help for that
        if (take_unused(at, pages, used, run)) return run;
        at.io().waiter().pause();
        break;
    }
  }
  return fail(Errc::out_of_memory, "rank " + std::to_string(raw(at.rank())) + " has no " + bytes_of(pages) +
                                       " bytes in a row left of its " + bytes_of(at.layout().pages) + ": " +
                                       bytes_of(room.free_pages) + " are free, the largest piece has " +
                                       bytes_of(room.largest_run) + " (raise --space)");
}

void HeapRuns::give(HeapAccess& at, std::uint64_t first, std::uint64_t pages) {
  at.store(at.layout().page(first), PageHeader{PageHeader::Kind::free, 0, 0, pages}.word());
  push(at, first, pages);
}

void HeapRuns::push(HeapAccess& at, std::uint64_t first, std::uint64_t pages) {
  const std::uint64_t head = HeapLayout::run_head(run_class(pages));
  Giving giving = Giving::chain(first, first, StackHead::of(at.load(head)));
  at.drive(giving, head, false);
}

bool HeapRuns::extend(HeapAccess& at, std::uint64_t first, std::uint64_t pages, std::uint64_t wanted) {
  const std::uint64_t end = first + pages;
  return wanted <= at.layout().pages - first &&
         at.compare_swap(offsetof(HeapHeader, used), end, first + wanted) == end;
}

/// From the stacks: first from those whose runs are all large enough, then the top of the stack where some
/// may be.
bool HeapRuns::take_free(HeapAccess& at, std::uint64_t pages, const std::uint64_t* header, HeapRun& run) {
  if (pages > at.layout().pages) return false;
  const auto head = [&](unsigned c) { return StackHead::of(header[kRuns + c]); };
  unsigned c = run_class_for(pages);
  while (c < kRunClasses && head(c).empty()) ++c;
  if (c == kRunClasses) {
    c = run_class(pages);
    if (c == run_class_for(pages) || head(c).empty() || head(c).item() >= at.layout().pages) return false;
    if (PageHeader::of(at.load(at.layout().page(head(c).item()))).pages < pages) return false;
  }
  const RunHolder holder(at);
  if (!pop(at, c, head(c), run)) return false;
  if (run.pages < pages) {  // the top was another one after all
    give(at, run.first, run.pages);
    return false;
  }
  if (run.pages > pages) give(at, run.first + pages, run.pages - pages);
  run.pages = pages;
  return true;
}

bool HeapRuns::pop(HeapAccess& at, unsigned size_class, StackHead known, HeapRun& run) {
  if (!known.empty() && known.item() >= at.layout().pages) known = {};  // torn: look again
  Taking taking = Taking::begin(known, false);
  at.drive(taking, HeapLayout::run_head(size_class), false);
  if (taking.state == Taking::State::empty) return false;
  // it belongs to this thread now, so no other changes its record
  run = {taking.item, PageHeader::of(at.load(at.layout().page(taking.item))).pages, false};
  return true;
}

bool HeapRuns::take_unused(HeapAccess& at, std::uint64_t pages, std::uint64_t used, HeapRun& run) {
  while (at.layout().pages - used >= pages) {
    const std::uint64_t old = at.compare_swap(offsetof(HeapHeader, used), used, used + pages);
    if (old == used) {
      run = {used, pages, true};
      return true;
    }
    used = old;
  }
  return false;
}

/// Joins neighbours among all free runs and slabs that are wholly free. busy: another thread does so at the
/// moment. found: the last run and unused pages behind it make a run of `pages`.
HeapRuns::Joined HeapRuns::join(HeapAccess& at, std::uint64_t pages, HeapRoom& room, HeapRun& run) {
  if (at.compare_swap(offsetof(HeapHeader, joining), 0, 1) != 0) return Joined::busy;
  const RunHolder holder(at);
  using Piece = FreeSlab;
  auto pieces = collect_slabs(at);
  std::array<std::uint64_t, kRunClasses> heads;
  at.read(HeapLayout::run_head(0), heads.data(), heads.size());  // as in collect_slabs
  for (unsigned c = 0; c < kRunClasses; ++c) {
    TakingAll all = TakingAll::begin(StackHead::of(heads[c]));
    at.drive(all, HeapLayout::run_head(c), false);
    for (std::uint64_t top = all.top; top != 0;) {
      std::uint64_t record[2];
      at.read(at.layout().page(top - 1), record, 2);  // it belongs to this thread now
      pieces.push_back({top - 1, PageHeader::of(record[0]).pages});
      top = record[1];
    }
  }
  std::sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) { return a.first < b.first; });
  room = {};
  std::uint64_t free_runs = 0;
  Joined result = Joined::done;
  const std::uint64_t used = at.load(offsetof(HeapHeader, used));
  const std::uint64_t unused = at.layout().pages - used;
  for (std::size_t i = 0; i < pieces.size();) {
    Piece whole = pieces[i++];
    while (i < pieces.size() && pieces[i].first == whole.first + whole.pages) {
      at.store(at.layout().page(pieces[i].first), PageHeader{}.word());  // inside of a run now
      whole.pages += pieces[i++].pages;
    }
    if (whole.first + whole.pages == used && whole.pages < pages &&
        extend(at, whole.first, whole.pages, pages)) {
      run = {whole.first, pages, false};
      result = Joined::found;
      continue;
    }
    ++free_runs;
    room.free_pages += whole.pages;
    room.largest_run = std::max(room.largest_run, whole.pages);
    give(at, whole.first, whole.pages);
  }
  at.store(offsetof(HeapHeader, mark), next_mark(used, free_runs));
  room.free_pages += unused;
  room.largest_run = std::max(room.largest_run, unused);
  at.store(offsetof(HeapHeader, joining), 0);
  return result;
}

}  // namespace kasane::gas
