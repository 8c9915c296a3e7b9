// SPDX-License-Identifier: Apache-2.0
// A checkpoint: an array in a file, from which another job goes on, on whatever number of ranks.
#include <unistd.h>

#include <cstdio>
#include <kasane/checkpoint.hpp>
#include <string>

namespace {

constexpr std::size_t n = 200'000;

void advance(double* x) {
  kasane::run([x] {
    kasane::parallel_for(std::size_t{0}, n, [x](std::size_t i) { x[i] += static_cast<double>(i); });
  });
}

}  // namespace

int main() {
  const std::string path = "/tmp/kasane-example-" + std::to_string(::getpid());
  const auto x = kasane::make_array<double>(n, kasane::placement::block);
  for (std::size_t i = 0; i < n; ++i) x[i] = 0;
  for (std::uint64_t step = 1; step <= 3; ++step) {
    advance(x.get());
    kasane::persist(x.get(), n, path, step);  // replaces the one of the step before, or leaves it as it is
  }

  const auto again = kasane::restore<double>(path);  // as another job would
  int bad = again.size != n || again.note != 3;
  for (std::size_t i = 0; i < again.size; ++i) bad += again.data[i] != 3.0 * static_cast<double>(i);
  ::unlink(path.c_str());
  std::printf("checkpoint: %s\n", bad == 0 ? "ok" : "FAILED");
  return bad == 0 ? 0 : 1;
}
