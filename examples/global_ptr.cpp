// SPDX-License-Identifier: Apache-2.0
// A histogram over all ranks by the direct view: workers count values in bins that lie anywhere, by atomics
// at the bins' owners, and gather the rows of a matrix asynchronously while they compute.
#include <cstdint>
#include <cstdio>
#include <kasane/kasane.hpp>
#include <vector>

namespace {

constexpr std::size_t kBins = 1000, kValues = 20'000, kRows = 64, kColumns = 4096;

int failures() {
  const auto bins = kasane::make_array<std::int64_t>(kBins, kasane::placement::cyclic);
  const kasane::global_ptr<std::int64_t> bin(bins.get());
  const std::vector<std::int64_t> zeros(kBins);
  kasane::put(bin, zeros.data(), kBins);

  // Many additions under way at once; the group awaits them together.
  kasane::parallel_for(std::size_t{0}, kValues / 100, [bin](std::size_t piece) {
    kasane::pending_group all;
    for (std::size_t i = piece * 100; i < (piece + 1) * 100; ++i)
      kasane::add_async(bin + static_cast<long>(i * i % kBins), 1, all);
    all.wait();
  });
  std::vector<std::int64_t> counts(kBins);
  kasane::get(counts.data(), bin, kBins);
  std::int64_t sum = 0;
  for (const std::int64_t n : counts) sum += n;
  // 2 ends no square
  int bad = sum != static_cast<std::int64_t>(kValues) || counts[1] == 0 || counts[2] != 0;

  // A matrix by rows at all ranks: a column is a patch of one element a row. The next one comes while this
  // one is added up.
  const auto matrix = kasane::make_array<double>(kRows * kColumns, kasane::placement::block);
  for (std::size_t i = 0; i < kRows * kColumns; ++i) matrix[i] = static_cast<double>(i % kColumns);
  kasane::release_all();  // stores, then direct access: a fence between
  const kasane::global_ptr<const double> cell(matrix.get());
  const kasane::patch column{1, kRows, kColumns, 1};
  std::vector<double> now(kRows), next(kRows);
  kasane::get_strided(now.data(), cell, column);
  for (std::size_t c = 0; c < 20; ++c) {
    kasane::pending coming = kasane::get_strided_async(next.data(), cell + static_cast<long>(c + 1), column);
    double total = 0;
    for (const double v : now) total += v;
    bad += total != static_cast<double>(c * kRows);
    coming.wait();
    now.swap(next);
  }
  return bad;
}

}  // namespace

int main() {
  const int bad = kasane::run(failures);
  std::printf("global_ptr: %s\n", bad == 0 ? "ok" : "FAILED");
  return bad;
}
