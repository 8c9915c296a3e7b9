// SPDX-License-Identifier: Apache-2.0
// kasane bench spill: how fast bytes travel between frames and the spill file, beside fio and mmap in the
// same directory, all in one memory control group that holds a quarter of the data (where one can be made).
// Interleaved repetitions; median. Reads are verified. A measurement of an inner layer, to be held against
// the disk; `kasane bench tier` compares programs.
//
// Kasane's cases fill frames of a memory file as a rank does, and punch them when they are done with.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/options.h"
#include "base/random.h"
#include "command_line.h"
#include "guarded.h"
#include "median.h"
#include "mem/large_frames.h"
#include "mem/populate.h"
#include "mem/space.h"
#include "mem/spill_queue.h"
#include "memory_group.h"
#include "progress.h"
#include "rows.h"
#include "scratch_file.h"

namespace {

using namespace kasane;
using mem::kBlockBytes;

struct Settings {
  std::string directory;
  std::uint64_t bytes;
  std::uint64_t random_reads;  ///< of each thread
};

constexpr std::uint64_t kChunk = 256u << 10;  // of a sweep
// Chunks under way; for reads as many as the bounce buffers hold.
constexpr unsigned kAheadToRead = mem::BounceBuffers::kBytes / kChunk, kAheadToWrite = 32;

[[noreturn]] void fail_with(const std::string& what) {
  throw std::runtime_error(what + ": " + std::strerror(errno));
}

/// Every block begins with its number + 1, which also makes sure that none is zero.
void stamp(std::byte* base, std::uint64_t offset, std::uint64_t bytes) {
  for (std::uint64_t at = offset; at < offset + bytes; at += kBlockBytes) {
    const std::uint64_t number = at / kBlockBytes + 1;
    std::memcpy(base + at, &number, sizeof number);
  }
}
void check(const std::byte* base, std::uint64_t offset, std::uint64_t bytes) {
  for (std::uint64_t at = offset; at < offset + bytes; at += kBlockBytes) {
    std::uint64_t number;
    std::memcpy(&number, base + at, sizeof number);
    if (number != at / kBlockBytes + 1) throw std::runtime_error("a block came back with other bytes");
  }
}

double mib_per_second(std::uint64_t bytes, std::uint64_t ns) {
  return static_cast<double>(bytes) / (1 << 20) / (static_cast<double>(ns) * 1e-9);
}
double per_second(std::uint64_t n, std::uint64_t ns) {
  return static_cast<double>(n) / (static_cast<double>(ns) * 1e-9);
}

/// A memory file as M, and a spill file.
class Tier {
 public:
  explicit Tier(const Settings& settings) : settings_(settings), fd_(::memfd_create("frames", MFD_CLOEXEC)) {
    if (fd_ < 0 || ::ftruncate(fd_, static_cast<off_t>(settings.bytes)) != 0) fail_with("no memory file");
    // Aligned as the file is, and advised: where the machine allows it for shared memory, 16 OS pages come
    // and go as one.
    const auto reserved = mem::reserve_space(settings.bytes + mem::kSpillStripeBytes);
    if (!reserved) throw std::runtime_error(reserved.error().message);
    const auto address = (reinterpret_cast<std::uintptr_t>(*reserved) + mem::kSpillStripeBytes - 1) /
                         mem::kSpillStripeBytes * mem::kSpillStripeBytes;
    void* const p = ::mmap(reinterpret_cast<void*>(address), settings.bytes, PROT_READ | PROT_WRITE,
                           MAP_SHARED | MAP_NORESERVE | MAP_FIXED, fd_, 0);
    if (p == MAP_FAILED) fail_with("no room for frames");
    ::madvise(p, settings.bytes, MADV_HUGEPAGE);
    base_ = static_cast<std::byte*>(p);
    void* const view = ::mmap(nullptr, settings.bytes, PROT_READ, MAP_SHARED | MAP_NORESERVE, fd_, 0);
    if (view == MAP_FAILED) fail_with("no room for a view");
    view_ = static_cast<std::byte*>(view);
    auto file = mem::SpillFile::create(settings.directory, settings.bytes);
    if (!file) throw std::runtime_error(file.error().message);
    file_ = std::make_unique<mem::SpillFile>(std::move(*file));
    auto pages = mem::Pages::uniform(settings.bytes);
    if (!pages) throw std::runtime_error(pages.error().message);
    auto buffers = mem::BounceBuffers::create({fd_, base_, *pages, mem::large_frame_bytes()});
    if (!buffers) throw std::runtime_error(buffers.error().message);
    buffers_ = std::move(*buffers);
  }
  ~Tier() {
    ::munmap(base_, settings_.bytes);
    ::munmap(view_, settings_.bytes);
    ::close(fd_);
  }

