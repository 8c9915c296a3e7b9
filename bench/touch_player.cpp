// SPDX-License-Identifier: Apache-2.0
// What the first stores to memory cost, and how much memory they take: to the first 2 KiB of rows of 64 KiB
// and 16 bytes, so that no row begins where a page does, and to a byte of each 4 KiB, in order and at random.
// The same program without Kasane is the peer.
//   player-touch MEBIBYTES
// Prints one JSON object: the mean time of a row, and of a block, in µs, and what the rows took, in MiB of
// the process.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <random>
#include <string>
#include <vector>

namespace {

constexpr std::size_t kRow = (64 << 10) + 16, kUsed = 2 << 10, kBlock = 4 << 10;

/// Anonymous and shared memory that this process has mapped, in MiB: libraries and files do not count.
double resident_mib() {
  std::ifstream status("/proc/self/status");
  double kib = 0;
  for (std::string word; status >> word;) {
    if (word != "RssAnon:" && word != "RssShmem:") continue;
    double more = 0;
    status >> more;
    kib += more;
  }
  return kib / 1024;
}

/// New memory of so many bytes, which the process keeps: memory that is freed is used again, and is warm.
char* fresh(std::size_t bytes) { return new char[bytes]; }

bool verified = true;

/// The mean time, in µs, of storing to `used` bytes at each of these places.
double touch(char* data, const std::vector<std::size_t>& places, std::size_t used) {
  const auto begin = std::chrono::steady_clock::now();
  for (const std::size_t place : places) std::fill_n(data + place, used, 'k');
  const std::chrono::duration<double, std::micro> passed = std::chrono::steady_clock::now() - begin;
  for (const std::size_t place : places) verified = verified && data[place + used - 1] == 'k';
  return passed.count() / static_cast<double>(places.size());
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t bytes = (argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 64) << 20;
  std::vector<std::size_t> rows(bytes / kRow), blocks(bytes / kBlock);
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = i * kRow;
  for (std::size_t i = 0; i < blocks.size(); ++i) blocks[i] = i * kBlock;
  touch(fresh(1 << 20), {0, kBlock, 16 * kBlock}, 1);  // it warms up
  char* const data = fresh(bytes);
  const double before = resident_mib();
  const double row = touch(data, rows, kUsed), mib = resident_mib() - before;
  const double in_order = touch(fresh(bytes), blocks, 1);
  std::shuffle(blocks.begin(), blocks.end(), std::mt19937_64(19));
  const double at_random = touch(fresh(bytes), blocks, 1);
  std::printf("{\"verified\": %s, \"row\": %.3f, \"rows_mib\": %.3f, ", verified ? "true" : "false", row,
              mib);
  std::printf("\"in_order\": %.3f, \"at_random\": %.3f}\n", in_order, at_random);
  return verified ? 0 : 1;
}
