// SPDX-License-Identifier: Apache-2.0
// Measures the offload engine (comm_offload.h). A system and round is one job of two forked ranks: rank 1
// serves, rank 0 measures and writes a Sample into memory that it shares with the parent.
//
// **Issue** (figure 4.6): each requester posts 64 reads that fit in the ring, by its own CPU clock, then
// waits until they have completed, outside the clock. A requester that is pushed off its core in between is
// not charged for it; one that has to wake the executor is.
// **Latency**: post, then read the flag (and make progress, if no other thread does) until the callback has
// set it.
// **Rate**: each requester keeps 64 reads outstanding.
#include "comm_offload.h"

#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>

#include "base/clock.h"
#include "comm/collectives/collectives.h"
#include "comm/collectives/over_transport.h"
#include "comm/engine/engine.h"
#include "comm/offload/offloader.h"
#include "comm/shm/shm_transport.h"
#include "comm/ucx/ucx_transport.h"
#include "median.h"

namespace kasane::bench {
namespace {

using namespace comm;

constexpr RegionId kRegion{1};
constexpr std::size_t kRegionBytes = 1 << 16;
constexpr std::uint32_t kBurst = 64;
constexpr std::array<unsigned, 4> kRequesters{1, 2, 4, 8};
constexpr unsigned kLimitSeconds = 60;

struct Sample {
  double issue_ns[kRequesters.size()];
  double latency_us;
  double rate[kRequesters.size()];  ///< M/s
  bool complete;
};

struct System {
  const char* name;
  /// bare Offloader over shared memory, so that nothing but the ring and the executor is seen
  bool ring_only;
  EngineOptions options;
};

const std::vector<System>& systems() {
  static const std::vector<System> all{
      {"ring", true, {}},
      {"direct", false, {.mode = Mode::direct}},
      {"offload", false, {.mode = Mode::offload}},
  };
  return all;
}

void must(const Result<void>& result) {
  if (!result) throw std::runtime_error(result.error().message);
}
template <class T>
T must(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message);
  return std::move(*result);
}

std::uint64_t thread_cpu_ns() noexcept {
  timespec t;
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(t.tv_nsec);
}

/// What two readings of the CPU clock cost by themselves.
double clock_cost_ns() {
  std::uint64_t least = ~std::uint64_t{0};
  for (int i = 0; i < 1000; ++i) {
    const std::uint64_t before = thread_cpu_ns();
    least = std::min(least, thread_cpu_ns() - before);
  }
  return static_cast<double>(least);
}

/// A requester's side of a system: post one read of 8 bytes that counts up done; and what to do while
/// waiting.
struct Subject {
  std::function<bool(std::uint32_t requester, std::atomic<std::uint64_t>& done)> post;
  std::function<void()> wait;
};

Callback count_up(std::atomic<std::uint64_t>& done) noexcept {
  // release: a thread that sees the count sees what was read.
  return {[](void* d, Status) noexcept {
            static_cast<std::atomic<std::uint64_t>*>(d)->fetch_add(1, std::memory_order_release);
          },
          &done};
}

void in_threads(unsigned count, const std::function<void(unsigned)>& body) {
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < count; ++i) threads.emplace_back(body, i);
  for (auto& thread : threads) thread.join();
}

template <class Post>
double issue_ns(const Post& post, const Subject& subject, unsigned requesters, int bursts) {
  const double clock_ns = clock_cost_ns();
  std::atomic<std::uint64_t> total_ns{0};
  in_threads(requesters, [&](unsigned r) {
    std::atomic<std::uint64_t> done{0};
    std::uint64_t posted = 0, cpu_ns = 0;
    for (int b = 0; b < bursts; ++b) {
      const std::uint64_t before = thread_cpu_ns();
      for (std::uint32_t i = 0; i < kBurst; ++i)
        while (!post(r, done)) ::sched_yield();
      cpu_ns += thread_cpu_ns() - before;
      posted += kBurst;
      while (done.load(std::memory_order_acquire) != posted) subject.wait();
    }
    total_ns.fetch_add(cpu_ns, std::memory_order_relaxed);
  });
  const double calls = static_cast<double>(requesters) * bursts;
  return (static_cast<double>(total_ns.load()) - clock_ns * calls) / (calls * kBurst);
}

