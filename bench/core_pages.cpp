// SPDX-License-Identifier: Apache-2.0
#include "core_pages.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <stdexcept>

#include "base/clock.h"
#include "comm/bootstrap/job.h"
#include "mem/engines.h"
#include "mem/fault_threads.h"
#include "mem/signal_dispatch.h"
#include "mem/userfaultfd.h"
#include "support/rank_memory.h"

namespace kasane::bench {
namespace {

using mem::kBlockBytes;
using test::RankMemory;

constexpr unsigned kMostSamples = 64;
/// Blocks; the wide stride has a block in each page or every other
constexpr std::size_t kStride = 3, kWideStride = 20;

/// What rank 1 measured, in memory shared by the ranks: microseconds or nanoseconds a repetition.
struct Samples {
  double value[kMostSamples];
  unsigned n;
  void add(double v) {
    if (n < kMostSamples) value[n++] = v;
  }
  [[nodiscard]] double median() {
    std::sort(value, value + n);
    return n == 0 ? 0 : value[n / 2];
  }
};

struct Results {
  Samples miss, miss_inside, stream, stream_down, stride, wide_stride, view, write_view, release_whole;
  Samples small_stream, small_write_stream;  // in pages of 4 KiB
  Samples write_miss, write_stream, write_stride, release_page, release_clean, acquire_clean, epoch, fault,
      fault_uffd, fault_uffd_thread, protect, copy;
  bool wrong;
};

double us(std::uint64_t ns, std::size_t n) { return static_cast<double>(ns) / 1e3 / static_cast<double>(n); }

std::byte* block_of(void* address) {
  return reinterpret_cast<std::byte*>(reinterpret_cast<std::uintptr_t>(address) / kBlockBytes * kBlockBytes);
}

/// The kernel's part of a fault: a handler that only allows the access.
bool open_block(void*, void* address, bool, int) {
  return ::mprotect(block_of(address), kBlockBytes, PROT_READ | PROT_WRITE) == 0;
}

bool map_block(void* uffd, void* address, bool write, int) {
  std::size_t done;
  return static_cast<mem::Userfaultfd*>(uffd)->map(block_of(address), kBlockBytes, !write, done) == 0;
}

/// The serving thread only maps the page.
class MappingServer final : public mem::FaultServer {
 public:
  explicit MappingServer(const mem::Userfaultfd& uffd) noexcept : uffd_(uffd) {}
  bool serve_allowed(const mem::UserFault&) noexcept override { return false; }
  void answer(const mem::UserFault& fault) noexcept override {
    std::size_t done;
    static_cast<void>(uffd_.map(block_of(fault.address), kBlockBytes, !fault.write, done));
    put_off(fault);
  }
  void put_off(const mem::UserFault& fault) noexcept override {
    uffd_.wake(block_of(fault.address), kBlockBytes);
  }