  /// How bytes travel.
  struct Way {
    std::string engine;
    bool staged;
  };

  double write_sweep(const Way& way) {
    const std::uint64_t begin = now_ns();
    sweep(way, mem::SpillOp::write);
    return mib_per_second(settings_.bytes, now_ns() - begin);
  }
  double read_sweep(const Way& way) {
    const std::uint64_t begin = now_ns();
    sweep(way, mem::SpillOp::read);
    return mib_per_second(settings_.bytes, now_ns() - begin);
  }
  /// Each of the threads waits for one block at a time, on a queue of its own.
  double random_reads(const Way& way, unsigned threads) {
    const std::uint64_t begin = now_ns();
    std::vector<std::thread> all;
    for (unsigned t = 0; t < threads; ++t) {
      all.emplace_back([&, t] {
        const auto queue = make_queue(way);
        Random random(t + 1);
        for (std::uint64_t i = 0; i < settings_.random_reads; ++i) {
          // In pages of the thread's own: no other thread punches them. A page goes as a whole, else its
          // other blocks would stay where frames are large.
          const std::uint64_t page =
              (random.below(settings_.bytes / mem::kPageBytes / threads) * threads + t) * mem::kPageBytes;
          const std::uint64_t at = page + random.below(mem::kPageBytes / kBlockBytes) * kBlockBytes;
          move(*queue, mem::SpillOp::read, at, kBlockBytes);
          check(view_, at, kBlockBytes);
          punch(page, mem::kPageBytes);
        }
      });
    }
    for (std::thread& t : all) t.join();
    return per_second(settings_.random_reads * threads, now_ns() - begin);
  }

 private:
  struct Chunk {
    Chunk(mem::SpillOp op, std::byte* base, std::uint64_t offset)
        : range{{offset, kChunk}}, batch(op, base, range) {}
    std::array<mem::SpillRange, 1> range;
    mem::SpillBatch batch;
  };

  std::unique_ptr<mem::SpillQueue> make_queue(const Way& way) {
    auto queue = mem::SpillQueue::create(*file_, way.engine, way.staged ? buffers_.get() : nullptr);
    if (!queue) throw std::runtime_error(queue.error().message);
    return std::move(*queue);
  }
  void punch(std::uint64_t at, std::uint64_t bytes) const {
    if (::fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(at),
                    static_cast<off_t>(bytes)) != 0)
      fail_with("cannot punch frames");
  }
  void finish(mem::SpillQueue& queue, const mem::SpillBatch& batch) const {
    queue.wait(batch);
    if (batch.error() != 0)
      throw std::runtime_error(
          file_->error(batch.op, batch.error(), batch.failed().offset, batch.failed().bytes).message);
  }
  void move(mem::SpillQueue& queue, mem::SpillOp op, std::uint64_t at, std::uint64_t bytes) const {
    std::array<mem::SpillRange, 1> range{{{at, bytes}}};
    mem::SpillBatch batch(op, base_, range);
    queue.run(batch);
    finish(queue, batch);
  }
  // A window of chunks moves over the data: frames are made at its front, by touching and stamping them or by
  // reading them; looked at (if read) and punched at its back.
  void sweep(const Way& way, mem::SpillOp op) {
    const auto queue = make_queue(way);
    std::deque<Chunk> window;
    const unsigned ahead = op == mem::SpillOp::read ? kAheadToRead : kAheadToWrite;
    const auto retire = [&] {
      finish(*queue, window.front().batch);
      const std::uint64_t at = window.front().range[0].offset;
      if (op == mem::SpillOp::read) check(view_, at, kChunk);
      punch(at, kChunk);
      window.pop_front();
    };
    for (std::uint64_t at = 0; at < settings_.bytes; at += kChunk) {
      if (window.size() == ahead) retire();
      if (op == mem::SpillOp::write) mem::populate(base_ + at, kChunk), stamp(base_, at, kChunk);
      window.emplace_back(op, base_, at);
      // sleeps where a chunk is sent in so many parts that the slots do not last
      queue->issue(window.back().batch);
    }
    while (!window.empty()) retire();
  }

  const Settings& settings_;
  int fd_;
  std::byte *base_, *view_;  // A; V, by which a program looks
  std::unique_ptr<mem::SpillFile> file_;
  std::unique_ptr<mem::BounceBuffers> buffers_;
};