double latency_us(const Subject& subject, int count) {
  std::vector<double> each;
  for (int i = 0; i < count; ++i) {
    std::atomic<std::uint64_t> done{0};
    const std::uint64_t before = now_ns();
    while (!subject.post(0, done)) ::sched_yield();
    while (done.load(std::memory_order_acquire) == 0) subject.wait();
    each.push_back(static_cast<double>(now_ns() - before) / 1000);
  }
  std::nth_element(each.begin(), each.begin() + count / 2, each.end());
  return each[static_cast<std::size_t>(count) / 2];
}

double rate(const Subject& subject, unsigned requesters, std::uint64_t messages) {
  const std::uint64_t each = messages / requesters;
  const std::uint64_t before = now_ns();
  in_threads(requesters, [&](unsigned r) {
    std::atomic<std::uint64_t> done{0};
    for (std::uint64_t posted = 0; posted < each;) {
      if (posted - done.load(std::memory_order_acquire) < kBurst && subject.post(r, done))
        ++posted;
      else
        subject.wait();
    }
    while (done.load(std::memory_order_acquire) != each) subject.wait();
  });
  return static_cast<double>(each * requesters) * 1000 / static_cast<double>(now_ns() - before);
}

template <class Post>
void measure(const Post& post, const Subject& subject, bool quick, std::uint64_t messages, Sample& sample) {
  for (std::size_t i = 0; i < kRequesters.size(); ++i)
    sample.issue_ns[i] = issue_ns(post, subject, kRequesters[i], quick ? 50 : 200);
  sample.latency_us = latency_us(subject, quick ? 500 : 3000);
  for (std::size_t i = 0; i < kRequesters.size(); ++i)
    sample.rate[i] = rate(subject, kRequesters[i], messages);
  sample.complete = true;
}

/// Memory that can be attached.
struct Memory {
  explicit Memory() {
    fd = ::memfd_create("kasane-bench", MFD_CLOEXEC);
    if (fd < 0 || ::ftruncate(fd, kRegionBytes) != 0) throw std::runtime_error("memfd for the benchmark");
    void* mapped = ::mmap(nullptr, kRegionBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (mapped == MAP_FAILED) throw std::runtime_error("mapping memory for the benchmark");
    bytes = static_cast<std::byte*>(mapped);
  }
  int fd;
  std::byte* bytes;
};

/// Issues reads over shared memory, where they complete at once.
class Reader final : public Issuer {
 public:
  Reader(Transport& transport, std::byte* local) : transport_(transport), local_(local) {}
  Issued issue(const Command& c) noexcept override {
    if (transport_.read(c.remote, local_ + c.transfer.local.offset, c.transfer.bytes, nullptr) == Post::again)
      return Issued::again;
    c.on_complete.fn(c.on_complete.context, Status::ok);
    return Issued::done;
  }
  void hold(Command&) noexcept override {}