 private:
  const mem::Userfaultfd& uffd_;
};

double measure_fault_uffd_thread(int file, std::size_t blocks, const std::vector<std::size_t>& order) {
  const auto uffd = mem::Userfaultfd::open(mem::Delivery::thread).value();
  auto* base = static_cast<std::byte*>(
      ::mmap(nullptr, blocks * kBlockBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
  KASANE_CHECK(uffd.add(base, blocks * kBlockBytes) == 0);
  MappingServer server(uffd);
  mem::FaultThreads threads(uffd, server);
  KASANE_CHECK(threads.start().has_value());
  const std::uint64_t start = now_ns();
  for (const std::size_t b : order)
    static_cast<void>(*static_cast<volatile std::byte*>(base + b * kBlockBytes));
  const std::uint64_t end = now_ns();
  threads.stop();
  ::munmap(base, blocks * kBlockBytes);
  return us(end - start, blocks);
}

double measure_fault_uffd(int file, std::size_t blocks, const std::vector<std::size_t>& order) {
  auto uffd = mem::Userfaultfd::open(mem::Delivery::in_place).value();
  auto* base = static_cast<std::byte*>(
      ::mmap(nullptr, blocks * kBlockBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
  KASANE_CHECK(uffd.add(base, blocks * kBlockBytes) == 0);
  KASANE_CHECK(
      mem::register_range(base, blocks * kBlockBytes, map_block, &uffd, mem::FaultSignals::segv_and_bus)
          .has_value());
  const std::uint64_t start = now_ns();
  for (const std::size_t b : order)
    static_cast<void>(*static_cast<volatile std::byte*>(base + b * kBlockBytes));
  const std::uint64_t end = now_ns();
  mem::unregister_range(base);
  ::munmap(base, blocks * kBlockBytes);
  return us(end - start, blocks);
}

void measure_fault(Results& results, std::size_t blocks, const std::vector<std::size_t>& order) {
  const int fd = ::memfd_create("fault", MFD_CLOEXEC);
  KASANE_CHECK(::ftruncate(fd, static_cast<off_t>(blocks * kBlockBytes)) == 0);
  auto* alias =
      static_cast<char*>(::mmap(nullptr, blocks * kBlockBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
  std::memset(alias, 1, blocks * kBlockBytes);
  auto* base =
      static_cast<volatile char*>(::mmap(nullptr, blocks * kBlockBytes, PROT_NONE, MAP_SHARED, fd, 0));
  KASANE_CHECK(
      mem::register_range(const_cast<char*>(base), blocks * kBlockBytes, open_block, nullptr).has_value());
  const std::uint64_t start = now_ns();
  for (const std::size_t b : order) static_cast<void>(base[b * kBlockBytes]);
  results.fault.add(us(now_ns() - start, blocks));
  KASANE_CHECK(::mprotect(const_cast<char*>(base), blocks * kBlockBytes, PROT_NONE) == 0);
  const std::uint64_t again = now_ns();
  for (const std::size_t b : order)
    KASANE_CHECK(::mprotect(const_cast<char*>(base) + b * kBlockBytes, kBlockBytes, PROT_READ) == 0);
  results.protect.add(us(now_ns() - again, blocks));
  mem::unregister_range(const_cast<char*>(base));
  ::munmap(const_cast<char*>(base), blocks * kBlockBytes);
  if (mem::probe_userfaultfd(mem::Delivery::in_place).empty())
    results.fault_uffd.add(measure_fault_uffd(fd, blocks, order));
  if (mem::probe_userfaultfd(mem::Delivery::thread).empty())
    results.fault_uffd_thread.add(measure_fault_uffd_thread(fd, blocks, order));
  ::munmap(alias, blocks * kBlockBytes);
  ::close(fd);
}

void measure_copy(Results& results, RankMemory& m, std::uint64_t data, std::size_t blocks,
                  const std::vector<std::size_t>& order) {
  const std::byte* owner = m.transport->mapped(Rank{0}, gas::kFrames) + data;
  alignas(64) static std::byte to[kBlockBytes];
  const std::uint64_t start = now_ns();
  for (const std::size_t b : order) {
    std::memcpy(to, owner + b * kBlockBytes, kBlockBytes);
    asm volatile("" ::"r"(to) : "memory");
  }
  results.copy.add(us(now_ns() - start, blocks));
}

/// A repetition of rank 1; rank 0 owns the data and sleeps in the barrier meanwhile.
void measure(Results& results, RankMemory& m, std::uint64_t data, std::size_t blocks,
             std::vector<std::size_t>& order) {
  auto& context = m.context();
  volatile char* bytes = m.at<volatile char>(data);
  m.coherence->acquire_all(context);
  measure_fault(results, blocks, order);
  measure_copy(results, m, data, blocks, order);

  std::uint64_t inside = context.counters.ns_fault.load(), start = now_ns();
  for (const std::size_t b : order) results.wrong |= bytes[b * kBlockBytes] != static_cast<char>(b);
  results.miss.add(us(now_ns() - start, blocks));
  results.miss_inside.add(us(context.counters.ns_fault.load() - inside, blocks));

  m.coherence->acquire_all(context);
  start = now_ns();
  for (std::size_t b = 0; b < blocks; ++b) results.wrong |= bytes[b * kBlockBytes] != static_cast<char>(b);
  results.stream.add(us(now_ns() - start, blocks));

  m.coherence->acquire_all(context);
  start = now_ns();
  for (std::size_t b = blocks; b-- > 0;) results.wrong |= bytes[b * kBlockBytes] != static_cast<char>(b);
  results.stream_down.add(us(now_ns() - start, blocks));

  const std::size_t strided = (blocks + kStride - 1) / kStride;
  for (const std::size_t stride : {kStride, kWideStride}) {
    m.coherence->acquire_all(context);
    start = now_ns();
    for (std::size_t b = 0; b < blocks; b += stride)
      results.wrong |= bytes[b * kBlockBytes] != static_cast<char>(b);
    (stride == kStride ? results.stride : results.wide_stride)
        .add(us(now_ns() - start, (blocks + stride - 1) / stride));
  }

  m.coherence->acquire_all(context);
  start = now_ns();
  results.wrong |= m.coherence->pin(context, data, blocks * kBlockBytes, dsm::Use::read).has_value();
  for (std::size_t b = 0; b < blocks; ++b) results.wrong |= bytes[b * kBlockBytes] != static_cast<char>(b);
  m.coherence->unpin(context, data, blocks * kBlockBytes);
  results.view.add(us(now_ns() - start, blocks));

  m.coherence->acquire_all(context);
  start = now_ns();
  results.wrong |= m.coherence->pin(context, data, blocks * kBlockBytes, dsm::Use::write_only).has_value();
  m.coherence->unpin(context, data, blocks * kBlockBytes);
  results.write_view.add(us(now_ns() - start, blocks));
  for (std::size_t b = 0; b < blocks; ++b)
    std::memset(const_cast<char*>(bytes) + b * kBlockBytes, static_cast<char>(b), kBlockBytes);
  start = now_ns();
  m.coherence->release_all(context);
  results.release_whole.add(us(now_ns() - start, blocks));

  m.coherence->acquire_all(context);
  start = now_ns();
  for (const std::size_t b : order) bytes[b * kBlockBytes + 8] = static_cast<char>(b + results.stream.n);
  results.write_miss.add(us(now_ns() - start, blocks));
  start = now_ns();
  m.coherence->release_all(context);
  results.release_page.add(us(now_ns() - start, blocks));

  for (const std::size_t stride : {std::size_t{1}, kStride}) {  // with the release of the changed bytes
    m.coherence->acquire_all(context);
    start = now_ns();
    for (std::size_t b = 0; b < blocks; b += stride)
      bytes[b * kBlockBytes + 16] = static_cast<char>(b + results.stream.n);
    m.coherence->release_all(context);
    (stride == 1 ? results.write_stream : results.write_stride)
        .add(us(now_ns() - start, stride == 1 ? blocks : strided));
  }

  m.coherence->acquire_all(context);
  constexpr unsigned kCalls = 1000;
  start = now_ns();
  for (unsigned i = 0; i < kCalls; ++i) m.coherence->release_all(context);
  results.release_clean.add(us(now_ns() - start, kCalls) * 1e3);
  start = now_ns();
  for (unsigned i = 0; i < kCalls; ++i) m.coherence->acquire_all(context);
  results.acquire_clean.add(us(now_ns() - start, kCalls) * 1e3);
}

/// The same in pages of 4 KiB, upwards: loads; then stores, with the release of the changed bytes.
void measure_small(Results& results, RankMemory& m, std::uint64_t data, std::size_t blocks) {
  auto& context = m.context();
  volatile char* bytes = m.at<volatile char>(data);
  m.coherence->acquire_all(context);
  std::uint64_t start = now_ns();
  for (std::size_t b = 0; b < blocks; ++b) results.wrong |= bytes[b * kBlockBytes] != static_cast<char>(b);
  results.small_stream.add(us(now_ns() - start, blocks));
  m.coherence->acquire_all(context);
  start = now_ns();
  for (std::size_t b = 0; b < blocks; ++b)
    bytes[b * kBlockBytes + 16] = static_cast<char>(b + results.small_stream.n);
  m.coherence->release_all(context);
  results.small_write_stream.add(us(now_ns() - start, blocks));
}

/// Both ranks store a byte of their own into every block, release, meet, acquire and read the other's.
void measure_false_sharing(Results& results, RankMemory& m, std::uint64_t data, unsigned repetitions) {
  constexpr std::size_t kPages = 16;
  volatile char* bytes = m.at<volatile char>(data);
  const std::size_t mine = raw(m.rank()) * 64, other = 64 - mine;
  for (unsigned r = 0; r < repetitions; ++r) {
    m.collectives.barrier();
    const std::uint64_t start = now_ns();
    for (std::size_t p = 0; p < kPages; ++p) bytes[p * kBlockBytes + mine] = static_cast<char>(r + p);
    m.coherence->release_all(m.context());
    m.collectives.barrier();
    m.coherence->acquire_all(m.context());
    for (std::size_t p = 0; p < kPages; ++p)
      results.wrong |= bytes[p * kBlockBytes + other] != static_cast<char>(r + p);
    if (raw(m.rank()) == 1) results.epoch.add(us(now_ns() - start, kPages));
  }
}

/// The data of rank 0: each block holds its number.
std::uint64_t make_data(RankMemory& m, std::size_t blocks) {
  const bool owner = raw(m.rank()) == 0;
  const std::uint64_t data = m.broadcast(Rank{0}, owner ? m.allocate(blocks * kBlockBytes) : 0);
  if (owner) {
    for (std::size_t b = 0; b < blocks; ++b) m.at<char>(data)[b * kBlockBytes] = static_cast<char>(b);
  }
  m.collectives.barrier();
  return data;
}

void body_of_small_pages(const comm::Job& job, std::byte* base, const std::string& engine, Results& results,
                         unsigned repetitions, std::size_t blocks) {
  RankMemory m(job, base, mem::kSmallestPageBytes, 0, engine);
  const std::uint64_t data = make_data(m, blocks);
  for (unsigned r = 0; r < repetitions && raw(m.rank()) == 1; ++r) measure_small(results, m, data, blocks);
  m.collectives.barrier();
}

void body(const comm::Job& job, std::byte* base, const std::string& engine, Results& results,
          unsigned repetitions, std::size_t blocks) {
  RankMemory m(job, base, mem::kPageBytes, 0, engine);
  const std::uint64_t data = make_data(m, blocks);
  if (raw(m.rank()) == 1) {
    std::vector<std::size_t> order(blocks);
    std::iota(order.begin(), order.end(), 0);
    std::mt19937 random(1);
    for (unsigned r = 0; r < repetitions; ++r) {
      std::shuffle(order.begin(), order.end(), random);
      measure(results, m, data, blocks, order);
    }
  }
  m.collectives.barrier();
  measure_false_sharing(results, m, data, repetitions);
}

/// Runs body in two forked ranks.
void run_pair(const std::function<void(const comm::Job&)>& run) {
  comm::Job job = comm::create_job(2, comm::shm::job_bytes(2)).value();
  pid_t pids[2];
  for (std::uint32_t r = 0; r < 2; ++r) {
    pids[r] = ::fork();
    if (pids[r] == 0) {
      ::alarm(120);  // a hang ends the benchmark
      job.rank = Rank{r};
      run(job);
      ::_exit(0);
    }
  }
  bool failed = false;
  for (const pid_t pid : pids) {
    int status = 0;
    failed |= ::waitpid(pid, &status, 0) != pid || status != 0;
  }
  if (failed) throw std::runtime_error("core_pages: a rank failed");
}

}  // namespace

std::vector<Row> core_pages(bool quick, std::optional<unsigned> asked, std::vector<std::string> engines) {
  if (engines.empty()) {
    for (const mem::EngineInfo& e : mem::engines())
      if (e.available) engines.emplace_back(e.name);
  }
  constexpr unsigned kRounds = 3;  // the engines take turns
  const unsigned repetitions = asked.value_or(quick ? 2 : 7);
  const std::size_t blocks = quick ? 512 : 4096;
  const std::size_t bytes = engines.size() * sizeof(Results);
  auto* results = static_cast<Results*>(
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  std::byte* base = mem::reserve_space(RankMemory::kSpaceBytes).value();
  for (unsigned round = 0; round < kRounds; ++round) {
    for (std::size_t e = 0; e < engines.size(); ++e) {
      run_pair([&](const comm::Job& job) { body(job, base, engines[e], results[e], repetitions, blocks); });
      run_pair([&](const comm::Job& job) {
        body_of_small_pages(job, base, engines[e], results[e], repetitions, blocks);
      });
    }
  }
  ::munmap(base, RankMemory::kSpaceBytes);

  std::vector<Row> rows;
  const auto row = [&](const char* name, const std::string& system, Samples& samples, const char* unit) {
    if (samples.n != 0)
      rows.push_back({"core", name, system, 2, 1, kBlockBytes, samples.median(), unit, samples.n});
  };
  for (std::size_t e = 0; e < engines.size(); ++e) {
    Results& r = results[e];
    if (r.wrong)
      throw std::runtime_error("core_pages: wrong bytes were read with the fault engine " + engines[e]);
    const std::string kasane = "kasane, " + engines[e];
    row("page-miss", kasane, r.miss, "us");
    row("page-miss", kasane + ", inside", r.miss_inside, "us");
    row("page-stream", kasane, r.stream, "us");
    row("page-stream-down", kasane, r.stream_down, "us");
    row("page-stride", kasane, r.stride, "us");
    row("page-stride-wide", kasane, r.wide_stride, "us");
    row("page-stream-4k", kasane, r.small_stream, "us");
    row("page-view", kasane, r.view, "us");
    row("write-view", kasane, r.write_view, "us");
    row("release-whole", kasane, r.release_whole, "us");
    row("write-miss", kasane, r.write_miss, "us");
    row("release-page", kasane, r.release_page, "us");
    row("write-stream", kasane, r.write_stream, "us");
    row("write-stride", kasane, r.write_stride, "us");
    row("write-stream-4k", kasane, r.small_write_stream, "us");
    row("release-clean", kasane, r.release_clean, "ns");
    row("acquire-clean", kasane, r.acquire_clean, "ns");
    row("false-sharing-epoch", kasane, r.epoch, "us");
  }
  row("page-miss", "fault, mprotect", results[0].fault, "us");
  row("page-miss", "fault, uffd", results[0].fault_uffd, "us");
  row("page-miss", "fault, uffd-thread", results[0].fault_uffd_thread, "us");
  row("page-miss", "mprotect", results[0].protect, "us");
  row("page-miss", "memcpy", results[0].copy, "us");
  for (Row& r : rows) {
    if (r.case_.ends_with("-clean")) r.bytes = 0;
    if (r.case_ == "false-sharing-epoch") r.threads = 2;
  }
  ::munmap(results, bytes);
  return rows;
}

}  // namespace kasane::bench