/// A file of the same size for mmap and fio.
class PeerFile {
 public:
  explicit PeerFile(const Settings& settings)
      : settings_(settings), file_(settings.directory, settings.bytes) {}

  /// body(map) with nothing in the page cache before; until everything is on disk.
  std::uint64_t mapped(int advice, const std::function<void(std::byte*)>& body) {
    ::fsync(file_.fd());
    ::posix_fadvise(file_.fd(), 0, 0, POSIX_FADV_DONTNEED);
    const std::uint64_t begin = now_ns();
    void* const p = ::mmap(nullptr, settings_.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_.fd(), 0);
    if (p == MAP_FAILED) fail_with("cannot map a file");
    ::madvise(p, settings_.bytes, advice);
    body(static_cast<std::byte*>(p));
    ::munmap(p, settings_.bytes);
    ::fsync(file_.fd());
    return now_ns() - begin;
  }

  double write_sweep(int advice) {
    return mib_per_second(settings_.bytes, mapped(advice, [&](std::byte* p) {
                            for (std::uint64_t at = 0; at < settings_.bytes; at += kBlockBytes)
                              std::memset(p + at, 1, kBlockBytes), stamp(p, at, kBlockBytes);
                          }));
  }
  double read_sweep(int advice) {
    return mib_per_second(settings_.bytes,
                          mapped(advice, [&](std::byte* p) { check(p, 0, settings_.bytes); }));
  }
  double random_reads(unsigned threads) {
    const std::uint64_t ns = mapped(MADV_RANDOM, [&](std::byte* p) {
      std::vector<std::thread> all;
      for (unsigned t = 0; t < threads; ++t) {
        all.emplace_back([&, t] {
          Random random(t + 1);
          for (std::uint64_t i = 0; i < settings_.random_reads; ++i)
            check(p, random.below(settings_.bytes / kBlockBytes) * kBlockBytes, kBlockBytes);
        });
      }
      for (std::thread& t : all) t.join();
    });
    return per_second(settings_.random_reads * threads, ns);
  }
  /// The figure in this column (from 1) of fio's terse output.
  [[nodiscard]] double fio(const std::string& arguments, unsigned column) const {
    const std::string line = fmt::format(
        "fio --name=x --filename={} --size={} --ioengine=io_uring --direct=1 --output-format=terse {} | cut "
        "-d';' -f{}",
        file_.path(), settings_.bytes, arguments, column);
    std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen(line.c_str(), "r"), ::pclose);
    double value = 0;
    if (!pipe || std::fscanf(pipe.get(), "%lf", &value) != 1) throw std::runtime_error("fio failed: " + line);
    return value;
  }

 private:
  const Settings& settings_;
  bench::ScratchFile file_;
};