 private:
  Transport& transport_;
  std::byte* local_;
};

void measure_ring(Transport& host, Memory& memory, bool quick, Sample& sample) {
  Reader reader(host, memory.bytes);
  const auto offloader = must(Offloader::start(host, reader, EngineOptions{}.ring_commands));
  const auto post = [&](std::uint32_t requester, std::atomic<std::uint64_t>& done) noexcept {
    Command c{};
    c.kind = Command::Kind::read;
    c.remote = {Rank{1}, kRegion, requester * 64};
    c.on_complete = count_up(done);
    c.transfer = {.local = {kRegion, requester * 64}, .bytes = 8, .flag_offset = 0, .value = 0};
    return offloader->try_push(c);
  };
  measure(post, {.post = post, .wait = [] { ::sched_yield(); }}, quick, quick ? 100'000 : 1'000'000, sample);
}

void measure_engine(Engine& engine, bool quick, Sample& sample) {
  const auto post = [&](std::uint32_t requester, std::atomic<std::uint64_t>& done) noexcept {
    return engine.try_read_async({.from = {Rank{1}, kRegion, requester * 64},
                                  .to = {kRegion, requester * 64},
                                  .bytes = 8,
                                  .on_complete = count_up(done)});
  };
  const bool direct = engine.mode() == Mode::direct;
  const auto wait = [&engine, direct] {
    if (!direct || !engine.transport().progress()) ::sched_yield();
  };
  measure(post, {.post = post, .wait = wait}, quick, quick ? 10'000 : 50'000, sample);
}

/// Serves until all ranks have reached the barrier.
void serve_until_barrier(Transport& network, Collectives& host_all) {
  std::atomic<bool> stop{false};
  std::thread service([&] {
    PollWaiter waiter(network);
    waiter.until([&] { return stop.load(std::memory_order_acquire); });
  });
  host_all.barrier();
  stop.store(true, std::memory_order_release);
  network.wake(network.rank(), Doorbell::messages);
  service.join();
}

void run_network(const System& system, Transport& host, Memory& memory, bool quick, Sample& sample) {
  PollWaiter waiter(host);
  Collectives all(host, waiter);
  OverTransport exchange(host, all);
  Bells bells{};
  ucx::Options options;
  options.tls = "tcp,self";
  const auto network = must(ucx::create(exchange, bells, options));
  {
    EngineOptions engine_options = system.options;
    // the target serves in the same way for all
    if (raw(host.rank()) != 0) engine_options = {.mode = Mode::direct};
    const auto engine = must(Engine::create(*network, engine_options));
    must(engine->attach(kRegion, memory.fd, memory.bytes, kRegionBytes));
    all.barrier();
    if (raw(host.rank()) == 0) {
      measure_engine(*engine, quick, sample);
      all.barrier();
    } else {
      serve_until_barrier(*network, all);
    }
  }
  all.barrier();
}

void run_rank(const System& system, const Job& job, bool quick, Sample& sample) {
  const auto host = must(shm::create(job));
  Memory memory;
  if (!system.ring_only) return run_network(system, *host, memory, quick, sample);
  must(host->attach(kRegion, memory.fd, memory.bytes, kRegionBytes));
  PollWaiter waiter(*host);
  Collectives all(*host, waiter);
  if (raw(host->rank()) == 0) measure_ring(*host, memory, quick, sample);
  all.barrier();
}

[[noreturn]] void run_child(const System& system, const Job& job, bool quick, Sample& sample) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::alarm(kLimitSeconds);
  try {
    run_rank(system, job, quick, sample);
    ::_exit(0);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "comm_offload: %s, rank %u: %s\n", system.name, raw(job.rank), e.what());
    ::_exit(1);
  }
}

Sample run_job(const System& system, bool quick) {
  Job job = must(create_job(2, shm::job_bytes(2)));
  void* shared = ::mmap(nullptr, sizeof(Sample), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) throw std::runtime_error("mapping a sample");
  auto& sample = *static_cast<Sample*>(shared);
  std::array<pid_t, 2> ranks{};
  for (std::uint32_t r = 0; r < 2; ++r) {
    job.rank = Rank{r};
    ranks[r] = ::fork();
    if (ranks[r] == 0) run_child(system, job, quick, sample);
  }
  bool failed = false;
  for (const pid_t pid : ranks) {
    int status = 0;
    ::waitpid(pid, &status, 0);
    failed = failed || status != 0;
  }
  close_job(job);
  const Sample result = sample;
  ::munmap(shared, sizeof(Sample));
  if (failed || !result.complete)
    throw std::runtime_error(std::string("the job of system ") + system.name + " failed");
  return result;
}

}  // namespace

std::vector<Row> comm_offload(bool quick) {
  must(ucx::available());
  const unsigned rounds = quick ? 1 : 5;
  std::map<std::string, std::vector<Sample>> samples;
  for (unsigned round = 0; round < rounds; ++round)
    for (const System& system : systems()) samples[system.name].push_back(run_job(system, quick));

  std::vector<Row> rows;
  for (const System& system : systems()) {
    const auto add = [&](const char* name, unsigned threads, const char* unit, const auto& value_of) {
      std::vector<double> values;
      for (const Sample& s : samples[system.name]) values.push_back(value_of(s));
      rows.push_back({"comm", name, system.name, 2, threads, 8, median(std::move(values)), unit, rounds});
    };
    for (std::size_t i = 0; i < kRequesters.size(); ++i)
      add("offload-issue-cpu", kRequesters[i], "ns", [i](const Sample& s) { return s.issue_ns[i]; });
    add("offload-latency", 1, "us", [](const Sample& s) { return s.latency_us; });
    for (std::size_t i = 0; i < kRequesters.size(); ++i)
      add("offload-rate", kRequesters[i], "M/s", [i](const Sample& s) { return s.rate[i]; });
  }
  return rows;
}

}  // namespace kasane::bench
