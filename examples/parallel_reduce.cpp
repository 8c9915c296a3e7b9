// SPDX-License-Identifier: Apache-2.0
// parallel_reduce: the parts are combined in order, so the operation need not be commutative; and the value
// may be any type.
#include <cstdio>
#include <kasane/kasane.hpp>
#include <string>
#include <utility>

namespace {

int failures() {
  const long sum = kasane::parallel_reduce(
      1L, 1'000'001L, 0L, [](long i) { return i; }, [](long a, long b) { return a + b; });
  const std::string text = kasane::parallel_reduce(
      0, 2000, std::string(">"), [](int i) { return std::string(1, static_cast<char>('a' + i % 26)); },
      [](std::string a, const std::string& b) { return std::move(a) + b; }, 10);
  int bad = sum != 500'000'500'000L;
  bad += text.size() != 2001 || text[0] != '>';
  for (std::size_t i = 0; i < 2000; ++i) bad += text[i + 1] != static_cast<char>('a' + i % 26);
  return bad != 0;
}

}  // namespace

int main() {
  const int bad = kasane::run(failures);
  std::printf("parallel_reduce: %s\n", bad == 0 ? "ok" : "FAILED");
  return bad;
}
