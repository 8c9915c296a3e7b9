// SPDX-License-Identifier: Apache-2.0
// What loads, stores and fences cost where the memory is another rank's: one thread on rank 1 uses BLOCKS
// blocks of 4 KiB that rank 0 owns, REPETITIONS times; then a thread on each rank stores to the same blocks.
//   kasane run -n 2 --workers 1 --debug relocate=off -- player-pages BLOCKS REPETITIONS
// Without relocate=off the pages would move to rank 1 after 16 uses.
// Prints one JSON object: for each case of `kasane bench core --only pages` a list of REPETITIONS figures, µs
// a block or, of the cases whose name ends with -clean, ns a call.
#include <kasane/kasane.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "figures.h"

namespace {

using Clock = std::chrono::steady_clock;
using kasane::bench::Figures;

constexpr std::size_t kBlockBytes = 4096;
/// Blocks; with the wide one there is a block in each page or in every other.
constexpr std::size_t kStride = 3, kWideStride = 20;
/// Of a block, where the cases store a byte; the first byte is the number of the block.
constexpr std::size_t kAtRandom = 8, kInOrder = 16, kLast = kBlockBytes - 1;

double us_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

/// All on rank 1, whose thread does not move. Figures are kept in memory of that rank, so that the memory of
/// rank 0 is used by the cases only.
class Measurement {
 public:
  Measurement(char* data, char* small_data, std::size_t blocks)
      : data_(data), small_data_(small_data), blocks_(blocks), order_(blocks) {
    std::iota(order_.begin(), order_.end(), std::size_t{0});
  }

  void repeat() {
    ++turn_;
    std::shuffle(order_.begin(), order_.end(), random_);
    load();
    view();
    store();
    fence();
    load_and_store_small();
    verified_ = verified_ && kasane::rank() == 1;
  }
  [[nodiscard]] const Figures& figures() const { return figures_; }
  [[nodiscard]] bool verified() const { return verified_; }

 private:
  void keep(const char* name, Clock::time_point start, std::size_t blocks) {
    figures_[name].push_back(us_since(start) / static_cast<double>(blocks));
  }
  void load_block(const char* data, std::size_t b) {
    const volatile char* const byte = data + b * kBlockBytes;
    verified_ = *byte == static_cast<char>(b) && verified_;
  }
  void store_byte(char* data, std::size_t b, std::size_t at) {
    *static_cast<volatile char*>(data + b * kBlockBytes + at) = static_cast<char>(b + turn_);
  }
  [[nodiscard]] std::size_t blocks_of(std::size_t stride) const { return (blocks_ + stride - 1) / stride; }

  void load() {
    kasane::acquire_all();
    const std::uint64_t inside = kasane::counter("ns_load_faults", 1);
    auto start = Clock::now();
    for (const std::size_t b : order_) load_block(data_, b);
    keep("page-miss", start, blocks_);
    figures_["inside"].push_back(static_cast<double>(kasane::counter("ns_load_faults", 1) - inside) / 1000 /
                                 static_cast<double>(blocks_));

    load_upwards("page-stream", data_, 1);
    kasane::acquire_all();
    start = Clock::now();
    for (std::size_t b = blocks_; b-- > 0;) load_block(data_, b);
    keep("page-stream-down", start, blocks_);
    load_upwards("page-stride", data_, kStride);
    load_upwards("page-stride-wide", data_, kWideStride);
  }
  void load_upwards(const char* name, const char* data, std::size_t stride) {
    kasane::acquire_all();
    const auto start = Clock::now();
    for (std::size_t b = 0; b < blocks_; b += stride) load_block(data, b);
    keep(name, start, blocks_of(stride));
  }

  void view() {
    kasane::acquire_all();
    auto start = Clock::now();
    {
      const kasane::view view(data_, blocks_ * kBlockBytes);
      for (std::size_t b = 0; b < blocks_; ++b) load_block(view.data(), b);
    }
    keep("page-view", start, blocks_);

    kasane::acquire_all();
    start = Clock::now();
    {
      const kasane::view view(data_, blocks_ * kBlockBytes, kasane::write_only);
    }
    keep("write-view", start, blocks_);
    for (std::size_t b = 0; b < blocks_; ++b)
      std::memset(data_ + b * kBlockBytes, static_cast<char>(b), kBlockBytes);
    start = Clock::now();
    kasane::release_all();
    keep("release-whole", start, blocks_);
  }

  void store() {
    kasane::acquire_all();
    auto start = Clock::now();
    for (const std::size_t b : order_) store_byte(data_, b, kAtRandom);
    keep("write-miss", start, blocks_);
    start = Clock::now();
    kasane::release_all();
    keep("release-page", start, blocks_);
    store_upwards("write-stream", data_, 1);
    store_upwards("write-stride", data_, kStride);
  }
  /// With the release of the changed bytes.
  void store_upwards(const char* name, char* data, std::size_t stride) {
    kasane::acquire_all();
    const auto start = Clock::now();
    for (std::size_t b = 0; b < blocks_; b += stride) store_byte(data, b, kInOrder);
    kasane::release_all();
    keep(name, start, blocks_of(stride));
  }

  void fence() {
    constexpr std::size_t kCalls = 1000;
    kasane::acquire_all();
    auto start = Clock::now();
    for (std::size_t i = 0; i < kCalls; ++i) kasane::release_all();
    figures_["release-clean"].push_back(us_since(start));  // of 1000 calls: the ns of one
    start = Clock::now();
    for (std::size_t i = 0; i < kCalls; ++i) kasane::acquire_all();
    figures_["acquire-clean"].push_back(us_since(start));
  }

