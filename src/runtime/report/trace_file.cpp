// SPDX-License-Identifier: Apache-2.0
#include "runtime/report/trace_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/output_file.h"
#include "gas/regions.h"
#include "runtime/report/trace_lanes.h"

namespace kasane::runtime {
namespace {

struct KindText {
  const char *name, *track, *number;
};
constexpr KindText kKinds[] = {{"", "", ""},
#define X(kind, name, track, number) {name, track, number},
                               KASANE_TRACE_KINDS(X)
#undef X
};
constexpr std::size_t kKindCount = std::size(kKinds);
constexpr std::size_t kMostLanes = 1 << 16;  ///< for the order of tracks

struct Slice {
  std::uint64_t begin_ns, end_ns, number;
  TraceKind kind;
};

/// Of the kinds of one track the first.
std::size_t track_of(TraceKind kind) noexcept {
  std::size_t first = 1;
  while (std::strcmp(kKinds[first].track, kKinds[static_cast<std::size_t>(kind)].track) != 0) ++first;
  return first;
}

using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;
File open_to_write(const std::string& path) { return {open_output(path), &std::fclose}; }

std::string number_text(const KindText& kind, std::uint64_t number, const mem::AddressMap& space) {
  if (*kind.number == '\0') return "";
  if (std::strcmp(kind.number, "address") == 0)
    return fmt::format(R"(,"args":{{"address":"{}"}})", fmt::ptr(space.address(number)));
  return fmt::format(R"(,"args":{{"{}":{}}})", kind.number, number);
}

}  // namespace

Result<> TraceRegion::can_write(const std::string& path) {
  if (open_to_write(path) != nullptr) return {};
  return fail_errno(Errc::io, "--trace: creating " + path);
}

TraceRegion::TraceRegion(std::byte* memory, Counters* counters, std::uint32_t threads,
                         std::uint64_t events) noexcept
    : memory_(memory), threads_(threads), events_(events) {
  for (std::uint32_t t = 0; t < threads; ++t) {
    auto* log = reinterpret_cast<TraceLog*>(memory + kHeaderBytes + t * TraceLog::bytes(events));
    log->open(events);
    counters[t].log = log;
  }
}

void TraceRegion::note_start() noexcept {
  const std::uint64_t now = now_ns();
  std::memcpy(memory_, &now, sizeof now);
}

/// The file, an event at a time. Processes are ranks; threads of the format are tracks. Their numbers are
/// those of no process, and each is there once: viewers take thread n of process n for its main thread.
class TraceRegion::Writer {
 public:
  Writer(File file, std::uint32_t ranks, const mem::AddressMap& space)
      : file_(std::move(file)), space_(space), next_track_(ranks) {
    fmt::format_to(std::back_inserter(text_), "{{\"traceEvents\":[");
  }

  void begin_rank(std::uint32_t rank) {
    rank_ = rank;
    metadata("process_name", rank, fmt::format(R"("name":"rank {}")", rank));
    metadata("process_sort_index", rank, fmt::format(R"("sort_index":{})", rank));
  }

  void thread(std::uint32_t number, const std::string& name, std::vector<Slice>& slices) {
    std::sort(slices.begin(), slices.end(), [](const Slice& a, const Slice& b) {
      return a.begin_ns != b.begin_ns ? a.begin_ns < b.begin_ns : a.end_ns > b.end_ns;
    });
    std::array<TraceLanes, kKindCount> lanes;
    std::array<std::vector<std::uint32_t>, kKindCount> numbers;  // of the tracks
    for (const Slice& s : slices) {
      const std::size_t track = track_of(s.kind), lane = lanes[track].place(s.begin_ns, s.end_ns);
      if (lane == numbers[track].size()) {
        numbers[track].push_back(next_track_++);
        const std::string more = lane == 0 ? "" : fmt::format(" {}", lane + 1);
        metadata("thread_name", numbers[track][lane],
                 fmt::format(R"("name":"{}: {}{}")", name, kKinds[track].track, more));
        metadata("thread_sort_index", numbers[track][lane],
                 fmt::format(R"("sort_index":{})", (number * kKindCount + track) * kMostLanes + lane));
      }
      slice(s, numbers[track][lane]);
    }
  }

  [[nodiscard]] bool end() {
    fmt::format_to(std::back_inserter(text_), "\n]}}\n");
    flush();
    return good_ && std::fflush(file_.get()) == 0;
  }