double processor_seconds() {
  timespec t{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}
struct Case {
  std::string name, system, unit;
  std::function<double()> run;
  std::uint64_t blocks;                   // that it moves
  std::vector<double> values, processor;  // processor: µs of this process for each block

  void repeat() {
    const double before = processor_seconds();
    values.push_back(run());
    processor.push_back((processor_seconds() - before) * 1e6 / static_cast<double>(blocks));
  }
};

/// Of each wanted system, with its variants, which read what it has written.
std::vector<Case> cases(const Settings& s, Tier& tier, PeerFile& file, const bench::CommandLine& line) {
  std::vector<Case> list;
  const auto add = [&](const char* name, const std::string& system, const char* unit,
                       std::function<double()> run) {
    const std::string_view kind(name);
    list.push_back(
        {name,
         system,
         unit,
         std::move(run),
         kind.starts_with("seq") ? s.bytes / kBlockBytes : s.random_reads * (kind == "random-8" ? 8 : 1),
         {},
         {}});
  };
  const bool fio = line.wants("fio") && std::system("command -v fio >/dev/null 2>&1") == 0;
  // In this order each repetition writes before it reads.
  for (const auto& engine : mem::spill_engines()) {
    if (!engine.available || !line.wants(engine.name)) continue;
    const Tier::Way way{std::string(engine.name), true}, in_place{way.engine, false};
    add("seq-write", way.engine, "MiB/s", [&, way] { return tier.write_sweep(way); });
    for (const Tier::Way& w : {way, in_place}) {
      const std::string name = w.engine + (w.staged ? "" : "-in-place");
      add("seq-read", name, "MiB/s", [&, w] { return tier.read_sweep(w); });
      add("random-1", name, "1/s", [&, w] { return tier.random_reads(w, 1); });
      add("random-8", name, "1/s", [&, w] { return tier.random_reads(w, 8); });
    }
  }
  if (fio) {
    const std::string some = fmt::format("--number_ios={}", s.random_reads);
    add("seq-write", "fio", "MiB/s",
        [&] { return file.fio("--rw=write --bs=1m --iodepth=8 --fallocate=none --overwrite=1", 48) / 1024; });
    add("seq-read", "fio", "MiB/s", [&] { return file.fio("--rw=read --bs=1m --iodepth=8", 7) / 1024; });
    add("random-1", "fio", "1/s",
        [&, some] { return file.fio("--rw=randread --bs=4k --iodepth=1 " + some, 8); });
    add("random-8", "fio", "1/s",
        [&, some] { return file.fio("--rw=randread --bs=4k --iodepth=8 " + some, 8); });
  }
  if (!line.wants("mmap")) return list;
  add("seq-write", "mmap", "MiB/s", [&] { return file.write_sweep(MADV_NORMAL); });
  add("seq-read", "mmap", "MiB/s", [&] { return file.read_sweep(MADV_NORMAL); });
  add("seq-read", "mmap-sequential", "MiB/s", [&] { return file.read_sweep(MADV_SEQUENTIAL); });
  add("random-1", "mmap-random", "1/s", [&] { return file.random_reads(1); });
  add("random-8", "mmap-random", "1/s", [&] { return file.random_reads(8); });
  return list;
}

std::vector<bench::Row> measure(const Settings& settings, const bench::CommandLine& line, bool limited) {
  const unsigned repetitions = line.repetitions();
  std::FILE* const table = bench::table_file(line.json());
  Tier tier(settings);
  PeerFile file(settings);
  auto list = cases(settings, tier, file, line);
  {
    bench::Progress progress(list.size() * repetitions);
    for (unsigned r = 0; r < repetitions; ++r)
      for (Case& c : list) progress.begin(c.name + " " + c.system), c.repeat();
  }
  std::stable_sort(list.begin(), list.end(), [](const Case& x, const Case& y) { return x.name < y.name; });
  std::fprintf(table, "%s of data in %s; frames of %s; %s\n", bytes_text(settings.bytes).c_str(),
               settings.directory.c_str(),
               bytes_text(std::max<std::uint64_t>(kBlockBytes, mem::large_frame_bytes())).c_str(),
               limited
                   ? "memory limited to a quarter of it"
                   : "memory NOT limited (no control group can be made here): mmap's figures are too good");
  std::vector<bench::Row> rows;
  for (Case& c : list) {
    const double value = bench::median(c.values), processor = bench::median(c.processor);
    // Not of programs that were started.
    const std::string cost =
        c.system == "fio" ? "" : fmt::format("   {:6.2f} µs of processor time a block", processor);
    std::fprintf(table, "%-10s %-18s %10.0f %-5s%s\n", c.name.c_str(), c.system.c_str(), value,
                 c.unit.c_str(), cost.c_str());
    rows.push_back({"spill", c.name, c.system, 1, c.name == "random-8" ? 8u : 1u,
                    c.name.front() == 's' ? kChunk : kBlockBytes, value, c.unit, repetitions});
  }
  return rows;
}

}  // namespace

int main(int argc, char** argv) {
  bench::CommandLine line("spill", "one repetition, with 256M and fewer reads");
  std::string directory = std::filesystem::temp_directory_path(), size = "2G";
  std::vector<std::string> systems;
  for (const auto& engine : mem::spill_engines()) systems.emplace_back(engine.name);
  systems.insert(systems.end(), {"fio", "mmap"});
  line.names("systems", systems);
  line.repetitions(3, 1);
  line.own().directory("--dir", directory, "where the files are made: on the disk to be measured");
  line.own().text("--size", size, "of the data", "SIZE");
  if (const auto status = line.parse(argc, argv)) return *status;
  const bool quick = line.quick();
  const auto bytes = parse_bytes(quick ? "256M" : size);
  if (!bytes || *bytes < 64 * kChunk || *bytes % mem::kSpillStripeBytes != 0) {
    std::fprintf(stderr, "kasane bench spill: --size %s is no multiple of 2M from 64M on\n", size.c_str());
    return 2;
  }
  const Settings settings{directory, *bytes, quick ? 1000u : 10'000u};
  const bench::MemoryGroup quarter("kasane-bench-spill." + std::to_string(::getpid()), *bytes / 4);
  // In a process of its own, so that the group is empty when it is to go.
  return bench::run_guarded("kasane bench spill", [&] {
    write(line.json(), measure(settings, line, quarter.enter()));
    return 0;
  });
}
