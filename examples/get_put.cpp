// SPDX-License-Identifier: Apache-2.0
// get and put go to the owner's copy at once, past the caches; release_all and acquire_all stand between them
// and loads and stores. A view makes global memory fit for system calls.
#include <unistd.h>
#include <array>
#include <cstdio>
#include <kasane/kasane.hpp>

namespace {

int failures() {
  constexpr std::size_t n = 40'000;
  const auto array = kasane::make_array<int>(n, kasane::placement::cyclic);
  for (std::size_t i = 0; i < n; ++i) array[i] = static_cast<int>(i);
  kasane::release_all();  // the owners have it now

  std::array<int, 5> piece{};
  kasane::get(piece.data(), &array[20'000], piece.size());
  int bad = piece[0] != 20'000 || piece[4] != 20'004;

  piece = {-1, -2, -3, -4, -5};
  kasane::put(&array[20'000], piece.data(), piece.size());
  kasane::acquire_all();  // loads may have had an older copy
  bad += array[20'000] != -1 || array[20'004] != -5 || array[20'005] != 20'005;

  // A system call cannot wait for a page: make a view of its buffer.
  int pipe[2];
  if (::pipe(pipe) != 0) return 1;
  constexpr std::size_t bytes = 4000;
  {
    const kasane::view source(&array[0], bytes / sizeof array[0]);
    const kasane::view target(&array[30'000], bytes / sizeof array[0], kasane::write_only);
    bad += ::write(pipe[1], &array[0], bytes) != static_cast<ssize_t>(bytes);
    bad += ::read(pipe[0], &array[30'000], bytes) != static_cast<ssize_t>(bytes);
  }
  ::close(pipe[0]);
  ::close(pipe[1]);
  bad += array[30'000] != 0 || array[30'999] != 999 || array[31'000] != 31'000;
  return bad;
}

}  // namespace

int main() {
  const int bad = kasane::run(failures);
  std::printf("get_put: %s\n", bad == 0 ? "ok" : "FAILED");
  return bad;
}