 private:
  void metadata(const char* what, std::uint32_t track, const std::string& value) {
    fmt::format_to(std::back_inserter(text_), R"({}{{"ph":"M","name":"{}","pid":{},"tid":{},"args":{{{}}}}})",
                   comma_, what, rank_, track, value);
    comma_ = ",\n";
  }
  void slice(const Slice& s, std::uint32_t track) {
    const KindText& kind = kKinds[static_cast<std::size_t>(s.kind)];
    const std::uint64_t took = s.end_ns - s.begin_ns;
    fmt::format_to(
        std::back_inserter(text_),
        R"({}{{"ph":"X","name":"{}","cat":"{}","pid":{},"tid":{},"ts":{}.{:03},"dur":{}.{:03}{}}})", comma_,
        kind.name, kind.track, rank_, track, s.begin_ns / 1000, s.begin_ns % 1000, took / 1000, took % 1000,
        number_text(kind, s.number, space_));
    if (text_.size() > (1 << 20)) flush();
  }
  void flush() {
    good_ &= std::fwrite(text_.data(), 1, text_.size(), file_.get()) == text_.size();
    text_.clear();
  }

  const File file_;
  const mem::AddressMap& space_;
  fmt::memory_buffer text_;
  const char* comma_ = "\n";
  std::uint32_t rank_ = 0, next_track_;
  bool good_ = true;
};

Result<std::string> TraceRegion::write(const std::string& path, comm::Blocking& io, const Job& job) const {
  File file = open_to_write(path);
  if (file == nullptr) return fail_errno(Errc::io, "--trace: creating " + path);
  Writer writer(std::move(file), job.ranks, job.space);
  std::uint64_t start = 0, lost = 0;
  std::memcpy(&start, memory_, sizeof start);
  const Rank me = io.transport().rank();
  std::vector<Slice> slices;
  for (std::uint32_t r = 0; r < job.ranks; ++r) {
    std::uint64_t theirs = 0;
    io.read({Rank{r}, gas::kTrace, 0}, &theirs, sizeof theirs);
    // The clock of that rank minus ours; all ranks left the barrier at about the same time.
    const std::uint64_t ahead = job.same_clock(Rank{r}) ? 0 : theirs - start;
    writer.begin_rank(r);
    for (std::uint32_t t = 0; t < threads_; ++t) {
      const std::size_t at = kHeaderBytes + t * TraceLog::bytes(events_);
      const auto* log = reinterpret_cast<const TraceLog*>(memory_ + at);
      std::vector<std::max_align_t> copy;
      if (Rank{r} != me) {  // its head, then the events that it has
        alignas(TraceLog) std::byte head[sizeof(TraceLog)];
        io.read({Rank{r}, gas::kTrace, at}, head, sizeof head);
        const std::size_t bytes = TraceLog::bytes(reinterpret_cast<const TraceLog*>(head)->kept());
        copy.resize(bytes / sizeof(std::max_align_t) + 8);
        auto* aligned =
            reinterpret_cast<std::byte*>((reinterpret_cast<std::uintptr_t>(copy.data()) + 63) / 64 * 64);
        for (std::size_t done = 0; done < bytes; done += 1 << 20)
          io.read({Rank{r}, gas::kTrace, at + done}, aligned + done,
                  std::min<std::size_t>(1 << 20, bytes - done));
        std::memcpy(aligned, head, sizeof head);  // the log may have grown since; only this much was read
        log = reinterpret_cast<const TraceLog*>(aligned);
      }
      lost += log->lost();
      slices.clear();
      log->for_each([&](TraceKind kind, std::uint64_t begin, std::uint64_t end, std::uint64_t number) {
        // Nanoseconds since the start; earlier events (main's stack) count as the start.
        const auto since = [&](std::uint64_t ns) { return ns - ahead > start ? ns - ahead - start : 0; };
        slices.push_back({since(begin), since(end), number, kind});
      });
      // as in ThreadContexts; "faults" with --faults uffd-thread
      constexpr std::array kLast{"service", "other threads", "faults", "pager"};
      writer.thread(
          t, t + kLast.size() < threads_ ? fmt::format("worker {}", t) : kLast[t + kLast.size() - threads_],
          slices);
    }
  }
  if (!writer.end()) return fail_errno(Errc::io, "--trace: writing " + path);
  if (lost == 0) return std::string();
  return fmt::format("kasane: --trace: {} events found no room; a thread keeps {} (--debug trace-events)\n",
                     lost, events_);
}

}  // namespace kasane::runtime
