// SPDX-License-Identifier: Apache-2.0
// The peers' player of kasane bench tier: the same passes and algorithms over a mapped file, by the kernel
// (mmap, with one piece of advice) or by UMap.
//
//   player-tier-mapped SYSTEM DIRECTORY BYTES BUDGET READS SEED CASE…
//                                                      SYSTEM: mmap, mmap-sequential, mmap-random, umap
//
// umap pages through a buffer of BUDGET; UMAP_PAGESIZE and UMAP_BUFSIZE say otherwise. Of mmap only the
// memory control group knows the budget.
#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <barrier>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <thread>

#include "cilksort/check.h"
#include "cilksort/sort.h"
#include "common/patterns.h"
#include "passes.h"
#include "scratch_file.h"
#include "stencil/nine_points.h"

namespace {

using namespace kasane::bench::tier;
using kasane::bench::ScratchFile;

struct Arguments {
  std::string system, directory;
  std::uint64_t bytes, budget, reads, seed;
  std::vector<std::string> cases;
  [[nodiscard]] bool wants(const char* name) const {
    return std::find(cases.begin(), cases.end(), name) != cases.end();
  }
};

/// A file of its own and where it is mapped.
class Mapping {
 public:
  explicit Mapping(const Arguments& a)
      : bytes_((a.bytes + kPage - 1) / kPage * kPage), file_(a.directory, bytes_) {
    if (a.system == "umap")
      by_umap(a.budget);
    else
      by_kernel(a.system);
  }
  ~Mapping() {
    if (unmap_ != nullptr)
      unmap_(base_, bytes_);
    else
      ::munmap(base_, bytes_);
  }

  template <class T>
  [[nodiscard]] T* at(std::size_t index = 0) const noexcept {
    return static_cast<T*>(base_) + index;
  }
  /// What was stored is in the file. (UMap has its own threads for that.)
  void sync() const {
    if (unmap_ == nullptr && ::msync(base_, bytes_, MS_SYNC) != 0) throw std::runtime_error("msync failed");
  }

 private:
  static constexpr std::uint64_t kPage = 64 << 10;  // of UMap; Kasane's default, too

  void by_kernel(const std::string& system) {
    base_ = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file_.fd(), 0);
    if (base_ == MAP_FAILED) throw std::runtime_error("cannot map the file");
    const int advice = system == "mmap-sequential" ? MADV_SEQUENTIAL
                       : system == "mmap-random"   ? MADV_RANDOM
                                                   : MADV_NORMAL;
    if (::madvise(base_, bytes_, advice) != 0) throw std::runtime_error("madvise failed");
  }
  void by_umap(std::uint64_t budget) {
    ::setenv("UMAP_PAGESIZE", std::to_string(kPage).c_str(), 0);
    // pages
    ::setenv("UMAP_BUFSIZE",
             std::to_string(budget / std::strtoull(std::getenv("UMAP_PAGESIZE"), nullptr, 10)).c_str(), 0);
    void* const library = ::dlopen("libumap.so", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) throw std::runtime_error(::dlerror());
    const auto map =
        reinterpret_cast<void* (*)(void*, std::uint64_t, int, int, int, off_t)>(::dlsym(library, "umap"));
    unmap_ = reinterpret_cast<int (*)(void*, std::uint64_t)>(::dlsym(library, "uunmap"));
    if (map == nullptr || unmap_ == nullptr) throw std::runtime_error("libumap.so has no umap");
    (void)::fcntl(file_.fd(), F_SETFL, ::fcntl(file_.fd(), F_GETFL) | O_DIRECT);  // where it can
    base_ = map(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE, file_.fd(), 0);
    if (base_ == MAP_FAILED) throw std::runtime_error("umap failed");
  }

  std::uint64_t bytes_;
  ScratchFile file_;
  void* base_ = nullptr;
  int (*unmap_)(void*, std::uint64_t) = nullptr;
};

double random_reads(const Data& data, std::size_t reads, std::uint64_t seed, unsigned threads) {
  AbsentBlocks blocks(data, reads, seed);
  double start = 0;
  std::barrier begin(threads, [&]() noexcept { start = seconds(); });
  std::vector<std::thread> all;
  for (unsigned t = 0; t < threads; ++t) {
    all.emplace_back([&, t] {
      begin.arrive_and_wait();
      blocks.read(data, blocks.size() * t / threads, blocks.size() * (t + 1) / threads);
    });
  }
  for (std::thread& t : all) t.join();
  return static_cast<double>(blocks.size()) / (seconds() - start);
}

