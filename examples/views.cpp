// SPDX-License-Identifier: Apache-2.0
// A view makes a range present at once, with all its transfers outstanding together, and without faults. What
// is only written is not fetched.
#include <cstdio>
#include <kasane/kasane.hpp>

namespace {

constexpr std::size_t n = 100'000, piece = 10'000;

// Between fork and join nothing of the piece moves the thread, so it may hold views.
void smooth(const double* from, double* to, std::size_t begin, std::size_t end) {
  const std::size_t left = begin == 0 ? 0 : begin - 1, right = end == n ? n : end + 1;
  const kasane::view<const double> in(from + left, right - left);
  const kasane::view out(to + begin, end - begin, kasane::write_only);
  for (std::size_t i = begin; i < end; ++i) {
    const double before = i == 0 ? 0 : from[i - 1], after = i + 1 == n ? 0 : from[i + 1];
    out[i - begin] = (before + from[i] + after) / 3;
  }
}

int failures() {
  const auto a = kasane::make_array<double>(n, kasane::placement::cyclic),
             b = kasane::make_array<double>(n, kasane::placement::cyclic);
  kasane::parallel_for(std::size_t{0}, n, [p = a.get()](std::size_t i) { p[i] = static_cast<double>(i); });
  kasane::parallel_for(
      std::size_t{0}, n / piece,
      [from = a.get(), to = b.get()](std::size_t k) { smooth(from, to, k * piece, (k + 1) * piece); }, 1);

  kasane::prefetch(b.get(), n);  // a hint, where a view is too much: no scope, no promise
  int bad = 0;
  for (std::size_t i = 1; i + 1 < n; ++i) bad += b[i] != static_cast<double>(i);
  kasane::discard(a.get(), n);  // its contents are not needed any more
  return bad;
}

}  // namespace

int main() {
  const int bad = kasane::run(failures);
  std::printf("views: %s\n", bad == 0 ? "ok" : "FAILED");
  return bad == 0 ? 0 : 1;
}