  void load_and_store_small() {
    load_upwards("page-stream-4k", small_data_, 1);
    store_upwards("write-stream-4k", small_data_, 1);
  }

  char* const data_;
  char* const small_data_;  ///< in pages of 4 KiB
  const std::size_t blocks_;
  std::vector<std::size_t> order_;
  std::mt19937 random_{1};
  Figures figures_;
  std::size_t turn_ = 0;
  bool verified_ = true;
};

struct Meeting {
  kasane::barrier barrier{2};
  bool in_place[2] = {};  ///< of the last epoch
};

/// Both ranks store a byte of their own to every block, meet, and load the other's. A barrier releases and
/// acquires. Returns the figures of the calling rank, and none if a byte is wrong. An epoch in which a thread
/// was not at its rank has no figure: a rank without work may take a thread that is ready at another one.
std::vector<double> share_falsely(char* data, std::uint32_t rank, Meeting& meeting, unsigned repetitions) {
  constexpr std::size_t kBlocks = 16;
  const std::size_t mine = rank * 64, other = 64 - mine;
  bool right = true;
  std::vector<double> us;
  for (unsigned epoch = 0; us.size() < repetitions && epoch < 100 * repetitions; ++epoch) {
    kasane::this_thread::move_to(rank);
    meeting.barrier.arrive_and_wait();
    const bool began_here = kasane::rank() == rank;
    const auto start = Clock::now();
    volatile char* const bytes = data;
    for (std::size_t b = 0; b < kBlocks; ++b) bytes[b * kBlockBytes + mine] = static_cast<char>(epoch + b);
    meeting.barrier.arrive_and_wait();
    for (std::size_t b = 0; b < kBlocks; ++b)
      right = bytes[b * kBlockBytes + other] == static_cast<char>(epoch + b) && right;
    const double took = us_since(start) / kBlocks;
    meeting.in_place[rank] = began_here && kasane::rank() == rank;
    meeting.barrier.arrive_and_wait();
    if (meeting.in_place[0] && meeting.in_place[1]) us.push_back(took);
  }
  return right ? us : std::vector<double>();
}

char* allocate_on(std::uint32_t rank, std::size_t blocks, std::size_t page_bytes) {
  return static_cast<char*>(
      kasane::allocate(blocks * kBlockBytes, 65536, kasane::placement::on(rank).in_pages(page_bytes)));
}

/// Each block holds its number.
void fill(char* data, std::size_t blocks) {
  for (std::size_t b = 0; b < blocks; ++b) data[b * kBlockBytes] = static_cast<char>(b);
}
/// Has the owner what the other rank stored in its last repetition?
bool has_arrived(const char* data, std::size_t blocks, unsigned repetitions) {
  bool all = true;
  for (std::size_t b = 0; b < blocks; ++b) {
    const char* const block = data + b * kBlockBytes;
    const auto last = static_cast<char>(b + repetitions);
    all = all && block[0] == static_cast<char>(b) && block[kAtRandom] == last && block[kInOrder] == last &&
          block[kLast] == static_cast<char>(b);
  }
  return all;
}

/// The root thread. True if all values are right.
bool measure(std::size_t blocks, unsigned repetitions, Figures& figures) {
  char* const data = allocate_on(0, blocks, kasane::page_default);
  char* const small_data = allocate_on(0, blocks, kasane::page_small);
  char* const places[] = {allocate_on(0, 1, kasane::page_default), allocate_on(1, 1, kasane::page_default)};
  bool verified = false, arrived = false;
  kasane::thread(kasane::near{places[0]}, [=] {
    fill(data, blocks);
    fill(small_data, blocks);
  }).join();
  kasane::thread(kasane::near{places[1]}, [=, &figures, &verified] {
    Measurement measurement(data, small_data, blocks);
    for (unsigned r = 0; r < repetitions; ++r) measurement.repeat();
    figures = measurement.figures();
    verified = measurement.verified();
  }).join();
  kasane::thread(kasane::near{places[0]}, [=, &arrived] {
    arrived = has_arrived(data, blocks, repetitions);
  }).join();

  const auto meeting = std::make_unique<Meeting>();
  std::vector<double> epochs[2];
  std::vector<kasane::thread> threads;
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    threads.emplace_back(kasane::near{places[rank]}, [=, &epochs, &meeting = *meeting] {
      epochs[rank] = share_falsely(data, rank, meeting, repetitions);
    });
  }
  for (kasane::thread& t : threads) t.join();
  figures["false-sharing-epoch"] = epochs[1];
  for (char* const p : {data, small_data, places[0], places[1]}) kasane::deallocate(p);
  return verified && arrived && !epochs[0].empty() && !epochs[1].empty();
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t blocks = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 512;
  const unsigned repetitions = argc > 2 ? static_cast<unsigned>(std::atoi(argv[2])) : 2;
  if (kasane::ranks() != 2) {
    std::fputs("player-pages: run it with 2 ranks\n", stderr);
    return 2;
  }
  return kasane::run([=] {
    Figures figures;
    const bool verified = measure(blocks, repetitions, figures);
    kasane::bench::print_figures(verified, figures);
    return verified ? 0 : 1;
  });
}