void sweeps(const Arguments& a) {
  const Mapping mapping(a);
  const Data data{mapping.at<std::uint64_t>(), a.bytes / 8};
  report("seq-write", data.write());
  mapping.sync();
  (void)data.read();
  if (a.wants("seq-read")) report("seq-read", data.read());
  for (const RandomCase& c : kRandomCases)
    if (a.wants(c.name)) report(c.name, random_reads(data, c.reads(a.reads), a.seed + c.threads, c.threads));
}

/// GFlop/s. As the application has it: plain steps go from one grid to another and back, several together are
/// done in place.
double stencil(const Arguments& a, std::size_t together, std::size_t passes) {
  const bool plain = together == 1;
  const apps::Plate plate{
      static_cast<std::size_t>(std::sqrt(static_cast<double>(a.bytes) / (plain ? 16 : 8))) - 2};
  const Mapping mapping(a);
  auto *from = mapping.at<double>(), *to = plain ? mapping.at<double>(plate.points()) : from;
  plate.set_rows(from, 0, plate.pitch());
  if (plain) plate.set_rows(to, 0, plate.pitch());
  mapping.sync();
  const double start = seconds();
  auto order = apps::Plate::kFirstOrder;
  for (std::size_t i = 0; i < passes; ++i, std::swap(from, to), order = apps::Plate::opposite(order)) {
    if (plain)
      plate.step_rows<apps::Serial>(to, from, 0, plate.pitch(), order);
    else
      plate.advance_rows<apps::Serial>(from, apps::Plate::Halo(plate), together, order);
  }
  const double taken = seconds() - start,
               left = std::pow(plate.decay(), static_cast<double>(together * passes));
  double error = 0;
  apps::PrivateArray<double> mode(plate.pitch());
  for (std::size_t i = 1; i <= plate.n; ++i) {
    plate.set_rows(mode.get() - i * plate.pitch(), i, i + 1);
    for (std::size_t j = 0; j < plate.pitch(); ++j)
      error = std::max(error, std::abs(from[i * plate.pitch() + j] - left * mode.get()[j]));
  }
  require(error <= 4e-16 * static_cast<double>(together * passes + 4), "of the stencil");
  return 1e-9 * static_cast<double>(apps::Plate::kFlops * plate.n * plate.n * together * passes) / taken;
}

/// Million keys a second.
double sort(const Arguments& a) {
  const std::size_t n = a.bytes / 16;
  const Mapping mapping(a);
  auto* const keys = mapping.at<std::uint64_t>();
  std::uint64_t before = 0, after = 0;
  for (std::size_t i = 0; i < n; ++i) before += apps::hash_of(keys[i] = apps::random_at(a.seed, i));
  mapping.sync();
  const double start = seconds();
  apps::cilksort<apps::Serial>(keys, keys + n, n, apps::Cutoff{});
  const double taken = seconds() - start;
  bool sorted = true;
  for (std::size_t i = 0; i < n; ++i) {
    after += apps::hash_of(keys[i]);
    sorted &= i == 0 || keys[i - 1] <= keys[i];
  }
  require(sorted && before == after, "of the sort");
  return 1e-6 * static_cast<double>(n) / taken;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc < 8)
      throw std::runtime_error("usage: player-tier-mapped SYSTEM DIRECTORY BYTES BUDGET READS SEED CASE...");
    const auto number = [argv](int i) { return std::strtoull(argv[i], nullptr, 10); };
    const Arguments a{argv[1], argv[2], number(3), number(4), number(5), number(6), {argv + 7, argv + argc}};
    if (std::any_of(a.cases.begin(), a.cases.end(),
                    [](const std::string& c) { return c.starts_with("seq") || c.starts_with("random"); }))
      sweeps(a);
    if (a.wants("stencil")) report("stencil", stencil(a, 1, 2));
    if (a.wants("stencil-tb")) report("stencil-tb", stencil(a, 10, 2));
    if (a.wants("sort")) report("sort", sort(a));
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "player-tier-mapped: %s\n", e.what());
    return 1;
  }
}
