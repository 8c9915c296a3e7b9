// SPDX-License-Identifier: Apache-2.0
// Plain STREAM: Triad over ordinary memory by OpenMP threads (OMP_NUM_THREADS), which touch their parts
// first, as the benchmark of J. McCalpin has it (figure 4 of Yasui and Fujisawa, 2014). Kasane has no part
// in it. Its frames are Kasane's: pages of a file in memory, mapped once and populated by touching them.
#include <omp.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>

#include "triad/kernel.h"

namespace {

using kasane::bench::triad::kLine;
using kasane::bench::triad::Part;

/// One array, aligned to a page.
class Memory {
 public:
  explicit Memory(std::size_t bytes) : bytes_(bytes) {
    const int file = ::memfd_create("stream", MFD_CLOEXEC);
    if (file < 0 || ::ftruncate(file, static_cast<off_t>(bytes)) != 0)
      throw std::runtime_error(std::string("memfd_create: ") + std::strerror(errno));
    at_ = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    ::close(file);
    if (at_ == MAP_FAILED) throw std::runtime_error(std::string("mmap: ") + std::strerror(errno));
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() { ::munmap(at_, bytes_); }
  [[nodiscard]] double* begin() const { return static_cast<double*>(at_); }

 private:
  std::size_t bytes_;
  void* at_;
};

class Stream {
 public:
  void array(const std::string&, std::size_t n) {
    n_ = n;
    for (auto& m : arrays_) m.emplace(n * sizeof(double));
#pragma omp parallel
    kasane::bench::triad::fill(mine(), 0);
  }
  double run(bool streaming, std::uint64_t passes) {
    const auto start = std::chrono::steady_clock::now();
    for (std::uint64_t i = 0; i < passes; ++i) {
#pragma omp parallel
      kasane::bench::triad::pass(mine(), streaming);
    }
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  std::uint64_t check() {
    std::uint64_t wrong = 0;
#pragma omp parallel reduction(+ : wrong)
    wrong += kasane::bench::triad::check(mine(), 0);
    return wrong;
  }

 private:
  [[nodiscard]] Part mine() const {
    const auto i = static_cast<std::size_t>(::omp_get_thread_num());
    const auto threads = static_cast<std::size_t>(::omp_get_num_threads());
    const std::size_t lines = (n_ + kLine - 1) / kLine;
    const auto at = [&](std::size_t k) { return std::min(n_, lines * k / threads * kLine); };
    return {arrays_[0]->begin(), arrays_[1]->begin(), arrays_[2]->begin(), at(i), at(i + 1)};
  }

  std::size_t n_ = 0;
  std::optional<Memory> arrays_[3];
};

}  // namespace

int main() {
  Stream stream;
  return kasane::bench::triad::answer(stream);
}
