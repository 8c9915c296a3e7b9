// SPDX-License-Identifier: Apache-2.0
#include "core_pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <stdexcept>
#include <utility>

#include "base/assert.h"
#include "base/clock.h"
#include "median.h"
#include "mem/engines.h"
#include "mem/fault_threads.h"
#include "mem/userfaultfd.h"
#include "run_app.h"
#include "traps/signal_dispatch.h"

namespace kasane::bench {
namespace {

using mem::kBlockBytes;

/// What the player measures, in the order of the rows; a key of its JSON object each.
struct Case {
  const char* key;
  const char* unit;
};
constexpr Case kCases[] = {
    {"page-miss", "us"},        {"inside", "us"},        {"page-stream", "us"},
    {"page-stream-down", "us"}, {"page-stride", "us"},   {"page-stride-wide", "us"},
    {"page-stream-4k", "us"},   {"page-view", "us"},     {"write-view", "us"},
    {"release-whole", "us"},    {"write-miss", "us"},    {"release-page", "us"},
    {"write-stream", "us"},     {"write-stride", "us"},  {"write-stream-4k", "us"},
    {"release-clean", "ns"},    {"acquire-clean", "ns"}, {"false-sharing-epoch", "us"}};

using Samples = std::vector<double>;

/// What this process measures: µs a block.
struct Limits {
  Samples fault, fault_uffd, fault_uffd_thread, protect, copy;
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
      traps::register_range(base, blocks * kBlockBytes, map_block, &uffd, traps::FaultSignals::segv_and_bus)
          .has_value());
  const std::uint64_t start = now_ns();
  for (const std::size_t b : order)
    static_cast<void>(*static_cast<volatile std::byte*>(base + b * kBlockBytes));
  const std::uint64_t end = now_ns();
  traps::unregister_range(base);
  ::munmap(base, blocks * kBlockBytes);
  return us(end - start, blocks);
}

double measure_copy(const std::byte* from, const std::vector<std::size_t>& order) {
  alignas(64) static std::byte to[kBlockBytes];
  const std::uint64_t start = now_ns();
  for (const std::size_t b : order) {
    std::memcpy(to, from + b * kBlockBytes, kBlockBytes);
    asm volatile("" ::"r"(to) : "memory");
  }
  return us(now_ns() - start, order.size());
}

void measure_limits(Limits& limits, std::size_t blocks, const std::vector<std::size_t>& order) {
  const int fd = ::memfd_create("fault", MFD_CLOEXEC);
  KASANE_CHECK(::ftruncate(fd, static_cast<off_t>(blocks * kBlockBytes)) == 0);
  auto* alias = static_cast<std::byte*>(
      ::mmap(nullptr, blocks * kBlockBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
  std::memset(alias, 1, blocks * kBlockBytes);
  auto* base =
      static_cast<volatile char*>(::mmap(nullptr, blocks * kBlockBytes, PROT_NONE, MAP_SHARED, fd, 0));
  KASANE_CHECK(
      traps::register_range(const_cast<char*>(base), blocks * kBlockBytes, open_block, nullptr).has_value());
  const std::uint64_t start = now_ns();
  for (const std::size_t b : order) static_cast<void>(base[b * kBlockBytes]);
  limits.fault.push_back(us(now_ns() - start, blocks));
  KASANE_CHECK(::mprotect(const_cast<char*>(base), blocks * kBlockBytes, PROT_NONE) == 0);
  const std::uint64_t again = now_ns();
  for (const std::size_t b : order)
    KASANE_CHECK(::mprotect(const_cast<char*>(base) + b * kBlockBytes, kBlockBytes, PROT_READ) == 0);
  limits.protect.push_back(us(now_ns() - again, blocks));
  traps::unregister_range(const_cast<char*>(base));
  ::munmap(const_cast<char*>(base), blocks * kBlockBytes);
  if (mem::probe_userfaultfd(mem::Delivery::in_place).empty())
    limits.fault_uffd.push_back(measure_fault_uffd(fd, blocks, order));
  if (mem::probe_userfaultfd(mem::Delivery::thread).empty())
    limits.fault_uffd_thread.push_back(measure_fault_uffd_thread(fd, blocks, order));
  limits.copy.push_back(measure_copy(alias, order));
  ::munmap(alias, blocks * kBlockBytes);
  ::close(fd);
}

void measure_limits(Limits& limits, std::size_t blocks, unsigned repetitions) {
  std::vector<std::size_t> order(blocks);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::mt19937 random(1);
  for (unsigned r = 0; r < repetitions; ++r) {
    std::shuffle(order.begin(), order.end(), random);
    measure_limits(limits, blocks, order);
  }
}

/// Runs the player with this engine, and adds its figures to the samples of each case.
void play(const std::string& command, const std::string& players, const std::string& engine,
          std::size_t blocks, unsigned repetitions, std::vector<Samples>& samples) {
  std::vector<std::string> figures;
  for (const Case& c : kCases) figures.push_back(std::string("/") + c.key);
  const auto values =
      run_app(command + " run -n 2 --workers 1 --debug relocate=off --faults " + engine + " -- " + players +
                  "/player-pages " + std::to_string(blocks) + " " + std::to_string(repetitions),
              figures);
  if (values.size() != figures.size() * repetitions)
    throw std::runtime_error("player-pages: not as many figures as repetitions");
  for (std::size_t i = 0; i < values.size(); ++i) samples[i / repetitions].push_back(values[i]);
}

/// Limits get the number of ranks of the jobs that they stand beside, so that a figure shows both as bars.
Row row_of(const char* name, const std::string& system, const Samples& samples, const char* unit) {
  Row row{
      "core", name, system, 2, 1, kBlockBytes, median(samples), unit, static_cast<unsigned>(samples.size())};
  if (row.case_.ends_with("-clean")) row.bytes = 0;
  if (row.case_ == "false-sharing-epoch") row.threads = 2;
  return row;
}

}  // namespace

std::vector<Row> core_pages(bool quick, std::optional<unsigned> asked, const std::string& command,
                            const std::string& players, std::vector<std::string> engines) {
  if (engines.empty()) {
    for (const mem::EngineInfo& e : mem::engines())
      if (e.available) engines.emplace_back(e.name);
  }
  constexpr unsigned kRounds = 3;  // the engines take turns
  const unsigned repetitions = asked.value_or(quick ? 2 : 7);
  const std::size_t blocks = quick ? 512 : 4096;
  Limits limits;
  std::vector<std::vector<Samples>> samples(engines.size(), std::vector<Samples>(std::size(kCases)));
  for (unsigned round = 0; round < kRounds; ++round) {
    measure_limits(limits, blocks, repetitions);
    for (std::size_t e = 0; e < engines.size(); ++e)
      play(command, players, engines[e], blocks, repetitions, samples[e]);
  }

  std::vector<Row> rows;
  for (std::size_t e = 0; e < engines.size(); ++e) {
    const std::string kasane = "kasane, " + engines[e];
    for (std::size_t i = 0; i < std::size(kCases); ++i) {
      const bool inside = kCases[i].key == std::string("inside");  // of page-miss
      rows.push_back(row_of(inside ? "page-miss" : kCases[i].key, inside ? kasane + ", inside" : kasane,
                            samples[e][i], kCases[i].unit));
    }
  }
  const std::pair<const char*, const Samples&> peers[] = {{"fault, mprotect", limits.fault},
                                                          {"fault, uffd", limits.fault_uffd},
                                                          {"fault, uffd-thread", limits.fault_uffd_thread},
                                                          {"mprotect", limits.protect},
                                                          {"memcpy", limits.copy}};
  for (const auto& [name, values] : peers) {
    if (!values.empty()) rows.push_back(row_of("page-miss", name, values, "us"));  // the kernel allows it
  }
  return rows;
}

}  // namespace kasane::bench
