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
#include <vector>

#include "base/clock.h"
#include "base/output_file.h"
#include "gas/regions.h"

namespace kasane::runtime {
namespace {

struct KindText {
  const char *name, *category, *number;
};
constexpr KindText kKinds[] = {{"", "", ""},
#define X(kind, name, category, number) {name, category, number},
                               KASANE_TRACE_KINDS(X)
#undef X
};

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

Result<std::string> TraceRegion::write(const std::string& path, comm::Blocking& io, const Job& job) const {
  const File file = open_to_write(path);
  if (file == nullptr) return fail_errno(Errc::io, "--trace: creating " + path);
  std::uint64_t start = 0, lost = 0;
  std::memcpy(&start, memory_, sizeof start);
  fmt::memory_buffer text;
  const auto flush = [&] {
    const bool good = std::fwrite(text.data(), 1, text.size(), file.get()) == text.size();
    text.clear();
    return good;
  };
  bool good = true;
  fmt::format_to(std::back_inserter(text), "{{\"displayTimeUnit\":\"ns\",\"traceEvents\":[");
  const char* comma = "\n";
  const Rank me = io.transport().rank();
  for (std::uint32_t r = 0; r < job.ranks; ++r) {
    std::uint64_t theirs = 0;
    io.read({Rank{r}, gas::kTrace, 0}, &theirs, sizeof theirs);
    // The clock of that rank minus ours; all ranks left the barrier at about the same time.
    const std::uint64_t ahead = job.same_clock(Rank{r}) ? 0 : theirs - start;
    fmt::format_to(
        std::back_inserter(text),
        "{}{{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":{},\"args\":{{\"name\":\"rank {}\"}}}}", comma, r,
        r);
    comma = ",\n";
    for (std::uint32_t t = 0; t < threads_; ++t) {
      // as in ThreadContexts; the last with --faults uffd-thread
      constexpr std::array kLast{"service", "other threads", "faults"};
      const std::string name =
          t + kLast.size() < threads_ ? fmt::format("worker {}", t) : kLast[t + kLast.size() - threads_];
      fmt::format_to(
          std::back_inserter(text),
          "{}{{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":{},\"tid\":{},\"args\":{{\"name\":\"{}\"}}}}",
          comma, r, t, name);
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
      log->for_each([&](TraceKind kind, std::uint64_t begin, std::uint64_t end, std::uint64_t number) {
        const KindText& k = kKinds[static_cast<std::size_t>(kind)];
        // Microseconds since the start; earlier events (main's stack) count as the start.
        const std::uint64_t from = begin - ahead > start ? begin - ahead - start : 0,
                            to = end - ahead > start ? end - ahead - start : 0;
        fmt::format_to(std::back_inserter(text),
                       "{}{{\"ph\":\"X\",\"name\":\"{}\",\"cat\":\"{}\",\"pid\":{},\"tid\":{},\"ts\":{}.{:03}"
                       ",\"dur\":{}.{:03}{}}}",
                       comma, k.name, k.category, r, t, from / 1000, from % 1000, (to - from) / 1000,
                       (to - from) % 1000, number_text(k, number, job.space));
        if (text.size() > (1 << 20)) good &= flush();
      });
    }
  }
  fmt::format_to(std::back_inserter(text), "\n]}}\n");
  good &= flush();
  good &= std::fflush(file.get()) == 0;
  if (!good) return fail_errno(Errc::io, "--trace: writing " + path);
  if (lost == 0) return std::string();
  return fmt::format("kasane: --trace: {} events found no room; a thread keeps {} (--debug trace-events)\n",
                     lost, events_);
}

}  // namespace kasane::runtime
